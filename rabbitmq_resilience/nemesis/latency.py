"""Slow links: each byte on a directed link arrives later, by a latency and a jitter around it."""

from __future__ import annotations

import math
import time
from collections.abc import Collection, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import Annotated, ClassVar, Literal

from pydantic import ConfigDict, Field, model_validator

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link, balancers_of, nodes_treating
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.carrying import Healing
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof, left_over
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.silence import named, unproxied
from rabbitmq_resilience.nemesis.targets import (
    Resolver,
    TargetError,
    check_links,
    fixed_links,
    resolved_links,
    split_links,
)
from rabbitmq_resilience.nemesis.two_forms import BETWEEN_SCHEMA, as_links, either_of
from rabbitmq_resilience.workload.workload_base import WorkloadBase

#: This many probes over each link must all be slow: no busy machine is slow so regularly, nor at all for ``LONG_MS``.
PROBES_MIN, PROBES_MIN_LONG = 6, 3
LONG_MS = 500
PROBES_AT_ONCE = 3
_THREADS_MAX = 64
#: How long a look takes in addition to the latency.
LOOK_S = 0.5
#: How much the clocks of two kernels' records may differ.
TOLERANCE_MS = 1
#: A broker takes some milliseconds to answer a probe even without any latency.
PROVABLE_MS = 10
#: How long a busy broker may take to answer a probe, in addition to the time on the links.
PROBE_MARGIN_S = 2.0
#: How long a broker waits for the first bytes after connecting: from another broker (Erlang's net_setuptime) or from a
#: client (handshake_timeout). It does not answer what arrives later.
PEER_WAITED_FOR_MS, CLIENT_WAITED_FOR_MS = 7000, 10_000
#: How much earlier than that a probe must arrive.
ARRIVES_BEFORE_MS = 500


class Latency(ScheduledFault):
    """``links`` is an expression such as ``zone:a -> zone:c``, or ``a1 <-> rest`` for both directions. ``between`` of a
    ``partition`` means the same. The latency, its jitter and the delay of the topology's network are together at most
    6500 ms between brokers and 9500 ms for clients. Brokers do not answer a peer that is silent for longer, so no probe
    could show the effect."""

    fault: Literal["latency"] = "latency"
    links: str
    latency_ms: Annotated[int, Field(ge=1, le=60_000)]
    jitter_ms: Annotated[int, Field(ge=0, le=60_000)] = 0

    model_config = ConfigDict(json_schema_extra=partial(either_of, own="links", other="between", more=BETWEEN_SCHEMA))

    _two_forms = model_validator(mode="before")(as_links)

    acts_on: ClassVar[str] = "links"

    example: ClassVar[str] = 'links: "zone:a <-> zone:b", latency_ms: 80, jitter_ms: 20'

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        least_ms = self.latency_ms - self.jitter_ms
        if least_ms < PROVABLE_MS:
            text = f"latency_ms ({self.latency_ms}) less jitter_ms is {least_ms}"
            text += f"; no probe could show less than {PROVABLE_MS} ms"
            return {"jitter_ms" if self.jitter_ms else "latency_ms": text}
        try:
            check_links(self.links, topology, workload.queue_names, workload)
        except TargetError as error:
            return {"links": str(error)}
        always = map(topology.delay_of, fixed_links(self.links, topology))
        always_s = max((delay.round_trip_s for delay in always if delay), default=0.0)
        if least_ms <= 1000 * always_s:
            text = f"the topology's network takes up to {1000 * always_s:g} ms for a round trip on these links"
            return {"latency_ms": f"{text}; make latency_ms less jitter_ms more than that, or no probe sees it heal"}
        return self._too_late(topology)

    def _too_late(self, topology: Topology) -> Mapping[str, str]:
        """Return what is wrong if a probe would arrive after its broker stops waiting for it; empty if nothing is."""
        for link in sorted(fixed_links(self.links, topology)):
            always = topology.delay_of(link)
            there_ms = always.latency_ms + always.jitter_ms if always else 0
            waited_ms = PEER_WAITED_FOR_MS if link.client is None else CLIENT_WAITED_FOR_MS
            most_ms = waited_ms - ARRIVES_BEFORE_MS - there_ms
            if self.latency_ms + self.jitter_ms > most_ms:
                text = f"with its jitter at most {most_ms} ms are possible on {link}"
                return {
                    "latency_ms": f"{text}: a broker answers no peer that is silent for {waited_ms} ms after connecting"
                }
        return {}

    def footprint(self, topology: Topology) -> Footprint:
        """Return the links, and how fast they are with their way back: a slow way back of a probe looks the same as a
        slow link."""
        links = fixed_links(self.links, topology)
        between_brokers = {link for link in links if link.client is None}
        fast = {f"how fast {min(link, link.back)} is, or its way back" for link in links}
        return Footprint(
            targets=tuple(split_links(self.links)[0]),
            links=links,
            slow_s=self._slow_s,
            resources=balancers_of(links) | fast,
            acts={"delay": nodes_treating(between_brokers)} if between_brokers else {},
        )

    @property
    def _slow_s(self) -> float:
        return (self.latency_ms + self.jitter_ms) / 1000

    def can_be_seen(self, *, alone_s: float, slow_s: float) -> bool:  # noqa: ARG002 - no other step slows its links
        """Return whether there is time for all probes, which may be slow both ways."""
        looks = PROBES_MIN_LONG if self.latency_ms - self.jitter_ms >= LONG_MS else PROBES_MIN
        return alone_s >= LOOK_S + math.ceil(looks / PROBES_AT_ONCE) * 2 * self._slow_s

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> LatencyInjection:  # noqa: ARG002 - one form for all
        return LatencyInjection(context, resolved_links(self.links, resolver), self.latency_ms, self.jitter_ms)


