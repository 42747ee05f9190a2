"""Slow links: each byte on a directed link arrives later, by a latency and a jitter around it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from faults.fault import Arena, Effect, Proof, left_over
from faults.silence import unproxied
from faults.step import Step
from faults.targets import Resolver, TargetError, check_links, fixed_links, resolved_links
from topologies.spec import Link, Topology
from workloads.queues import queue_names
from workloads.spec import Workload

FAST_AGAIN_WITHIN_S = 20.0
#: A broker takes some milliseconds to answer a probe even without any latency.
PROVABLE_MS = 10
#: For a broker that is busy to answer a probe, beyond what the links take.
PROBE_MARGIN_S = 2.0


class Latency(Step):
    """``links`` is an expression such as ``zone:a -> zone:c``, or ``a1 <-> b1`` for both directions."""

    fault: Literal["latency"] = "latency"
    links: str
    latency_ms: Annotated[int, Field(ge=1, le=60_000)]
    jitter_ms: Annotated[int, Field(ge=0, le=60_000)] = 0

    acts_on: ClassVar[str] = "links"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        least_ms = self.latency_ms - self.jitter_ms
        if least_ms < PROVABLE_MS:
            text = f"latency_ms ({self.latency_ms}) less jitter_ms is {least_ms}"
            text += f"; no probe could tell less than {PROVABLE_MS} ms"
            return {"jitter_ms" if self.jitter_ms else "latency_ms": text}
        try:
            check_links(self.links, topology, queue_names(workload), workload)
        except TargetError as error:
            return {"links": str(error)}
        return {}

    def touches_links(self, topology: Topology) -> frozenset[Link]:
        return fixed_links(self.links, topology)

    def touches_processes(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002 - it acts on no process
        return frozenset()

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> LatencyInjection:  # noqa: ARG002
        return LatencyInjection(arena, resolved_links(self.links, resolver), self.latency_ms, self.jitter_ms)


@dataclass(frozen=True)
class LatencyInjection:
    arena: Arena
    links: frozenset[Link]
    latency_ms: int
    jitter_ms: int

    @property
    def effect(self) -> Effect:
        return Effect(links_slow=self.links)

    @property
    def _least_ms(self) -> int:
        return self.latency_ms - self.jitter_ms

    def inject(self) -> None:
        self.arena.cluster.links.delay(self.links, latency_ms=self.latency_ms, jitter_ms=self.jitter_ms)

    def heal(self) -> None:
        self.arena.cluster.links.undelay(self.links)

    def prove(self, *, timeout_s: float) -> Proof:
        """A probe through each link took at least the latency, less its jitter."""
        bare = unproxied(self.arena, self.links)
        if bare is not None:
            return bare
        trips: dict[Link, float | None] = {}

        def unproven() -> list[str]:
            trips.update(self._probes())
            return sorted(f"{link} ({_told(ms)})" for link, ms in trips.items() if ms is None or ms < self._least_ms)

        still = left_over(unproven, timeout_s=timeout_s, what="slow probes")
        if still or not trips:
            return Proof(False, f"no probe took {self._least_ms} ms on {', '.join(still) or 'any link'}")
        answered = [ms for ms in trips.values() if ms is not None]
        return Proof(True, f"probes took {min(answered):.0f} to {max(answered):.0f} ms on {len(answered)} links")

    def prove_healed(self) -> Proof:
        """A probe through each link is answered sooner again."""

        def slow() -> list[str]:
            trips = self._probes()
            return sorted(f"{link} ({_told(ms)})" for link, ms in trips.items() if ms is None or ms >= self._least_ms)

        still = left_over(slow, timeout_s=FAST_AGAIN_WITHIN_S, what="links to be fast again")
        if still:
            return Proof(False, f"not seen to be fast again: {', '.join(still)}")
        return Proof(True, f"probes are faster than {self._least_ms} ms again")

    def _probes(self) -> dict[Link, float | None]:
        """What a probe takes on each link, all at once; None without an answer. Left out are the links that another
        fault has silenced: cut ones, and those whose target does not run."""
        cluster = self.arena.cluster
        there = [link for link in sorted(self.links) if self.arena.is_answered(link)]
        timeout_s = (self.latency_ms + self.jitter_ms) * 2 / 1000 + PROBE_MARGIN_S
        with ThreadPoolExecutor(max(1, len(there))) as pool:
            trips = pool.map(lambda link: cluster.links.probe_ms(link, timeout_s=timeout_s), there)
            return dict(zip(there, trips, strict=True))


def _told(ms: float | None) -> str:
    return "no answer" if ms is None else f"{ms:.0f} ms"
