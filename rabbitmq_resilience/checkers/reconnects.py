"""Check that each process of the user's application publishes and consumes again once all faults are healed."""

from __future__ import annotations

from collections.abc import Sequence

from rabbitmq_resilience.checkers.after_healing import AfterHealing, Deadline
from rabbitmq_resilience.checkers.application_connections import connections_of, doing, is_connected
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.process_activity import Activity, activities
from rabbitmq_resilience.checkers.units import counted, seconds
from rabbitmq_resilience.checkers.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    Verdict,
)
from rabbitmq_resilience.history.wire_connections import ConnectionLife


class Reconnects(AfterHealing):
    """Each process that published in the steady phase publishes again within ``within_s`` of the moment since which all
    nodes were up after the last healing, and each that consumed gets messages again. A process that has a consumer by
    then counts as consuming, as there may be nothing for it. A process that loses a connection after that has as long
    again, if the drain does not begin before; if it answers messages, it may also have a consumer and get none. If the
    run went on for less than ``within_s``, a node did not come up, or nodes were not observed for 6 s, a process that
    was not back ``within_s`` after the healing is UNKNOWN.

    It is UNKNOWN too, and never INVALID, whether a process is back that had pauses longer than a fifth of the steady
    phase, as its next message may be due later; that fetches messages one by one over an open connection, as there may
    be none; or that has its consumer again and got nothing to answer. Any later message shows that such a process is
    back."""

    def check_after(self, history: History, deadline: Deadline) -> Finding:
        facts = history.facts
        drain_us = facts.phases["drain"]
        connections = connections_of(facts)
        parts = list(activities(history, connections, deadline))
        if not parts:
            return Finding(Verdict.UNKNOWN, "no process published or consumed in the steady phase")
        left = [part for part in parts if part.gap is not None]
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
            seen_us = [end_us if part.gap is None else part.gap.lost_us + deadline.within_us for part in missing]
            examples = tuple(
                _described(facts, connections, part, at_us)
                for part, at_us in zip(missing[:EXAMPLES_MAX], seen_us, strict=False)
            )
            summary = f"{examples[0]}, {deadline.since(seen_us[0])}"
            sure = not deadline.unknown and (left or deadline.due_us <= drain_us)
            return Finding(Verdict.INVALID if sure else Verdict.UNKNOWN, summary, numbers, examples, coverage)
        if unclear:
            examples = tuple(f"{part.process} did not {part.verb} again, and {part.unclear}" for part in unclear)
            return Finding(Verdict.UNKNOWN, examples[0], numbers, examples[:EXAMPLES_MAX], coverage)
        went_on = counted(len({part.process for part in parts}), "process", "processes")
        summary = f"{went_on} went on, the last after {numbers['back_s_max']:g} s"
        return Finding(Verdict.VALID, summary, numbers, (), coverage)


def _is_back(part: Activity, deadline: Deadline) -> bool:
    return part.again_us is not None and (part.again_us <= deadline.sure_us or bool(part.unclear))


def _described(facts: Facts, connections: Sequence[ConnectionLife], part: Activity, t_us: float) -> str:
    last = doing(connections, part.process, t_us, facts.at(t_us))
    if part.gap is None:
        return f"{part.process} did not {part.verb} again; {last}"
    gap = part.gap
    away = "" if gap.back_us is None else f" for {seconds(gap.back_us - gap.lost_us):g} s"
    return f"{part.process} lost its connection at {facts.at(gap.lost_us)}, and did not {part.verb} again{away}; {last}"
