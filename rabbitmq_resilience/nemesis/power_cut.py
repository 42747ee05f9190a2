"""Brokers lose power at the same moment: they are gone, with all that was written and not flushed, and start again."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import ClassVar, Literal

from rabbitmq_resilience.nemesis.fault import FaultContext, Proof
from rabbitmq_resilience.nemesis.preloading import Canaries, PreloadedFault, canaries_of
from rabbitmq_resilience.nemesis.processes import ProcessInjection, ProcessStep
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.sut.preload.preloaded_disk import FileSystem, TakenAway

_SEEDS = 2**31


class PowerCut(PreloadedFault, ProcessStep):
    """SIGKILL to all of the nodes at once. Then everything is taken away that was written and not flushed by fsync,
    fdatasync, O_SYNC or their like, file by file. This is the worst that a power cut may do: an operating system writes
    back much of it by itself. Healing starts the nodes.

    ``file_system`` says what happens to new, renamed and removed names. ``ordered``: as ext4 with ``data=ordered``
    (Linux kernel documentation, "ext4 General Information"). A rename is kept as a whole or not at all, and never
    before its data. A new name is kept only after a flush of its file or its folder. ``posix``: nothing is kept but
    what was flushed; a name is flushed with its folder only (POSIX, ``fsync``; Pillai et al., "All File Systems Are Not
    Created Equal", OSDI 2014). With ``torn``, a part of what was not flushed stays: for each file, the writes up to one
    that the seed chooses, and of this one a number of whole sectors of 512 bytes.
    """

    fault: Literal["power_cut"] = "power_cut"
    file_system: FileSystem = "ordered"
    torn: bool = False

    example: ClassVar[str] = 'node: "leader:q1"'
    take: ClassVar[str] = "kill"

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> PowerCutInjection:  # noqa: ARG002
        """Return the injection for the nodes that ``node`` means now."""
        nodes = resolver.nodes(self.node)
        cluster, canaries = context.cluster, canaries_of(context.cluster, nodes)
        chance = resolver.random if self.torn else None
        return PowerCutInjection(
            context, nodes, cluster.kill, cluster.start, "gone", canaries, self.file_system, chance
        )


@dataclass
class PowerCutInjection(ProcessInjection):
    """Brokers without power. The cut is proven once each process is gone, the canary that was flushed is there, and the
    others are as before."""

    canaries: dict[str, Canaries]
    file_system: FileSystem
    #: Draws which parts stay; None if nothing does.
    chance: Random | None
    _taken_away: dict[str, TakenAway] = field(default_factory=dict, init=False)

    def take_all(self) -> None:
        """Let each broker write its canaries, kill all of them, and take away what was not flushed."""
        with ThreadPoolExecutor(max_workers=len(self.nodes)) as pool:
            list(pool.map(Canaries.write_anew, self.canaries.values()))
        super().take_all()
        for node in self.nodes:
            seed = None if self.chance is None else self.chance.randrange(_SEEDS)
            self._taken_away[node] = self.canaries[node].disk.cut_power(self.file_system, torn_seed=seed)

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that the processes are gone and that exactly what was not flushed is gone."""
        wrong = [text for node in self.nodes if (text := self._wrong(node))]
        taken = [
            f"{node} lost {taken.bytes:,} bytes of {taken.files} files, and {taken.names} names"
            for node, taken in self._taken_away.items()
        ]
        cut = Proof(not wrong, "; ".join(wrong or taken))
        return Proof.of_all(super().prove(timeout_s=timeout_s), cut)

    def _wrong(self, node: str) -> str:
        """Return what the canaries of the node show that does not fit a power cut; empty if all fits."""
        survives = self.canaries[node].survivors()
        if not survives["flushed"]:
            return f"{node} lost a canary that was flushed"
        # A torn cut may keep the write of a file that is there already, but never a name.
        left = [name for name in ("unflushed", "new") if survives[name] and not (self.chance and name == "unflushed")]
        if left:
            return f"{node} kept a canary that was not flushed ({', '.join(left)})"
        calls = self.canaries[node].disk.counters().not_followed
        return f"{node} wrote by {', '.join(calls)}, which cannot be followed" if calls else ""
