"""Slow links: each byte on a directed link arrives later, by a latency and a jitter around it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from faults.fault import Arena, Effect, Proof, left_over
from faults.step import Step
from faults.targets import Resolver, TargetError, check_links, fixed_links, resolved_links
from topologies.spec import Link, Topology
from workloads.queues import queue_names
from workloads.spec import Workload

FAST_AGAIN_WITHIN_S = 20.0


class Latency(Step):
    """``links`` is an expression such as ``zone:a -> zone:c``, or ``a1 <-> b1`` for both directions."""

    fault: Literal["latency"] = "latency"
    links: str
    latency_ms: Annotated[int, Field(ge=1, le=60_000)]
    jitter_ms: Annotated[int, Field(ge=0, le=60_000)] = 0

    acts_on: ClassVar[str] = "links"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        if self.jitter_ms > self.latency_ms:
            return {
                "jitter_ms": f"{self.jitter_ms} is over latency_ms ({self.latency_ms}); no byte arrives before it left"
            }
        try:
            check_links(self.links, topology, queue_names(workload))
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
        bare = sorted(str(link) for link in self.links - self.arena.cluster.links.proxied)
        if bare:
            return Proof(False, f"{', '.join(bare[:4])}: no proxy there, nothing was delayed")
        trips = {link: self._probe(link, timeout_s=timeout_s) for link in sorted(self.links)}
        fast = [f"{link} ({ms:.0f} ms)" for link, ms in trips.items() if ms is not None and ms < self._least_ms]
        if fast:
            return Proof(False, f"a probe was faster than {self._least_ms} ms on {', '.join(fast)}")
        answered = [ms for ms in trips.values() if ms is not None]
        if not answered:
            return Proof(False, "no probe was answered on any of the links")
        silent = f", {len(trips) - len(answered)} unanswered" if len(answered) < len(trips) else ""
        return Proof(
            True, f"probes took {min(answered):.0f} to {max(answered):.0f} ms on {len(answered)} links{silent}"
        )

    def prove_healed(self) -> Proof:
        def slow() -> list[str]:
            trips = {link: self._probe(link, timeout_s=1.0) for link in self.links if not self.arena.cuts.is_cut(link)}
            return sorted(
                f"{link} ({ms:.0f} ms)" for link, ms in trips.items() if ms is not None and ms >= self._least_ms
            )

        still = left_over(slow, timeout_s=FAST_AGAIN_WITHIN_S, what="links to be fast again")
        if still:
            return Proof(False, f"still slow: {', '.join(still)}")
        return Proof(True, f"probes are faster than {self._least_ms} ms again")

    def _probe(self, link: Link, *, timeout_s: float) -> float | None:
        slowest_s = (self.latency_ms + self.jitter_ms) * 4 / 1000 + 1.0
        return self.arena.cluster.links.probe_ms(link, timeout_s=min(slowest_s, max(timeout_s, 1.0)))
