"""Record which steps were at work on which nodes and links, and when. Proofs use this to rule out other steps'
effects."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, field

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link

NEVER_S = float("inf")
#: Stands for the number of a step: the network of the topology, which is always at work.
NETWORK = -1
#: How long a link takes to be as fast as before, in addition to the delay that was on it.
SETTLES_S = 0.5


@dataclass
class _Work:
    """One step, from right before its injection until it is healed. If its healing failed, its effect may last for
    ever, as nothing more will be done."""

    step: int
    effect: Effect
    ended_s: float = NEVER_S
    is_over: bool = False


@dataclass
class AtWork:
    """The steps at work. The nemesis writes them and the threads of all steps read them; times are of the monotonic
    clock."""

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
        """Record that the step makes an answer over the links slower by ``at_most_ms``."""
        with self._lock:
            self._slowed_ms.append((step, frozenset(links), at_most_ms))

    def silencing(self, link: Link, *, other_than: int, since_s: float) -> list[int]:
        """Return the steps other than ``other_than`` that may have kept a message from crossing the link, or its answer
        from coming back, at any time from ``since_s`` until now."""
        return [work.step for work in self._others(other_than, since_s) if {link, link.back} & work.effect.links_cut]

    def slowing(self, link: Link, *, other_than: int, since_s: float) -> list[int]:
        """Return the other steps that may have made the link or its way back slower since ``since_s``."""
        return [work.step for work in self._others(other_than, since_s) if {link, link.back} & work.effect.links_slow]

    def taking(self, node: str, *, before: int) -> list[int]:
        """Return the steps at work that may take the node away and began before step ``before``. If two steps take a
        node, the first has it."""
        with self._lock:
            steps = [work.step for work in self._works]
            works = self._works[: steps.index(before)] if before in steps else list(self._works)
        now_s = self.clock()
        return [work.step for work in works if work.ended_s >= now_s and node in work.effect.nodes_down]

    def took(self, node: str, *, other_than: int, since_s: float) -> list[int]:
        """Return the other steps that may have taken the node away at any time since ``since_s``."""
        return [work.step for work in self._others(other_than, since_s) if node in work.effect.nodes_down]

    def hindering(self, link: Link, *, other_than: int) -> list[int]:
        """Return the other steps, not over yet, that may keep the link from carrying, or any broker from serving."""
        at_work = [work for work in self._others(other_than, self.clock()) if not work.is_over]
        return [work.step for work in at_work if {link, link.back} & work.effect.links_cut or _unsettles(work.effect)]

    def slowed_s(self, link: Link, *, other_than: int, since_s: float) -> float:
        """Return how much longer an answer over the link may take because of other steps, if it was sent since
        ``since_s``. A step that is over still counts while the last messages that it delayed are on their way."""
        with self._lock:
            ended_s = {work.step: work.ended_s for work in self._works}
            slowed = [
                (links, ms / 1000)
                for step, links, ms in self._slowed_ms
                if step != other_than and ended_s.get(step, NEVER_S) + ms / 1000 + SETTLES_S >= since_s
            ]
        return sum(slow_s for links, slow_s in slowed for direction in (link, link.back) if direction in links)

    def _others(self, step: int, since_s: float) -> Iterator[_Work]:
        with self._lock:
            works = list(self._works)
        return (work for work in works if work.step != step and work.ended_s >= since_s)


def _unsettles(effect: Effect) -> bool:
    """Return whether brokers may pause or end because of the effect."""
    return bool(effect.nodes_down) or any(link.client is None for link in effect.links_cut)
