"""Proofs by probes for cuts that last: each link is probed until it was seen to be silent because of this cut alone."""

from __future__ import annotations

import time
from collections.abc import Collection
from contextlib import suppress
from dataclasses import dataclass, field

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof
from rabbitmq_resilience.nemesis.silence import count, named
from rabbitmq_resilience.sut.network.probes import ProbeRound
from rabbitmq_resilience.tools.waiting import WaitTimeout, let_pass, wait_until

#: How long a link must be silent while its broker answers on another connection.
SILENT_S = 1.0
#: How long one round of probes takes in addition to that, with all of its connections.
LOOK_S = 0.5
#: How long a message takes to come back that the proxies' server passes on just now.
_CROSSING_S = 0.1
_POLL_S = 0.02

_SILENT, _AWAY, _CROSSED = "it was silent", "its broker was away", "a probe crossed it"


@dataclass
class Watch:
    """Watch ``links``, which are cut. The findings of each round are kept for a link until one finds it silent."""

    context: FaultContext
    links: Collection[Link]
    _found: dict[Link, set[str]] = field(default_factory=dict, init=False)

    def prove(self, *, timeout_s: float) -> Proof:
        """Return a proof that each link was silent for this step alone at some look, and that no probe crossed any.
        Links whose broker was away at every look are left out, and at least one link must have been silent."""
        began_s = time.monotonic()
        self._found = {link: set() for link in self.links}
        while self._left and time.monotonic() + SILENT_S < began_s + timeout_s:
            found = self._look(began_s + timeout_s)
            if crossed := [link for link, what in found.items() if what == _CROSSED]:
                return Proof(False, f"a probe crossed {named(crossed)} during the cut")
            for link, what in found.items():
                self._found[link].add(what)
        away = [link for link, found in self._found.items() if found == {_AWAY}]
        silent = [link for link in self._found if link not in self._left]
        unproven = [f"{link} ({', '.join(sorted(self._found[link])) or 'no time'})" for link in self._left]
        if not silent or len(away) < len(unproven):
            return Proof(False, f"not seen to be silent for this step alone: {', '.join(unproven[:4])}")
        text = f"no probe crossed {count(silent)} for {SILENT_S:g} s or longer, while the brokers answered past them"
        rest = f"; the brokers of {named(away)} were away" if away else ""
        return Proof(True, f"{text} ({named(silent)}; within {time.monotonic() - began_s:.1f} s){rest}")

    @property
    def _left(self) -> list[Link]:
        return sorted(link for link, found in self._found.items() if _SILENT not in found)

    def _look(self, ends_s: float) -> dict[Link, str]:
        """Return what one round of probes finds of each link that was not silent yet."""
        began_s, context = time.monotonic(), self.context
        hidden = {link: text for link in self._left if (text := self._hidden(link, began_s))}
        asked = [link for link in self._left if link not in hidden]
        with ProbeRound(context.cluster.links, asked) as probes:
            probes.send()
            let_pass(SILENT_S)
            served = context.cluster.links.server_answers()  # it got the probes earlier, and has passed them on by now
            let_pass(self._slowed_s(asked, began_s))
            idle = self._idle([link for link in asked if link not in probes.away], ends_s)
            served = served and context.cluster.links.server_answers()  # also on the way back of the brokers' answers
            let_pass(_CROSSING_S + self._slowed_s(asked, began_s))  # what was passed on only now comes back by then
            return hidden | {
                link: self._judged(link, probes, began_s, answers=served and link.answering in idle) for link in asked
            }

    def _slowed_s(self, links: Collection[Link], since_s: float) -> float:
        slowed_s = self.context.at_work.slowed_s
        return max((slowed_s(link, other_than=self.context.step, since_s=since_s) for link in links), default=0.0)

    def _idle(self, links: Collection[Link], ends_s: float) -> set[str]:
        """Return the brokers that answer past the proxies now. A broker gets the probes first and answers one after
        another: if it was busy, it has answered the probes too by then."""
        with ProbeRound(self.context.cluster.links, links) as last:
            last.ask()
            with suppress(WaitTimeout):
                left_s = max(_POLL_S, ends_s - time.monotonic())
                wait_until(lambda: last.all_answered_directly, timeout_s=left_s, poll_s=_POLL_S, what="brokers")
            now_s = time.monotonic()
            return {link.answering for link in links if last.answered_directly(link, before_s=now_s)}

    def _judged(self, link: Link, probes: ProbeRound, began_s: float, *, answers: bool) -> str:
        if link in probes.answered_s:
            return _CROSSED
        if text := self._hidden(link, began_s):
            return text
        node = link.answering
        taken = self.context.at_work.took(node, other_than=self.context.step, since_s=began_s)  # it may be back
        if taken or not self.context.is_there(link) or link in probes.away:
            return _AWAY
        if link in probes.unreached:
            return "no probe was accepted on it"
        if not answers:
            return "broker or proxies did not answer past it either"
        return _SILENT

    def _hidden(self, link: Link, since_s: float) -> str:
        others = self.context.silencing(link, since_s=since_s)
        return f"step {others[0]} kept it silent too" if others else ""
