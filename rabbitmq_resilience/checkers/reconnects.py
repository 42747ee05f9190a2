"""Check that each process of the user's application publishes and consumes again once all faults are healed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rabbitmq_resilience.checkers.after_healing import AfterHealing, Deadline
from rabbitmq_resilience.checkers.application_connections import connections_of, doing, is_connected
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.units import counted, seconds
from rabbitmq_resilience.checkers.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    Verdict,
)
from rabbitmq_resilience.history.events import ApplicationUseEvent
from rabbitmq_resilience.history.wire_connections import ConnectionLife

#: A process whose pauses in the steady phase are longer than this part of it publishes seldom: its next message may be
#: due later than the record ends.
SELDOM = 0.2


@dataclass(frozen=True)
class _Activity:
    """What a process did before the faults and has to do again. ``again_us``: when it first did, once all nodes were
    up. ``back_us``: since when it went on until then, without a lost connection. ``gone_us``: when it lost a connection
    after it had done so for the last time; None if it did not. ``unclear``: why it may be sound without having done it
    again; empty if it may not."""

    process: str
    verb: str
    again_us: float | None
    back_us: float | None
    gone_us: float | None
    unclear: str


@dataclass
class _Moments:
    """When a process published or got messages: in the steady phase, and from the healing on."""

    steady_us: list[float] = field(default_factory=list)
    later_us: list[float] = field(default_factory=list)

    def first_us(self, from_us: float) -> float | None:
        return min((at_us for at_us in self.later_us if at_us >= from_us), default=None)

    def last_us(self, before_us: float) -> float | None:
        return max((at_us for at_us in self.later_us if at_us < before_us), default=None)

    def pause_us(self, span_us: tuple[float, float]) -> float:
        """Return the longest pause in a span."""
        edges = [span_us[0], *sorted(self.steady_us), span_us[1]]
        return max(after - before for before, after in itertools.pairwise(edges))


class Reconnects(AfterHealing):
    """Each process that published in the steady phase publishes again within ``within_s`` of the moment since which all
    nodes were up after the last healing, and each that consumed gets messages again. A process that has a consumer by
    then counts as consuming, as there may be nothing for it. A process that loses a connection after that has as long
    again, if the drain does not begin before. If the run went on for less than ``within_s``, a node did not come up, or
    nodes were not observed for 6 s, a process that was not back ``within_s`` after the healing is UNKNOWN.

    It is UNKNOWN too, and never INVALID, whether a process is back that had pauses longer than a fifth of the steady
    phase, as its next message may be due later; that fetches messages one by one over an open connection, as there may
    be none; or that has its consumer again and got nothing to answer. Any later message shows that such a process is
    back."""

    def check_after(self, history: History, deadline: Deadline) -> Finding:
        facts = history.facts
        drain_us = facts.phases["drain"]
        connections = connections_of(facts)
        parts = list(_parts(history, connections, deadline))
        if not parts:
            return Finding(Verdict.UNKNOWN, "no process published or consumed in the steady phase")
        left = [part for part in parts if part.gone_us is not None and part.gone_us + self.within_s * 1e6 <= drain_us]
        back = [part for part in parts if part not in left and _is_back(part, deadline)]
        unclear = [part for part in parts if part.unclear and part not in back]
        missing = [part for part in parts if part not in back and not part.unclear]
        numbers = {
            "back_s_max": max(
                (seconds(part.back_us - deadline.healed_us) for part in back if part.back_us), default=None
            ),
            "missing": len(missing),
            "unclear": len(unclear),
        }
        coverage = Coverage(len(parts) - len(unclear), len(parts), "parts")
        end_us = min(deadline.due_us, drain_us)
        if missing:
            missing.sort(key=lambda part: (part not in left, is_connected(connections, part.process, end_us)))
            examples = tuple(
                _described(facts, connections, part, drain_us if part in left else end_us)
                for part in missing[:EXAMPLES_MAX]
            )
            seen_us = drain_us if missing[0] in left else end_us
            summary = f"{examples[0]}, {deadline.since(seen_us)}"
            sure = not deadline.unknown and (left or deadline.due_us <= drain_us)
            return Finding(Verdict.INVALID if sure else Verdict.UNKNOWN, summary, numbers, examples, coverage)
        if unclear:
            examples = tuple(f"{part.process} did not {part.verb} again, and {part.unclear}" for part in unclear)
            return Finding(Verdict.UNKNOWN, examples[0], numbers, examples[:EXAMPLES_MAX], coverage)
        went_on = counted(len({part.process for part in parts}), "process", "processes")
        summary = f"{went_on} went on, the last after {numbers['back_s_max']:g} s"
        return Finding(Verdict.VALID, summary, numbers, (), coverage)


def _is_back(part: _Activity, deadline: Deadline) -> bool:
    return part.again_us is not None and (part.again_us <= deadline.sure_us or bool(part.unclear))


def _described(facts: Facts, connections: Sequence[ConnectionLife], part: _Activity, t_us: float) -> str:
    last = doing(connections, part.process, t_us, facts.at(t_us))
    if part.gone_us is None:
        return f"{part.process} did not {part.verb} again; {last}"
    return f"{part.process} lost its connection at {facts.at(part.gone_us)}, and did not {part.verb} again; {last}"


def _parts(history: History, connections: Sequence[ConnectionLife], deadline: Deadline) -> Iterator[_Activity]:
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
            answers = consuming is not None and bool(consuming.steady_us)
            got_none = consuming is None or consuming.first_us(deadline.up_us) is None
            idle = answers and got_none and _consuming_us(mine, deadline.up_us, seen_us) is not None
            seldom = publishing.pause_us(steady_us) > SELDOM * (steady_us[1] - steady_us[0])
            unclear = "got nothing to answer" if idle else "it had published seldom (make phases.settled_s longer)"
            again_us = publishing.first_us(deadline.up_us)
            back_us = publishing.first_us(_last_loss_us(mine, deadline.healed_us, again_us))
            gone_us = _gone_us(mine, publishing.last_us(drain_us), deadline.up_us, drain_us)
            yield _Activity(process, "publish", again_us, back_us, gone_us, unclear if idle or seldom else "")
        if consuming is not None and consuming.steady_us:
            again_us = _first_us(consuming, mine, deadline.up_us, seen_us)
            back_us = _first_us(consuming, mine, _last_loss_us(mine, deadline.healed_us, again_us), seen_us)
            fetches = not any(one.from_us < facts.phases["chaos"] for each in mine for one in each.consumers)
            open_ = fetches and is_connected(mine, process, seen_us)
            unclear = "it fetches messages one by one, of which there may have been none" if open_ else ""
            consumed_us = [consuming.last_us(drain_us) or 0.0, *_consumers_end_us(mine, deadline.up_us, drain_us)]
            gone_us = _gone_us(mine, max(consumed_us), deadline.up_us, drain_us)
            yield _Activity(process, "consume", again_us, back_us, gone_us, unclear)


def _lost_us(mine: Sequence[ConnectionLife]) -> list[float]:
    """Return when a process lost connections. What its client closed in order, or never had, was not lost."""
    return [one.lost_us for one in mine if one.connected_us is not None]


def _last_loss_us(mine: Sequence[ConnectionLife], healed_us: float, until_us: float | None) -> float:
    """Return when a process last lost a connection between the healing and a moment, or the healing if it did not."""
    losses = [at_us for at_us in _lost_us(mine) if until_us is not None and healed_us <= at_us <= until_us]
    return max(losses, default=healed_us)


def _gone_us(mine: Sequence[ConnectionLife], last_us: float | None, up_us: float, drain_us: float) -> float | None:
    """Return when a process first lost a connection after it did something for the last time, at ``last_us``, from
    ``up_us`` to the drain; None if it did not."""
    if last_us is None or last_us < up_us:
        return None
    return min((at_us for at_us in _lost_us(mine) if last_us <= at_us < drain_us), default=None)


def _consumers_end_us(mine: Sequence[ConnectionLife], up_us: float, drain_us: float) -> list[float]:
    """Return until when a process had each of its consumers, from ``up_us`` to the drain."""
    consumers = [consumer for connection in mine for consumer in connection.consumers]
    return [min(one.to_us, drain_us) for one in consumers if up_us <= one.to_us and one.from_us < drain_us]


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
    first = [consuming.first_us(from_us), _consuming_us(mine, from_us, seen_us)]
    return min((at_us for at_us in first if at_us is not None), default=None)


def _consuming_us(mine: Sequence[ConnectionLife], from_us: float, seen_us: float) -> float | None:
    """Return since when, from a moment on, a process had a consumer that it still had at ``seen_us``."""
    open_ = [
        max(consumer.from_us, from_us)
        for connection in mine
        for consumer in connection.consumers
        if consumer.from_us <= seen_us < consumer.to_us
    ]
    return min(open_, default=None)
