"""The disk of a broker is slow: each of its writes and flushes takes longer."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import Annotated, ClassVar, Literal, Self

from pydantic import Field, model_validator

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, on_each
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.preloading import Canaries, PreloadedFault, Took, canaries_of, still_wrong
from rabbitmq_resilience.nemesis.targets import Resolver, size_of

#: A shorter time could not be distinguished from what a busy disk takes by itself.
SLOW_MIN_MS = 20.0
SLOW_MAX_MS = 60_000.0
BACK_WITHIN_S = 30.0

Milliseconds = Annotated[float, Field(ge=0, le=SLOW_MAX_MS)]


class SlowDisk(PreloadedFault):
    """Each write of a file takes ``write_ms`` longer, and each flush ``flush_ms``. The broker's own calls are measured
    before, during and after."""

    fault: Literal["slow_disk"] = "slow_disk"
    write_ms: Milliseconds = 0.0
    flush_ms: Milliseconds = 0.0

    example: ClassVar[str] = 'node: "leader:q1", flush_ms: 1000'

    @model_validator(mode="after")
    def _slow_enough(self) -> Self:
        if max(self.write_ms, self.flush_ms) < SLOW_MIN_MS:
            raise ValueError(f"neither write_ms nor flush_ms is {SLOW_MIN_MS:g} or more; such a delay cannot be seen")
        return self

    def footprint(self, topology: Topology) -> Footprint:
        """Return the disks of the nodes. Their processes go on, so others may act on them."""
        return replace(
            super().footprint(topology),
            processes=frozenset(),
            possible_processes=frozenset(),
            together=len(topology.node_names) - size_of(self.node, topology),
        )

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> SlowDiskInjection:  # noqa: ARG002 - one form for all
        nodes = resolver.nodes(self.node)
        canaries = canaries_of(context.cluster, nodes)
        return SlowDiskInjection(nodes, canaries, write_ms=self.write_ms, flush_ms=self.flush_ms)


@dataclass
class SlowDiskInjection:
    """Slow disks. ``write_ms`` and ``flush_ms`` are in addition to what each call takes by itself."""

    nodes: tuple[str, ...]
    canaries: Mapping[str, Canaries]
    write_ms: float
    flush_ms: float
    _before: dict[str, Took] = field(default_factory=dict, init=False)

    @property
    def effect(self) -> Effect:
        """Return the nodes as starved: they are slow in all that they store."""
        return Effect(nodes_starved=self.nodes)

    def inject(self) -> None:
        for node, canaries in self.canaries.items():
            self._before[node] = canaries.write()
            canaries.disk.slow(write_ms=self.write_ms, flush_ms=self.flush_ms)

    def heal(self) -> None:
        on_each(self.nodes, lambda node: self.canaries[node].disk.clear())

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that the broker's own write and flush take as much longer as is stated."""
        return self._await(self._is_slow, timeout_s=timeout_s)

    def prove_healed(self) -> Proof:
        """Return a proof that neither takes that long any more."""
        return self._await(lambda before, took: not any(self.delayed(before, took)), timeout_s=BACK_WITHIN_S)

    def _is_slow(self, before: Took, took: Took) -> bool:
        return all(self.delayed(before, took))

    def delayed(self, before: Took, took: Took) -> Iterator[bool]:
        """Yield for each kind of call that is to be slow whether it is. A busy disk may take as long by itself, and not
        always as long as before."""
        kinds = ((self.write_ms, before.write_ms, took.write_ms), (self.flush_ms, before.flush_ms, took.flush_ms))
        for stated_ms, before_ms, took_ms in kinds:
            if stated_ms:
                yield took_ms >= stated_ms and took_ms - before_ms >= stated_ms / 2

    def _await(self, fits: Callable[[Took, Took], bool], *, timeout_s: float) -> Proof:
        seen: dict[str, str] = {}

        def wrong(node: str) -> str:
            took = self.canaries[node].write()
            seen[node] = f"{node} {_words(took)}, before {_words(self._before[node])}"
            return "" if fits(self._before[node], took) else seen[node]

        still = still_wrong(self.nodes, wrong, timeout_s=timeout_s, what="disks to be slow")
        return Proof(not still, "; ".join(still or seen.values()))


def _words(took: Took) -> str:
    return f"wrote in {took.write_ms:.1f} ms and flushed in {took.flush_ms:.1f} ms"
