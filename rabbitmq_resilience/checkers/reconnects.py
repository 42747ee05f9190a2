"""Check that each process of the user's application publishes and consumes again once all faults are healed."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import pyarrow as pa

from rabbitmq_resilience.checkers.after_healing import AfterHealing, Deadline
from rabbitmq_resilience.checkers.application_connections import connections_of, doing, is_connected
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
    """What a process did before the faults and has to do again. ``again_us``: when it first did, after the healing.
    ``unclear``: why it may be sound without having done it again; empty if it may not."""

    process: str
    verb: str
    again_us: float | None
    unclear: str = ""


@dataclass
class _Moments:
    """When a process published or got messages: in the steady phase, and first after the healing."""

    steady_us: list[float] = field(default_factory=list)
    again_us: float | None = None

    def pause_us(self, span_us: tuple[float, float]) -> float:
        """Return the longest pause in a span."""
        edges = [span_us[0], *sorted(self.steady_us), span_us[1]]
        return max(after - before for before, after in itertools.pairwise(edges))


class Reconnects(AfterHealing):
    """Each process that published in the steady phase publishes again within ``within_s`` of the moment at which all
    nodes were up after the last healing, and each that consumed gets messages again. A process that has a consumer by
    then counts as consuming, as there may be nothing for it. If the run went on for less than ``within_s`` after that,
    or a node did not come up, a process that is not back by the end is UNKNOWN.

    It is UNKNOWN too, and never INVALID, whether a process is back that had pauses longer than a fifth of the steady
    phase, as its next message may be due later; that fetches messages one by one over an open connection, as there may
    be none; or that has its consumer again and got nothing to answer. Any later message shows that such a process is
    back."""

    def check_after(self, history: History, deadline: Deadline) -> Finding:
        facts = history.facts
        drain_us = facts.phases["drain"]
        healed_us, until_us = deadline.healed_us, deadline.due_us
        connections = connections_of(facts)
        parts = list(_parts(history, connections, healed_us=healed_us, until_us=until_us))
        if not parts:
            return Finding(Verdict.UNKNOWN, "no process published or consumed in the steady phase")
        back = [part for part in parts if part.again_us is not None and (part.again_us <= until_us or part.unclear)]
        unclear = [part for part in parts if part not in back and part.unclear]
        missing = [part for part in parts if part not in back and not part.unclear]
        numbers = {
            "back_s_max": max((seconds(part.again_us - healed_us) for part in back if part.again_us), default=None),
            "missing": len(missing),
            "unclear": len(unclear),
        }
        coverage = Coverage(len(parts) - len(unclear), len(parts), "parts")
        end_us = min(until_us, drain_us)
        if missing:
            missing.sort(key=lambda part: is_connected(connections, part.process, end_us))
            at = facts.at(end_us)
            examples = tuple(
                f"{part.process} did not {part.verb} again; {doing(connections, part.process, end_us, at)}"
                for part in missing[:EXAMPLES_MAX]
            )
            summary = f"{examples[0]}, {deadline.since(end_us)}"
            short = drain_us < until_us
            return Finding(Verdict.UNKNOWN if short else Verdict.INVALID, summary, numbers, examples, coverage)
        if unclear:
            examples = tuple(f"{part.process} did not {part.verb} again, and {part.unclear}" for part in unclear)
            return Finding(Verdict.UNKNOWN, examples[0], numbers, examples[:EXAMPLES_MAX], coverage)
        went_on = counted(len({part.process for part in parts}), "process", "processes")
        summary = f"{went_on} went on, the last after {numbers['back_s_max']:g} s"
        return Finding(Verdict.VALID, summary, numbers, (), coverage)


def _parts(
    history: History, connections: Sequence[ConnectionLife], *, healed_us: float, until_us: float
) -> Iterator[_Activity]:
    facts = history.facts
    steady_us = facts.phases["steady"], facts.phases["chaos"]
    use = next(facts.of_kind(ApplicationUseEvent), None)
    sent = _moments(history.publishes(), "publisher", "sent_us", steady_us, healed_us)
    got = _moments(history.deliveries(), "consumer", "received_us", steady_us, healed_us)
    for process, fields in (use.processes if use is not None else {}).items():
        publishing, consuming = sent.get(fields["publisher"]), got.get(fields["consumer"])
        consumes_us = _consuming_us(connections, process, healed_us, until_us)
        if publishing is not None and publishing.steady_us:
            answers = consuming is not None and bool(consuming.steady_us)
            idle = answers and consumes_us is not None and (consuming is None or consuming.again_us is None)
            seldom = publishing.pause_us(steady_us) > SELDOM * (steady_us[1] - steady_us[0])
            unclear = "got nothing to answer" if idle else "it had published seldom (make phases.settled_s longer)"
            yield _Activity(process, "publish", publishing.again_us, unclear if idle or seldom else "")
        if consuming is not None and consuming.steady_us:
            first = [at_us for at_us in (consuming.again_us, consumes_us) if at_us is not None]
            fetches = not _has_subscribed(connections, process, facts.phases["chaos"])
            open_ = fetches and is_connected(connections, process, until_us)
            unclear = "it fetches messages one by one, of which there may have been none" if open_ else ""
            yield _Activity(process, "consume", min(first, default=None), unclear)


def _moments(
    batches: Iterable[pa.RecordBatch], who: str, when: str, steady_us: tuple[float, float], healed_us: float
) -> Mapping[int, _Moments]:
    """Return for each client when it did something in the steady phase, and when it did so first after the healing."""
    found: dict[int, _Moments] = {}
    for batch in batches:
        clients, moments = batch.column(who).to_numpy(), batch.column(when).to_numpy()
        for client in np.unique(clients).tolist():
            mine, known = moments[clients == client], found.setdefault(client, _Moments())
            known.steady_us += mine[(mine >= steady_us[0]) & (mine < steady_us[1])].tolist()
            if len(after := mine[mine >= healed_us]):
                known.again_us = min(float(after.min()), known.again_us or float("inf"))
    return found


def _has_subscribed(connections: Sequence[ConnectionLife], process: str, before_us: float) -> bool:
    """Return whether a process had a consumer at any time before a moment."""
    mine = [connection for connection in connections if connection.process == process]
    return any(consumer.from_us < before_us for connection in mine for consumer in connection.consumers)


def _consuming_us(
    connections: Sequence[ConnectionLife], process: str, healed_us: float, until_us: float
) -> float | None:
    """Return since when, from the healing on, a process had a consumer that it still had at ``until_us``."""
    open_ = [
        max(consumer.from_us, healed_us)
        for connection in connections
        if connection.process == process
        for consumer in connection.consumers
        if consumer.from_us <= until_us < consumer.to_us
    ]
    return min(open_, default=None)
