"""Packets arrive twice, as if a network had found a second way: TCP discards the second one."""

from __future__ import annotations

from typing import ClassVar, Literal

from rabbitmq_resilience.model.packets import Disturbance
from rabbitmq_resilience.nemesis.packet_faults import PacketCounts, PacketStep, Percent, probes_to_lose_some


class PacketDuplicate(PacketStep):
    """``percent`` of all packets are sent twice."""

    fault: Literal["packet_duplicate"] = "packet_duplicate"
    percent: Percent

    example: ClassVar[str] = 'links: "zone:a -> zone:c", percent: 5'

    @property
    def disturbance(self) -> Disturbance:
        return Disturbance("netem", "duplicate", {"percent": f"{self.percent:.2f}"})

    @property
    def probes(self) -> int:
        return probes_to_lose_some(self.percent)

    def unseen(self, seen: PacketCounts) -> str:
        return "" if seen.repeated > 0 else f"the other end has not answered more than the {seen.sent} probes"
