"""Check that each process of the user's application publishes and consumes again once all faults are healed."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
import pyarrow as pa
from pydantic import Field

from rabbitmq_resilience.checkers.application_connections import ConnectionLife, connections_of, doing
from rabbitmq_resilience.checkers.units import counted, seconds
from rabbitmq_resilience.checkers.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    InvariantSpec,
    Verdict,
)
from rabbitmq_resilience.history.events import ApplicationUseEvent


@dataclass(frozen=True)
class _Activity:
    """What a process did before the faults and has to do again. ``again_us``: when it first did, after the healing."""

    process: str
    verb: str
    again_us: float | None


class Reconnects(InvariantSpec):
    """Each process that published in the steady phase publishes again within ``within_s`` of the last healing, and each
    that consumed gets messages again. A process that has a consumer by then counts as consuming, as there may be
    nothing for it. If the run went on for less than ``within_s`` after the healing, a process that is not back by then
    is UNKNOWN."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun", "watched"})

    within_s: Annotated[float, Field(gt=0)] = 60.0

    @property
    def settled_s(self) -> float:
        return self.within_s

    def check(self, history: History) -> Finding:
        facts = history.facts
        healed_us, span_us = facts.last_healed_us, facts.publishing_us
        if span_us is None or "chaos" not in facts.phases:
            return Finding(Verdict.UNKNOWN, "the phases of the run were not recorded")
        if healed_us is None:
            return Finding(Verdict.VALID, "there was no fault")
        until_us = healed_us + self.within_s * 1e6
        connections = connections_of(facts)
        parts = list(_parts(history, connections, healed_us=healed_us, until_us=until_us))
        if not parts:
            return Finding(Verdict.UNKNOWN, "no process published or consumed in the steady phase")
        back = [part for part in parts if part.again_us is not None and part.again_us <= until_us]
        missing = [part for part in parts if part not in back]
        numbers = {
            "back_s_max": max((seconds(part.again_us - healed_us) for part in back if part.again_us), default=None),
            "missing": len(missing),
        }
        coverage = Coverage(len(parts), len(parts), "parts")
        if not missing:
            went_on = counted(len({part.process for part in parts}), "process", "processes")
            summary = f"{went_on} went on, the last after {numbers['back_s_max']:g} s"
            return Finding(Verdict.VALID, summary, numbers, (), coverage)
        end_us = min(until_us, span_us[1])
        examples = tuple(
            f"{part.process} did not {part.verb} again; {doing(connections, part.process, end_us, facts.at(end_us))}"
            for part in missing[:EXAMPLES_MAX]
        )
        summary = f"{examples[0]}, {seconds(end_us - healed_us):g} s after the last fault was healed"
        short = span_us[1] < until_us
        return Finding(Verdict.UNKNOWN if short else Verdict.INVALID, summary, numbers, examples, coverage)


def _parts(
    history: History, connections: Sequence[ConnectionLife], *, healed_us: float, until_us: float
) -> Iterator[_Activity]:
    facts = history.facts
    steady_us = facts.phases["steady"], facts.phases["chaos"]
    use = next(facts.of_kind(ApplicationUseEvent), None)
    sent = _moments(history.publishes(), "publisher", "sent_us", steady_us, healed_us)
    got = _moments(history.deliveries(), "consumer", "received_us", steady_us, healed_us)
    for process, fields in (use.processes if use is not None else {}).items():
        if (mine := sent.get(fields["publisher"])) is not None and mine[0]:
            yield _Activity(process, "publish", mine[1])
        if (mine := got.get(fields["consumer"])) is not None and mine[0]:
            consuming = _consuming_us(connections, process, healed_us, until_us)
            first = [at_us for at_us in (mine[1], consuming) if at_us is not None]
            yield _Activity(process, "consume", min(first, default=None))


def _moments(
    batches: Iterable[pa.RecordBatch], who: str, when: str, steady_us: tuple[float, float], healed_us: float
) -> Mapping[int, tuple[bool, float | None]]:
    """Return for each client whether it did something in the steady phase, and when it did so first after the
    healing."""
    found: dict[int, tuple[bool, float | None]] = {}
    for batch in batches:
        clients, moments = batch.column(who).to_numpy(), batch.column(when).to_numpy()
        for client in np.unique(clients).tolist():
            mine = moments[clients == client]
            steady, first = found.get(client, (False, None))
            steady |= bool(((mine >= steady_us[0]) & (mine < steady_us[1])).any())
            after = mine[mine >= healed_us]
            if len(after):
                first = min(first if first is not None else float("inf"), float(after.min()))
            found[client] = (steady, first)
    return found


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
