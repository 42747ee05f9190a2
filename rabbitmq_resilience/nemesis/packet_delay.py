"""Packets arrive later, including those that set up connections, which ``latency`` with its proxy cannot delay."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.packets import Disturbance
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.latency import PROVABLE_MS
from rabbitmq_resilience.nemesis.packet_faults import ANSWERED_WITHIN_S, PacketCounts, PacketStep
from rabbitmq_resilience.workload.workload_model import Workload

#: Both ways may be slow, and no probe is waited for any longer than ``ANSWERED_WITHIN_S``.
DELAY_MAX_MS = int(ANSWERED_WITHIN_S * 1000 / 2)


class PacketDelay(PacketStep):
    """Each packet takes ``delay_ms`` longer. ``jitter_ms`` varies that up and down, so some packets overtake others."""

    fault: Literal["packet_delay"] = "packet_delay"
    delay_ms: Annotated[int, Field(ge=PROVABLE_MS, le=DELAY_MAX_MS)]
    jitter_ms: Annotated[int, Field(ge=0, le=DELAY_MAX_MS)] = 0

    example: ClassVar[str] = 'links: "zone:a <-> zone:c", delay_ms: 50, jitter_ms: 10'

    @property
    def disturbance(self) -> Disturbance:
        times = {"time": str(self.delay_ms), "jitter": str(self.jitter_ms), "correlation": "0"}
        return Disturbance("netem", "delay", times)

    def effect_on(self, links: frozenset[Link]) -> Effect:
        return Effect(links_slow=links, slow_s=(self.delay_ms + self.jitter_ms) / 1000)

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        problems = super().problems(topology, workload)
        least_ms = self.delay_ms - self.jitter_ms
        if least_ms < PROVABLE_MS:
            text = f"delay_ms less jitter_ms is {least_ms}; no probe could show less than {PROVABLE_MS} ms"
            return {"jitter_ms": text, **problems}
        return problems

    def unseen(self, seen: PacketCounts) -> str:
        least_ms = min(seen.answers_ms, default=0.0)
        return "" if least_ms >= self.delay_ms - self.jitter_ms else f"a probe was answered after {least_ms:.0f} ms"
