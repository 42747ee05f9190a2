"""Inject and prove changes of packets, which lose, repeat, damage or delay what brokers send.

The kernel does it in containers, on request of Pumba, and TCP sees it as on a bad network. Links that carry a proxy are
excluded: a broker sends over them to the proxy, which has its own connection to the other broker.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.packets import DisturbedPackets, PacketActs
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over
from rabbitmq_resilience.nemesis.offered import offered
from rabbitmq_resilience.nemesis.packet_changes import PacketChange, PacketCounts

#: A probe must be answered before TCP sends the lost first packet of its connection again, which is after a second.
ANSWERED_WITHIN_S = 0.9
WHOLE_AGAIN_WITHIN_S = 30.0


@dataclass
class PacketInjection:
    context: FaultContext
    change: PacketChange
    links: frozenset[Link]
    for_s: float
    _disturbed: DisturbedPackets | None = field(default=None, init=False)

    @property
    def effect(self) -> Effect:
        return self.change.effect_on(self.links)

    def inject(self) -> None:
        self._disturbed = self._packets.disturb(self.links, self.change.disturbance, for_s=self.for_s)

    def heal(self) -> None:
        if self._disturbed is not None:
            self._disturbed.close()

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that packets met the kernel's rule on every link, and that probes show what happened to
        them."""
        assert self._disturbed is not None, "proven once it is injected"
        disturbed, sent, refused = self._disturbed, Counter[Link](), Counter[str]()
        took: dict[Link, list[float]] = {link: [] for link in self.links}
        seen: dict[Link, PacketCounts] = {}

        def unproven() -> list[str]:
            refused.subtract(self._refusals())
            for link, answers_ms in self._knock().items():
                sent[link] += self.change.probes
                refused[link.target] -= self.change.probes
                took[link] += answers_ms
            refused.update(self._refusals())
            met = disturbed.met()
            seen.update({x: PacketCounts(sent[x], took[x], met.get(x, 0), refused[x.target]) for x in self.links})
            return [f"{link}: {text}" for link in sorted(seen) if (text := _complaint(self.change, seen[link]))]

        still = left_over(unproven, timeout_s=timeout_s, what="disturbed packets")
        return Proof(False, "; ".join(still)) if still else Proof(True, _description(seen))

    def prove_healed(self) -> Proof:
        """Return a proof that every probe over each link is answered again. Healing itself has checked that no rule is
        left."""

        def lossy() -> list[str]:
            rounds = self._knock().items()
            return [f"{self.change.probes - len(ms)} on {link}" for link, ms in rounds if len(ms) < self.change.probes]

        still = left_over(lossy, timeout_s=WHOLE_AGAIN_WITHIN_S, what="all probes to be answered")
        if still:
            return Proof(False, f"of {self.change.probes} probes some are still lost: {', '.join(still)}")
        return Proof(True, f"no rule is left, and all of {self.change.probes} probes over each link are answered")

    def _knock(self) -> Mapping[Link, Sequence[float]]:
        """Return the answer times of a round of probes. Links from a node that does not run, or to one that is gone,
        are left out."""
        process = self.context.cluster.process
        there = [x for x in sorted(self.links) if process(x.source) == "running" and process(x.target) != "gone"]
        change = self.change
        return self._packets.try_connections(
            there, times=change.probes, at_once=change.probes_at_once, wait_s=ANSWERED_WITHIN_S
        )

    def _refusals(self) -> Mapping[str, int]:
        """Return how many connections the kernel of each target has refused by now. It refuses all probes."""
        targets = {link.target for link in self.links if self.context.cluster.process(link.target) == "running"}
        return {node: self._packets.refusals(node) for node in targets}

    @property
    def _packets(self) -> PacketActs:
        return offered(self.context.cluster, PacketActs)


def _complaint(change: PacketChange, seen: PacketCounts) -> str:
    if not seen.sent:
        return "nothing could be sent, as a node was away"
    if not seen.met:
        return f"no packet has met the rule; {seen.lost} of {seen.sent} probes were lost"
    return change.unseen(seen)


def _description(seen: Mapping[Link, PacketCounts]) -> str:
    rows = []
    for link, of in sorted(seen.items()):
        took = f", answers took {min(of.answers_ms):.0f} to {max(of.answers_ms):.0f} ms" if of.answers_ms else ""
        rows.append(f"{link}: {of.met} packets met, {of.lost} of {of.sent} probes lost{took}")
    return "; ".join(rows)
