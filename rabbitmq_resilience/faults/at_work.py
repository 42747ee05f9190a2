"""Which steps were at work where, and when: what a proof asks before it takes something for its own step's effect."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from rabbitmq_resilience.clusters.spec import Link
from rabbitmq_resilience.record.events import Effect

NEVER_S = float("inf")
#: No step, but the network of the topology, which is always at work.
NETWORK = -1
#: Until a link is as fast as before, beside what it held back.
SETTLES_S = 0.5


@dataclass
class _Work:
    """One step from right before its injection until it is healed. Where its healing failed nothing more will be done,
    and what it did may last for ever."""

    step: int
    effect: Effect
    ended_s: float = NEVER_S
    is_over: bool = False


@dataclass
class AtWork:
    """Told by the nemesis and read by the threads of all steps; times are of the monotonic clock."""

    clock: Callable[[], float] = time.monotonic
    _works: list[_Work] = field(default_factory=list)
    _slowed_ms: list[tuple[int, frozenset[Link], int]] = field(default_factory=list)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def begin(self, step: int, effect: Effect) -> None:
        with self._lock:
            self._works.append(_Work(step, effect))

    def end(self, step: int, *, healed: bool) -> None:
        with self._lock:
            for work in (work for work in self._works if work.step == step):
                work.is_over = True
                if healed:
                    work.ended_s = min(work.ended_s, self.clock())

    def slow(self, step: int, links: Collection[Link], *, at_most_ms: int) -> None:
        """What crosses the links takes up to so much longer."""
        with self._lock:
            self._slowed_ms.append((step, frozenset(links), at_most_ms))

    def silencing(self, link: Link, *, beside: int, since_s: float) -> list[int]:
        """The other steps that may have kept something from crossing the link, or its answer from coming back, at any
        time from ``since_s`` until now."""
        return [work.step for work in self._others(beside, since_s) if {link, link.back} & work.effect.links_cut]

    def slowing(self, link: Link, *, beside: int, since_s: float) -> list[int]:
        """The other steps that may have made the link or its way back slower."""
        return [work.step for work in self._others(beside, since_s) if {link, link.back} & work.effect.links_slow]

    def taking(self, node: str, *, before: int) -> list[int]:
        """The steps at work that may take the node away and began before that one: of two, the first has it."""
        with self._lock:
            steps = [work.step for work in self._works]
            works = self._works[: steps.index(before)] if before in steps else list(self._works)
        now_s = self.clock()
        return [work.step for work in works if work.ended_s >= now_s and node in work.effect.nodes_down]

    def took(self, node: str, *, beside: int, since_s: float) -> list[int]:
        """The other steps that may have taken the node away at any time since then."""
        return [work.step for work in self._others(beside, since_s) if node in work.effect.nodes_down]

    def hindering(self, link: Link, *, beside: int) -> list[int]:
        """The other steps, not over yet, that may keep the link from carrying now, or any broker from serving."""
        at_work = [work for work in self._others(beside, self.clock()) if not work.is_over]
        return [work.step for work in at_work if {link, link.back} & work.effect.links_cut or _unsettles(work.effect)]

    def slowed_s(self, link: Link, *, beside: int, since_s: float) -> float:
        """How much longer an answer over the link may take, of all that was sent since then, by what other steps do or
        did: what they held back last was on its way for so long still."""
        with self._lock:
            ended_s = {work.step: work.ended_s for work in self._works}
            told = [
                (links, ms / 1000)
                for step, links, ms in self._slowed_ms
                if step != beside and ended_s.get(step, NEVER_S) + ms / 1000 + SETTLES_S >= since_s
            ]
        return sum(slow_s for links, slow_s in told for direction in (link, link.back) if direction in links)

    def _others(self, step: int, since_s: float) -> Iterator[_Work]:
        with self._lock:
            works = list(self._works)
        return (work for work in works if work.step != step and work.ended_s >= since_s)


def _unsettles(effect: Effect) -> bool:
    """Whether brokers may pause or end for it."""
    return bool(effect.nodes_down) or any(link.client is None for link in effect.links_cut)
