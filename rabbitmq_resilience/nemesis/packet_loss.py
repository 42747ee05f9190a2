"""Packets are lost on their way from one broker to another, and TCP sends them again."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar, Literal

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.packets import By, Disturbance
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.packet_faults import (
    PacketCounts,
    PacketStep,
    Percent,
    lossy_effect,
    probes_to_lose_some,
)
from rabbitmq_resilience.workload.workload_model import Workload


class PacketLoss(PacketStep):
    """With ``by: iptables`` the receiver drops packets, in whole percents. With ``by: netem`` the sender drops them, in
    hundredths of a percent; its kernel may notice that (tc-netem(8))."""

    fault: Literal["packet_loss"] = "packet_loss"
    percent: Percent
    by: By = "iptables"

    example: ClassVar[str] = 'links: "zone:a -> zone:c", percent: 5'

    @property
    def disturbance(self) -> Disturbance:
        if self.by == "netem":
            return Disturbance("netem", "loss", {"percent": f"{self.percent:.2f}"})
        return Disturbance("iptables", "loss", {"mode": "random", "probability": f"{self.percent / 100:.2f}"})

    @property
    def probes(self) -> int:
        return probes_to_lose_some(self.percent)

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        problems = super().problems(topology, workload)
        if self.by == "iptables" and self.percent % 1:
            whole = max(1, round(self.percent))
            text = f"{self.percent:g}: Pumba gives iptables whole percents; write {whole}, or by: netem"
            return {"percent": text, **problems}
        return problems

    def effect_on(self, links: frozenset[Link]) -> Effect:
        return lossy_effect(links, percent=self.percent)

    def unseen(self, seen: PacketCounts) -> str:
        if self.percent == 100 and seen.answers_ms:
            return f"{len(seen.answers_ms)} of {seen.sent} probes were answered"
        return "" if seen.lost else f"all of {seen.sent} probes were answered"
