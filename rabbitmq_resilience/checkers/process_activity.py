"""Find when each process of the user's application did again what it had done before the faults."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial

import numpy as np
import pyarrow as pa

from rabbitmq_resilience.checkers.after_healing import Deadline
from rabbitmq_resilience.checkers.application_connections import is_connected
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.events import ApplicationUseEvent
from rabbitmq_resilience.history.wire_connections import ConnectionLife

#: A process whose pauses in the steady phase are longer than this part of it publishes seldom: its next message may be
#: due later than the record ends.
SELDOM = 0.2


@dataclass(frozen=True)
class Activity:
    """What a process did before the faults and has to do again. ``again_us``: when it first did, once all nodes were
    up. ``back_us``: since when it went on until then, without a lost connection. ``gap``: after that it lost a
    connection, and did not do so in time again; None if it always did. ``unclear``: why it may be sound without having
    done it again; empty if it may not."""

    process: str
    verb: str
    again_us: float | None
    back_us: float | None
    gap: Gap | None
    unclear: str


@dataclass(frozen=True)
class Gap:
    """A process lost a connection at ``lost_us`` and was back too late, at ``back_us``; None if never before the
    drain."""

    lost_us: float
    back_us: float | None


@dataclass
class _Moments:
    """When a process published or got messages: in the steady phase, and from the healing on."""

    steady_us: list[float] = field(default_factory=list)
    later_us: list[float] = field(default_factory=list)

    def first_us(self, from_us: float) -> float | None:
        return min((at_us for at_us in self.later_us if at_us >= from_us), default=None)

    def after_us(self, lost_us: float, before_us: float) -> float | None:
        return min((at_us for at_us in self.later_us if lost_us < at_us < before_us), default=None)

    def pause_us(self, span_us: tuple[float, float]) -> float:
        """Return the longest pause in a span."""
        edges = [span_us[0], *sorted(self.steady_us), span_us[1]]
        return max(after - before for before, after in itertools.pairwise(edges))


def activities(history: History, connections: Sequence[ConnectionLife], deadline: Deadline) -> Iterator[Activity]:
    """Yield what each process did in the steady phase: publish, consume, or both."""
    facts = history.facts
    steady_us, drain_us = (facts.phases["steady"], facts.phases["chaos"]), facts.phases["drain"]
    seen_us = min(deadline.due_us, drain_us - 1)
    use = next(facts.of_kind(ApplicationUseEvent), None)
    sent = _moments(history.publishes(), "publisher", "sent_us", steady_us, deadline.healed_us)
    got = _moments(history.deliveries(), "consumer", "received_us", steady_us, deadline.healed_us)
    for process, fields in (use.processes if use is not None else {}).items():
        mine = [one for one in connections if one.process == process]
        publishing, consuming = sent.get(fields["publisher"]), got.get(fields["consumer"])
        if publishing is not None and publishing.steady_us:
            asked = consuming if consuming is not None and consuming.steady_us else None  # what it may answer
            got_none = asked is not None and asked.first_us(deadline.up_us) is None
            idle = got_none and _consuming_us(mine, deadline.up_us, seen_us) is not None
            seldom = publishing.pause_us(steady_us) > SELDOM * (steady_us[1] - steady_us[0])
            unclear = "got nothing to answer" if idle else "it had published seldom (make phases.settled_s longer)"
            again_us = publishing.first_us(deadline.up_us)
            back_us = publishing.first_us(_last_loss_us(mine, deadline.healed_us, again_us))
            next_us = publishing.after_us
            if asked is not None:
                next_us = partial(_answered_us, publishing=publishing, asked=asked, mine=mine, deadline=deadline)
            gap = _gap(mine, again_us, next_us, deadline)
            yield Activity(process, "publish", again_us, back_us, gap, unclear if idle or seldom else "")
        if consuming is not None and consuming.steady_us:
            again_us = _first_us(consuming, mine, deadline.up_us, seen_us)
            back_us = _first_us(consuming, mine, _last_loss_us(mine, deadline.healed_us, again_us), seen_us)
            fetches = not any(one.from_us < facts.phases["chaos"] for each in mine for one in each.consumers)
            open_ = fetches and is_connected(mine, process, seen_us)
            unclear = "it fetches messages one by one, of which there may have been none" if open_ else ""
            since = [consuming.first_us(deadline.up_us), _subscribed_us(mine, deadline.up_us, drain_us)]
            gap = _gap(mine, _earliest(since), partial(_consumed_us, consuming, mine), deadline)
            yield Activity(process, "consume", again_us, back_us, gap, unclear)


def _lost_us(mine: Sequence[ConnectionLife]) -> list[float]:
    """Return when a process lost connections. What its client closed in order, or never had, was not lost."""
    return [one.lost_us for one in mine if one.connected_us is not None]


def _last_loss_us(mine: Sequence[ConnectionLife], healed_us: float, until_us: float | None) -> float:
    """Return when a process last lost a connection between the healing and a moment, or the healing if it did not."""
    losses = [at_us for at_us in _lost_us(mine) if until_us is not None and healed_us <= at_us <= until_us]
    return max(losses, default=healed_us)


def _gap(
    mine: Sequence[ConnectionLife],
    since_us: float | None,
    next_us: Callable[[float, float], float | None],
    deadline: Deadline,
) -> Gap | None:
    """Return the first connection that a process lost from ``since_us`` on without being back in time.

    ``next_us`` returns when it first did again what it does after one moment and before another. A process that has
    less than that time until the drain is not judged."""
    if since_us is None:
        return None
    for lost_us in sorted(lost_us for lost_us in _lost_us(mine) if lost_us >= since_us):
        due_us, back_us = lost_us + deadline.within_us, next_us(lost_us, deadline.drain_us)
        if due_us <= deadline.drain_us and (back_us is None or back_us > due_us):
            return Gap(lost_us, back_us)
    return None


def _answered_us(
    lost_us: float,
    before_us: float,
    *,
    publishing: _Moments,
    asked: _Moments,
    mine: Sequence[ConnectionLife],
    deadline: Deadline,
) -> float | None:
    """Return when a process that answers was back, after one moment and before another: when it first published, or
    had a consumer and nothing to answer, or no time for it."""
    published_us, asked_us = publishing.after_us(lost_us, before_us), asked.after_us(lost_us, before_us)
    if published_us is None and asked_us is not None and asked_us + deadline.within_us <= before_us:
        return None
    return _earliest([published_us, _subscribed_us(mine, lost_us, before_us)])


def _consumed_us(consuming: _Moments, mine: Sequence[ConnectionLife], lost_us: float, before_us: float) -> float | None:
    """Return when a process first got a message, or had a consumer, after one moment and before another."""
    return _earliest([consuming.after_us(lost_us, before_us), _subscribed_us(mine, lost_us, before_us)])


def _subscribed_us(mine: Sequence[ConnectionLife], after_us: float, before_us: float) -> float | None:
    """Return since when, after one moment and before another, a process had a consumer, even if it did not keep it."""
    consumers = [consumer for connection in mine for consumer in connection.consumers]
    since_us = [max(one.from_us, after_us) for one in consumers if after_us < one.to_us and one.from_us < before_us]
    return min(since_us, default=None)


def _earliest(moments_us: Iterable[float | None]) -> float | None:
    return min((at_us for at_us in moments_us if at_us is not None), default=None)


def _moments(
    batches: Iterable[pa.RecordBatch], who: str, when: str, steady_us: tuple[float, float], healed_us: float
) -> Mapping[int, _Moments]:
    """Return for each client when it did something."""
    found: dict[int, _Moments] = {}
    for batch in batches:
        clients, moments = batch.column(who).to_numpy(), batch.column(when).to_numpy()
        for client in np.unique(clients).tolist():
            mine, known = moments[clients == client], found.setdefault(client, _Moments())
            known.steady_us += mine[(mine >= steady_us[0]) & (mine < steady_us[1])].tolist()
            known.later_us += mine[mine >= healed_us].tolist()
    return found


def _first_us(consuming: _Moments, mine: Sequence[ConnectionLife], from_us: float, seen_us: float) -> float | None:
    """Return when a process first got a message from a moment on, or had a consumer that it kept until ``seen_us``."""
    return _earliest([consuming.first_us(from_us), _consuming_us(mine, from_us, seen_us)])


def _consuming_us(mine: Sequence[ConnectionLife], from_us: float, seen_us: float) -> float | None:
    """Return since when, from a moment on, a process had a consumer that it still had at ``seen_us``."""
    open_ = [
        max(consumer.from_us, from_us)
        for connection in mine
        for consumer in connection.consumers
        if consumer.from_us <= seen_us < consumer.to_us
    ]
    return min(open_, default=None)
