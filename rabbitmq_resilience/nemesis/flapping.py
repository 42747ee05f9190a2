"""A link that comes and goes: it is cut for the first half of each period, and whole for the second."""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.carrying import prove_links_carry
from rabbitmq_resilience.nemesis.fault import FaultContext, LateProof, Proof
from rabbitmq_resilience.nemesis.partition_sides import DirectedSidesStep
from rabbitmq_resilience.nemesis.silence import Silence, unproxied
from rabbitmq_resilience.nemesis.targets import Resolver, links_between
from rabbitmq_resilience.workload.workload_base import WorkloadBase

#: With fewer cuts than this part of those that the period demands, the fault is not the one that was asked for.
CUTS_RATIO_MIN = 0.8
#: A cut that begins later than this part of its period is left out: it would be over as soon as it began.
LATE_PART_MAX = 0.25
#: Probes cost the brokers work, so only a few of the cuts are watched, spread over the whole time.
WATCHED_CUTS = 5


class Flapping(DirectedSidesStep):
    """A ``partition`` with a period. ``between`` and ``one_way`` are as in ``partition``. ``for_s`` holds two periods
    or more."""

    fault: Literal["flapping"] = "flapping"
    period_s: Annotated[float, Field(ge=0.1, le=3600)]

    example: ClassVar[str] = 'between: ["zone:a", "zone:b"], period_s: 2'

    def problems(self, topology: Topology, workload: WorkloadBase) -> Mapping[str, str]:
        found = super().problems(topology, workload)
        if 2 * self.period_s > self.for_s:
            text = f"{self.period_s:g} s is over half of for_s ({self.for_s:g}); for a single cut use a partition"
            return {"period_s": text, **found}
        return found

    def can_be_seen(self, *, alone_s: float, slow_s: float) -> bool:
        """Return whether the shortest cut, which begins late and lasts a quarter of a period, can be seen."""
        return alone_s >= self.for_s and slow_s <= self.period_s / 4

    def prepare(self, context: FaultContext, resolver: Resolver, *, for_s: float) -> FlappingInjection:
        links = links_between(resolver.sides(self.between), one_way=self.one_way)
        return FlappingInjection(context, links, self.period_s, for_s)


@dataclass
class FlappingInjection:
    """Cut and restore the links in a thread of its own, from ``inject`` to ``heal``."""

    context: FaultContext
    links: frozenset[Link]
    period_s: float
    for_s: float
    _ended: threading.Event = field(default_factory=threading.Event, init=False)
    _thread: threading.Thread | None = field(default=None, init=False)
    _cuts: int = field(default=0, init=False)
    _begun_s: float = field(default=0.0, init=False)
    _ended_s: float = field(default=0.0, init=False)
    _watched: list[Silence] = field(default_factory=list, init=False)
    _failure: Exception | None = field(default=None, init=False)

    @cached_property
    def effect(self) -> Effect:
        return Effect(links_cut=self.links, intermittent=True)

    def inject(self) -> None:
        self._begun_s = time.monotonic()
        thread = threading.Thread(target=self._flap, name="flapping")
        thread.start()
        self._thread = thread

    def heal(self) -> None:
        """End the cuts. Each cut restores its links itself, even if something failed."""
        self._ended.set()
        if self._thread is not None:
            self._thread.join()
        self._ended_s = time.monotonic()
        if self._failure is not None:
            raise self._failure

    def prove(self, *, timeout_s: float) -> Proof | LateProof:  # noqa: ARG002 - the proof follows healing
        return unproxied(self.context, self.links) or self._prove_all

    def prove_healed(self) -> Proof:
        return prove_links_carry(self.context, self.links)

    def _flap(self) -> None:
        try:
            for period in range(self._periods):
                begins_s = self._begun_s + period * self.period_s
                if self._ended.wait(max(0.0, begins_s - time.monotonic())):
                    return
                if time.monotonic() < begins_s + LATE_PART_MAX * self.period_s:
                    self._cut_once(until_s=begins_s + self.period_s / 2, watched=period % self._watched_every == 0)
        except Exception as error:  # ``heal`` raises it in the thread that journals
            self._failure = error

    def _cut_once(self, *, until_s: float, watched: bool) -> None:
        cuts, links = self.context.cuts, self.context.cluster.links
        silence = Silence(self.context, self.links) if watched else None
        try:
            cuts.add(self.links, links.cut)
            self._cuts += 1
            if silence is not None:
                silence.begin()
                self._watched.append(silence)
            self._ended.wait(max(0.0, until_s - time.monotonic()))
        finally:
            if silence is not None:
                silence.end()
            cuts.remove(self.links, links.restore)

    @property
    def _periods(self) -> int:
        return math.ceil(self.for_s / self.period_s)

    @property
    def _watched_every(self) -> int:
        return max(1, round(self.for_s / self.period_s / WATCHED_CUTS))

    def _prove_all(self) -> Proof:
        """Return a proof that most cuts that the period demands were made, and that most watched ones held back
        probes."""
        whole = int((self._ended_s - self._begun_s) / self.period_s)
        demanded = max(1, min(whole, self._periods))  # it may be healed late, when nothing is cut any more
        made = f"{self._cuts} cuts in {self._ended_s - self._begun_s:.1f} s"
        if self._cuts < CUTS_RATIO_MIN * demanded:
            return Proof(False, f"{made}, where a period of {self.period_s:g} s demands {demanded}")
        if not self._watched:
            return Proof(False, f"{made}, and none of those that were to be watched")
        proofs = [silence.prove() for silence in self._watched]
        seen = sum(proof.proven for proof in proofs)
        if 2 * seen <= len(proofs):
            return Proof(False, f"{made}; {next(p.detail for p in proofs if not p.proven)}")
        return Proof(True, f"{made}; probes were held back in {seen} of the {len(proofs)} that were watched")
