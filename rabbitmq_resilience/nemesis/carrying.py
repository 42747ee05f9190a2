"""Proofs that links carry again once they are healed."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection
from contextlib import suppress
from dataclasses import dataclass, field

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof
from rabbitmq_resilience.nemesis.silence import count, named
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: How long links may take to carry again once no other step keeps them from it, or brokers from serving.
CARRIES_AGAIN_WITHIN_S = 30.0
PROBE_TIMEOUT_S = 2.0
_POLL_S = 0.05

#: Look at some links at once and return those that are as they should be.
Look = Callable[[Collection[Link]], Collection[Link]]


def prove_links_carry(context: FaultContext, links: Collection[Link]) -> Proof:
    """Return a proof that a probe crosses every link whose broker is there in the end, and at least one link."""

    def crossed(some: Collection[Link]) -> Collection[Link]:
        return [x for x in some if context.cluster.links.probe_ms(x, timeout_s=PROBE_TIMEOUT_S) is not None]

    return Healing(context, links).prove(crossed, "a probe crosses")


@dataclass
class Healing:
    """The healing of ``links``, proven by a look at each. It waits for other steps that may hinder the links."""

    context: FaultContext
    links: Collection[Link]
    _seen: set[Link] = field(default_factory=set, init=False)
    _patient_until_s: float = field(default=0.0, init=False)

    def prove(self, look: Look, finding: str) -> Proof:
        """Return the proof, whose text begins with ``finding``. Links whose broker stays away are left out; other
        checks judge the broker."""
        self._patient_until_s = time.monotonic() + CARRIES_AGAIN_WITHIN_S

        def done() -> bool:
            self._seen.update(look([link for link in self._left if self._may_carry(link)]))
            if self._left and any(map(self._is_hindered, self._left)):
                self._patient_until_s = time.monotonic() + CARRIES_AGAIN_WITHIN_S
            return not self._left or time.monotonic() > self._patient_until_s

        with suppress(WaitTimeout):
            wait_until(done, timeout_s=math.inf, poll_s=_POLL_S, what="links to be healed")
        mute = [link for link in self._left if self.context.is_there(link)]
        if mute:
            return Proof(False, f"it was not seen that {finding} {named(mute)}")
        if not self._seen:
            return Proof(False, f"it was not seen that {finding} any link: every broker is away")
        away = f"; the brokers of {named(self._left)} are away" if self._left else ""
        return Proof(True, f"{finding} {count(self._seen)} ({named(self._seen)}){away}")

    @property
    def _left(self) -> list[Link]:
        return sorted(set(self.links) - self._seen)

    def _may_carry(self, link: Link) -> bool:
        return self.context.is_there(link) and not self.context.silencing(link, since_s=time.monotonic())

    def _is_hindered(self, link: Link) -> bool:
        return bool(self.context.at_work.hindering(link, other_than=self.context.step))
