"""Proofs by probes that links were silent, even if only for a short time.

An unanswered probe proves a cut only if nothing else explains it. So the proxies' server and the same broker, past the
proxies, must answer later questions during the cut, and the proxies' server once more. A probe counts for a link only
while no other step silences that link, or its way back, which the answer takes.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.fault import FaultContext, Proof
from rabbitmq_resilience.sut.network.probes import ProbeRound
from rabbitmq_resilience.tools.waiting import WaitTimeout, let_pass, wait_until

#: How soon a probe that was held back must arrive once its link is restored; a broker may be busy then.
ANSWERED_WITHIN_S = 5.0
#: How long an answer takes to come back that the proxies' server passes on just now.
CROSSING_S = 0.05
#: How long brokers have to answer past the proxies at the end of a cut, which lasts until they do.
ASKED_WITHIN_S = 0.2
#: A cut is prolonged for the delay that another step causes only up to this delay.
SLOWED_S_MAX = 0.25
_POLL_S = 0.02
_NAMED_MAX = 4


@dataclass
class Silence:
    """What probes show of a cut of ``links`` that is too short for a second look.

    Create it before the cut, call ``begin`` once the cut is in place, ``end`` right before it is healed, and ``prove``
    afterwards. Links that another step silences, or whose broker is away or taken meanwhile, are left out: they prove
    nothing."""

    context: FaultContext
    links: Collection[Link]
    _made_s: float = field(default=0.0, init=False)
    _begun_s: float = field(default=0.0, init=False)
    _ended_s: float = field(default=0.0, init=False)
    _asked_s: float = field(default=0.0, init=False)
    _served: bool = field(default=False, init=False)
    _shared: frozenset[Link] = field(default=frozenset(), init=False)
    _late: frozenset[Link] = field(default=frozenset(), init=False)

    def __post_init__(self) -> None:
        self._made_s = time.monotonic()
        usable = [link for link in self.links if not self._silenced(link) and self.context.is_there(link)]
        self._round = self.context.opened.enter_context(ProbeRound(self.context.cluster.links, usable))

    def begin(self) -> None:
        self._begun_s = time.monotonic()
        self._round.send()

    def end(self) -> None:
        """Stop counting answers as given during the cut. The proxies' server answers now, and it got the probes
        earlier, so it has passed them on. It may have stood still before, so what other steps slow gets its time from
        now on, on both ways. Each broker answers past the proxies when the probes have arrived, and so has answered
        them, and the proxies' server has passed its answers on when it answers again."""
        links = self.context.cluster.links
        served = links.server_answers()
        slowed_s = max((s for s in map(self._slowed_s, self._round.over) if s <= SLOWED_S_MAX), default=0.0)
        let_pass(slowed_s)
        self._round.ask()
        with suppress(WaitTimeout):
            wait_until(self._all_answered, timeout_s=ASKED_WITHIN_S, poll_s=_POLL_S, what="brokers")
        self._asked_s = time.monotonic()
        self._served = served and links.server_answers()
        let_pass(slowed_s + CROSSING_S)
        self._ended_s = time.monotonic()
        self._shared = frozenset(link for link in self._round.over if self._silenced(link))
        self._late = frozenset(link for link in self._round.over if self._slowed_s(link) > slowed_s)

    def close(self) -> None:
        self._round.close()

    def prove(self) -> Proof:
        """Return a proof that no probe was answered before the end of the cut, though it could have been, as its broker
        answered a later one past the proxies, and that each was answered afterwards. Links that another step silenced
        meanwhile prove nothing."""
        alone = [link for link in self._round.over if link not in self._shared]

        def missing() -> list[Link]:
            heard = self._round.answered_s
            mute = (link for link in alone if link not in heard and not self._silenced(link))
            return [link for link in mute if self.context.is_there(link)]  # a broker that paused closed its listener

        with suppress(WaitTimeout):
            wait_until(
                lambda: not missing(), timeout_s=ANSWERED_WITHIN_S, poll_s=_POLL_S, what="probes that were held back"
            )
        heard = self._round.answered_s
        crossed = [link for link, at_s in heard.items() if at_s <= self._ended_s]
        answered = [link for link in alone if link in heard]
        late = [link for link in answered if link in self._late]
        complaints = [
            *([f"no probe was accepted on {named(self._round.unreached)}"] if self._round.unreached else []),
            *([f"a probe crossed {named(crossed)} during the cut"] if crossed else []),
            *([f"no probe crosses {named(missing())} after it either"] if missing() else []),
            *([f"another step makes {named(late)} so slow that none could have been answered"] if late else []),
            *([] if self._served else ["the server of the proxies did not answer either"]),
            *self._unanswered_directly(answered),
        ]
        self.close()
        if complaints:
            return Proof(False, "; ".join(complaints))
        if not answered:
            return Proof(False, "there is no link to probe: each is silent for another step, or its broker is away")
        held = f"probes over {count(answered)} were held back until they were restored"
        return Proof(True, f"{held}, {self._lasted_s * 1000:.0f} ms ({named(answered)})")

    @property
    def _lasted_s(self) -> float:
        return self._ended_s - self._begun_s

    def _slowed_s(self, link: Link) -> float:
        return self.context.at_work.slowed_s(link, other_than=self.context.step, since_s=self._begun_s)

    def _silenced(self, link: Link) -> bool:
        """Return whether another step may have cut the link, or taken the broker that was to answer, since this object
        was created."""
        taken = self.context.at_work.took(link.nodes[-1], other_than=self.context.step, since_s=self._made_s)
        return bool(taken or self.context.silencing(link, since_s=self._made_s))

    def _all_answered(self) -> bool:
        return all(self._is_answered(link, time.monotonic()) for link in self._round.over if not self._silenced(link))

    def _is_answered(self, link: Link, before_s: float) -> bool:
        return self._round.answered_directly(link, before_s=before_s)

    def _unanswered_directly(self, links: Collection[Link]) -> list[str]:
        """Return a complaint about brokers whose links may have been silent only because the brokers were."""
        nodes = sorted({link.answering for link in links if not self._is_answered(link, self._asked_s)})
        return [f"{', '.join(nodes)} did not answer past the proxies either"] if nodes else []


def unproxied(context: FaultContext, links: Collection[Link]) -> Proof | None:
    """Return a failed proof, as nothing was cut, if a link carries no proxy; None if every link carries one."""
    bare = [link for link in links if link not in context.cluster.links.proxied]
    if not bare:
        return None
    return Proof(False, f"{named(bare)} carr{'y' if len(bare) > 1 else 'ies'} no proxy: nothing happened there")


def named(links: Iterable[Link]) -> str:
    names = [str(link) for link in sorted(links)]
    return ", ".join(names[:_NAMED_MAX]) + (f" and {len(names) - _NAMED_MAX} more" if len(names) > _NAMED_MAX else "")


def count(links: Collection[Link]) -> str:
    return f"{len(links)} link{'s' if len(links) != 1 else ''}"