@dataclass
class LatencyInjection:
    context: FaultContext
    links: frozenset[Link]
    latency_ms: int
    jitter_ms: int
    _trips: dict[Link, Trips] = field(default_factory=dict, init=False)

    @property
    def effect(self) -> Effect:
        return Effect(links_slow=self.links, slow_s=(self.latency_ms + self.jitter_ms) / 1000)

    def inject(self) -> None:
        self.context.at_work.slow(self.context.step, self.links, at_most_ms=self.latency_ms + self.jitter_ms)
        self.context.cluster.links.delay(self.links, latency_ms=self.latency_ms, jitter_ms=self.jitter_ms)

    def heal(self) -> None:
        self.context.cluster.links.undelay(self.links)

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that every probe on each link took at least the latency less its jitter, and that one past the
        proxies took less. A busy machine slows both, and not every time."""
        bare = unproxied(self.context, self.links)
        if bare is not None:
            return bare
        self._trips = {link: Trips(self._least_ms(link)) for link in self.links}

        def unproven() -> list[str]:
            left = [link for link in sorted(self.links) if not self._trips[link].are_slow]
            for link, trips in self._look(left).items():
                self._trips[link].add(*trips)
            if any(self._trips[link].too_fast_ms is not None for link in self.links):
                return []
            return [f"{link} ({self._trips[link]})" for link in left if not self._trips[link].are_slow]

        still = left_over(unproven, timeout_s=timeout_s, what="slow probes")
        trips = sorted(self._trips.items())
        fast = [f"{ms:.0f} ms on {link}" for link, one in trips if (ms := one.too_fast_ms) is not None]
        if fast:
            return Proof(False, f"a probe took no longer than {', '.join(fast)}")
        slow = [link for link in sorted(self.links) if self._trips[link].are_slow]
        away = [link for link in self.links if link not in slow and self._trips[link].broker_was_away]
        if not slow or len(slow) + len(away) < len(self.links):
            return Proof(False, f"not seen to be slow: {', '.join(still[:4])}")
        rest = f"; the brokers of {named(away)} were away" if away else ""
        return Proof(True, f"{', '.join(f'{link}: {self._trips[link]}' for link in slow[:4])}{rest}")

    def prove_healed(self) -> Proof:
        """Return a proof that a probe over each link is answered sooner again."""

        def fast(links: Collection[Link]) -> list[Link]:
            trips = self._probes(links, direct=False)
            return [link for link, took_ms in trips.items() if min(took_ms, default=math.inf) < self._least_ms(link)]

        return Healing(self.context, self.links).prove(fast, f"in less than {self._fastest_ms} ms a probe crosses")

    @property
    def _fastest_ms(self) -> int:
        return self.latency_ms - self.jitter_ms

    def _least_ms(self, link: Link) -> int:
        """Return the least time that a probe takes. Its answer comes back over the other direction."""
        return self._fastest_ms * (2 if link.back in self.links else 1)

    def _look(self, links: Collection[Link]) -> dict[Link, tuple[bool, list[float], list[float]]]:
        """Return for each link whether its broker was there, and the times of probes over it and past its proxy. Links
        that another step may hide are left out."""
        began_s, context = time.monotonic(), self.context
        there = [link for link in links if context.is_there(link)]
        over, past = (self._probes(there, direct=direct) for direct in (False, True))
        own = [link for link in links if not self._hidden(link, began_s)]
        return {x: (x in there and context.is_there(x), over.get(x, []), past.get(x, [])) for x in own}

    def _hidden(self, link: Link, since_s: float) -> bool:
        slowing = self.context.at_work.slowing(link, other_than=self.context.step, since_s=since_s)
        return bool(slowing or self.context.silencing(link, since_s=since_s))

    def _probes(self, links: Collection[Link], *, direct: bool) -> dict[Link, list[float]]:
        """Return the times of some probes on each link, all sent at once. Probes without an answer are left out."""
        timeout_s = (self.latency_ms + self.jitter_ms) * 2 / 1000 + PROBE_MARGIN_S
        probe_ms = self.context.cluster.links.probe_ms
        took: dict[Link, list[float]] = {link: [] for link in links}
        asked = [link for link in links for _ in range(PROBES_AT_ONCE)]
        with ThreadPoolExecutor(min(_THREADS_MAX, max(1, len(asked)))) as pool:
            trips = pool.map(lambda link: probe_ms(link, timeout_s=timeout_s, direct=direct), asked)
            for link, ms in zip(asked, trips, strict=True):
                took[link] += [] if ms is None else [ms]
        return took


@dataclass
class Trips:
    """The times of probes over one link, and past its proxy."""

    least_ms: int
    over_ms: list[float] = field(default_factory=list)
    past_ms: list[float] = field(default_factory=list)
    _was_there: bool = False
    _looks: int = 0

    def add(self, there: bool, over_ms: Collection[float], past_ms: Collection[float]) -> None:
        self._looks += 1
        self._was_there |= there
        self.over_ms += over_ms
        self.past_ms += past_ms

    @property
    def too_fast_ms(self) -> float | None:
        fastest_ms = min(self.over_ms, default=math.inf)
        return fastest_ms if fastest_ms < self.least_ms - TOLERANCE_MS else None

    @property
    def are_slow(self) -> bool:
        demanded = PROBES_MIN if self.least_ms < LONG_MS else PROBES_MIN_LONG
        enough = len(self.over_ms) >= demanded and len(self.past_ms) > 0
        return enough and self.too_fast_ms is None and min(self.past_ms) < self.least_ms

    @property
    def broker_was_away(self) -> bool:
        return self._looks > 0 and not self._was_there

    def __str__(self) -> str:
        if not self.over_ms or not self.past_ms:
            return "no answer" if self._looks else "hidden by another step"
        ranges = (f"{min(some):.0f} to {max(some):.0f} ms" for some in (self.over_ms, self.past_ms))
        return "{} probes took {}, past the proxy {}".format(len(self.over_ms), *ranges)
