"""Describe what may happen to packets between brokers: how the kernel does it, and how probes show it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median
from typing import Protocol

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.packets import By, Disturbance

#: How many packets are sent over each link in a round, to see what happens to them.
PROBES_MIN, PROBES_MAX = 100, 2000
#: More probes at once would be late on a busy machine.
PROBES_AT_ONCE = 25
#: From this loss on TCP stands still for seconds now and then. The guarantees are those for a cut that comes and goes.
STALLS_FROM_PERCENT = 10
#: The first packet of a connection, with Ethernet's header and TCP's usual options.
PROBE_BITS = 74 * 8
#: About how long all probes of a round together take on the line: long enough not to be mistaken for a busy machine.
ROUND_MS = 400
RATE_MAX_KBIT_PER_S = PROBES_MAX * PROBE_BITS // ROUND_MS


@dataclass(frozen=True)
class PacketCounts:
    """What happened to the packets of one link: the probes sent, the times of the answers, and the number of packets
    that met the kernel's rule, probes or not."""

    sent: int
    answers_ms: Sequence[float]
    met: int
    #: How many answers the target's kernel gave beyond all probes sent to it, over any link.
    repeated: int = 0

    @property
    def lost(self) -> int:
        return self.sent - len(self.answers_ms)


class PacketChange(Protocol):
    """A change of packets. ``probes``: how many a round needs to show it; ``probes_at_once``: how many of them are sent
    at a time."""

    @property
    def disturbance(self) -> Disturbance: ...

    @property
    def probes(self) -> int: ...

    @property
    def probes_at_once(self) -> int: ...

    def effect_on(self, links: frozenset[Link]) -> Effect:
        """Return the effect of the change on the cluster."""
        ...

    def unseen(self, seen: PacketCounts) -> str:
        """Return why the change does not show; empty if it does."""
        ...


@dataclass(frozen=True)
class PacketLoss:
    """Packets are lost, and TCP sends them again."""

    percent: float
    by: By

    probes_at_once = PROBES_AT_ONCE

    @property
    def disturbance(self) -> Disturbance:
        if self.by == "netem":
            return Disturbance("netem", "loss", {"percent": f"{self.percent:.2f}"})
        return Disturbance("iptables", "loss", {"mode": "random", "probability": f"{self.percent / 100:.2f}"})

    @property
    def probes(self) -> int:
        return _probes_to_lose_some(self.percent)

    def effect_on(self, links: frozenset[Link]) -> Effect:
        return _lossy_effect(links, percent=self.percent)

    def unseen(self, seen: PacketCounts) -> str:
        if self.percent == 100 and seen.answers_ms:
            return f"{len(seen.answers_ms)} of {seen.sent} probes were answered"
        return "" if seen.lost else f"all of {seen.sent} probes were answered"


@dataclass(frozen=True)
class PacketDelay:
    """Packets arrive later, including those that set up connections, which ``latency`` with its proxy cannot delay."""

    delay_ms: int
    jitter_ms: int

    probes = PROBES_MIN
    probes_at_once = PROBES_AT_ONCE

    @property
    def disturbance(self) -> Disturbance:
        times = {"time": str(self.delay_ms), "jitter": str(self.jitter_ms), "correlation": "0"}
        return Disturbance("netem", "delay", times)

    def effect_on(self, links: frozenset[Link]) -> Effect:
        return Effect(links_slow=links, slow_s=(self.delay_ms + self.jitter_ms) / 1000)

    def unseen(self, seen: PacketCounts) -> str:
        least_ms = min(seen.answers_ms, default=0.0)
        return "" if least_ms >= self.delay_ms - self.jitter_ms else f"a probe was answered after {least_ms:.0f} ms"


@dataclass(frozen=True)
class PacketRate:
    """Packets wait for each other, as on a line of low bandwidth."""

    kbit_per_s: int

    @property
    def disturbance(self) -> Disturbance:
        return Disturbance("netem", "rate", {"rate": f"{self.kbit_per_s}kbit"})

    @property
    def probes(self) -> int:
        return max(PROBES_MIN, math.ceil(ROUND_MS * self.kbit_per_s / PROBE_BITS))

    @property
    def probes_at_once(self) -> int:
        return self.probes

    def effect_on(self, links: frozenset[Link]) -> Effect:
        return Effect(links_slow=links)

    def unseen(self, seen: PacketCounts) -> str:
        """Return why the rate does not show. Probes that wait in line are answered one after another, so the middle one
        is answered after half of the round."""
        middle_ms = median([*seen.answers_ms, *[math.inf] * seen.lost])
        return "" if middle_ms >= ROUND_MS / 4 else f"half of the probes were answered within {middle_ms:.0f} ms"


@dataclass(frozen=True)
class PacketCorruption:
    """A bit in a packet is wrong. The receiving kernel drops packets with a wrong checksum, so the broker sees the same
    as with a loss."""

    percent: float

    probes_at_once = PROBES_AT_ONCE

    @property
    def disturbance(self) -> Disturbance:
        return Disturbance("netem", "corrupt", {"percent": f"{self.percent:.2f}"})

    @property
    def probes(self) -> int:
        return _probes_to_lose_some(self.percent)

    def effect_on(self, links: frozenset[Link]) -> Effect:
        return _lossy_effect(links, percent=min(self.percent, 99))

    def unseen(self, seen: PacketCounts) -> str:
        return "" if seen.lost else f"all of {seen.sent} probes arrived unharmed"


@dataclass(frozen=True)
class PacketDuplication:
    """Packets arrive twice, as if a network had found a second way: TCP discards the second one."""

    percent: float

    probes_at_once = PROBES_AT_ONCE

    @property
    def disturbance(self) -> Disturbance:
        return Disturbance("netem", "duplicate", {"percent": f"{self.percent:.2f}"})

    @property
    def probes(self) -> int:
        return _probes_to_lose_some(self.percent)

    def effect_on(self, links: frozenset[Link]) -> Effect:
        return Effect(links_slow=links)

    def unseen(self, seen: PacketCounts) -> str:
        return "" if seen.repeated > 0 else f"the other end has not answered more than the {seen.sent} probes"


def _probes_to_lose_some(percent: float) -> int:
    """Return how many probes to send so that about five of them are lost."""
    return min(PROBES_MAX, max(PROBES_MIN, math.ceil(500 / percent)))


def _lossy_effect(links: frozenset[Link], *, percent: float) -> Effect:
    if percent < STALLS_FROM_PERCENT:
        return Effect(links_slow=links)
    return Effect(links_cut=links, intermittent=percent < 100)
