"""Brokers lose power at the same moment: they are gone, with all that was written and not flushed, and start again."""

from __future__ import annotations

import time
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from random import Random
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rabbitmq_resilience.nemesis.fault import FaultContext, Proof
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.preloading import Canaries, PreloadedFault, canaries_of
from rabbitmq_resilience.nemesis.processes import ProcessInjection, ProcessStep
from rabbitmq_resilience.nemesis.targets import Resolver
from rabbitmq_resilience.sut.node_protocol import StoredData
from rabbitmq_resilience.sut.preload.preloaded_disk import FileSystem, TakenAway
from rabbitmq_resilience.tools.waiting import wait_until

_SEEDS = 2**31
#: Longer than Linux keeps anything in memory by default.
WRITTEN_BACK_S_MAX = 40.0
_NAMED_MAX = 5


class PowerCut(PreloadedFault, ProcessStep):
    """SIGKILL to all of the nodes at once. Then everything is taken away that was written and not flushed by fsync,
    fdatasync, O_SYNC or their like, file by file. Healing starts the nodes.

    A real power cut often takes less, as an operating system writes back by itself what is old: Linux after about 30 s
    (``vm.dirty_expire_centisecs``), and ext4 commits names every 5 s (``commit``). With
    ``written_back_after_s``, the cut comes that long after the step begins, and all that was written before counts as
    flushed. Without it, this holds only for what brokers wrote until their cluster had formed.

    ``file_system`` says what happens to new, renamed and removed names. ``ordered``: a new name is kept only after a
    flush of its file or its folder; a flush by fdatasync counts only if the file's size has changed. A rename is kept
    as a whole or not at all. If it replaces a file, it is not kept before the data that the renamed file had then, if
    that one is new (option ``auto_da_alloc`` of ext4); a file that is renamed to a new name may be empty.
    ``ext4``: what ext4 keeps with ``data=ordered`` (Linux kernel documentation, "ext4 General Information"). It has one
    journal, so each flush of a changed file or folder also keeps all operations on names before that change; for the
    rest, as ``ordered``.
    ``posix``: nothing is kept but what was flushed; a name is flushed with its folder only (POSIX, ``fsync``; Pillai
    et al., "All File Systems Are Not Created Equal", OSDI 2014). With ``torn``, a part of what was not flushed stays:
    for each file, the writes up to one that the seed chooses, and of this one a number of whole sectors of 512 bytes.
    """

    fault: Literal["power_cut"] = "power_cut"
    file_system: FileSystem = "ordered"
    torn: bool = False
    written_back_after_s: Annotated[float, Field(gt=0, le=WRITTEN_BACK_S_MAX)] | None = None

    example: ClassVar[str] = 'node: "leader:q1"'
    take: ClassVar[str] = "kill"
    begins_within_s: ClassVar[float] = PreloadedFault.begins_within_s + WRITTEN_BACK_S_MAX

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> PowerCutInjection:  # noqa: ARG002 - one form for all
        """Return the injection for the nodes that ``node`` means now."""
        nodes = resolver.nodes(self.node)
        cluster, canaries = context.cluster, canaries_of(context.cluster, nodes)
        chance = resolver.random if self.torn else None
        return PowerCutInjection(context, nodes, cluster.kill, cluster.start, "gone", canaries, self, chance)


@dataclass
class PowerCutInjection(ProcessInjection):
    """Brokers without power. The cut is proven once each process is gone, the canary that was flushed is there, and the
    others are as before; and if the cut found each file that had to lose something."""

    canaries: dict[str, Canaries]
    stated: PowerCut
    #: Draws which parts stay; None if nothing does.
    chance: Random | None
    _taken_away: dict[str, TakenAway] = field(default_factory=dict, init=False)

    def take_all(self) -> None:
        """Let each broker write its canaries, kill all of them, and take away what was not flushed."""
        self._await_age()
        with ThreadPoolExecutor(max_workers=len(self.nodes)) as pool:
            list(pool.map(Canaries.write, self.canaries.values()))
        super().take_all()
        for node in self.nodes:
            seed = None if self.chance is None else self.chance.randrange(_SEEDS)
            self._taken_away[node] = self.canaries[node].disk.cut_power(self.stated.file_system, torn_seed=seed)

    def _await_age(self) -> None:
        """Let what was written so far count as flushed, and wait until that was as long ago as is stated."""
        age_s = self.stated.written_back_after_s
        if age_s is None:
            return
        stored = offered(self.context.cluster, StoredData)
        for node in self.nodes:
            stored.write_back(node)
        cut_at_s = time.monotonic() + age_s
        wait_until(lambda: time.monotonic() >= cut_at_s, timeout_s=age_s + 10, what="the power to be cut")

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
        # A torn cut may keep a write to a file, but never a name.
        left = [name for name in ("unflushed", "new") if survives[name] and not (self.chance and name == "unflushed")]
        if left:
            return f"{node} kept a canary that was not flushed ({', '.join(left)})"
        not_found = self._taken_away[node].not_found
        if not_found:
            more = f" and {len(not_found) - _NAMED_MAX} more" if len(not_found) > _NAMED_MAX else ""
            named = ", ".join(not_found[:_NAMED_MAX])
            return f"{node} may have kept what was not flushed of {named}{more}: the cut did not find these files"
        calls = self.canaries[node].disk.counters().not_followed
        return f"{node} wrote by {', '.join(calls)}, which cannot be followed" if calls else ""
