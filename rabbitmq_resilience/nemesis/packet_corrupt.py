"""Packets are damaged on their way from one broker to another: a bit in each is wrong, and checksums show it."""

from __future__ import annotations

from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.packets import Disturbance
from rabbitmq_resilience.nemesis.packet_faults import (
    PacketCounts,
    PacketStep,
    Percent,
    lossy_effect,
    probes_to_lose_some,
)


class PacketCorrupt(PacketStep):
    """The receiving kernel drops packets with a wrong checksum, so the broker sees the same as with a loss."""

    fault: Literal["packet_corrupt"] = "packet_corrupt"
    percent: Percent

    example: ClassVar[str] = 'links: "zone:a -> zone:c", percent: 1'

    @property
    def disturbance(self) -> Disturbance:
        return Disturbance("netem", "corrupt", {"percent": f"{self.percent:.2f}"})

    @property
    def probes(self) -> int:
        return probes_to_lose_some(self.percent)

    def effect_on(self, links: frozenset[Link]) -> Effect:
        return lossy_effect(links, percent=min(self.percent, 99))

    def unseen(self, seen: PacketCounts) -> str:
        return "" if seen.lost else f"all of {seen.sent} probes arrived unharmed"
