"""Check that the user's application acknowledges or rejects every delivery."""

from __future__ import annotations

from collections import Counter
from typing import ClassVar

from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict
from rabbitmq_resilience.history.events import ApplicationUseEvent

_NOT_SEEN = "; whether it was worked on first cannot be seen on the wire, and the program wrote nothing of it"


class Settled(InvariantSpec):
    """At the end of the drain, no delivery waits for an acknowledgement on a channel that is open. Deliveries whose
    channel ended first went back to their queue; they are counted, and came again. ``basic.recover`` rejects all that
    wait. In a transaction, acknowledgements count once it is committed. A program that acknowledges a
    message before it has worked on it looks like a fast one. One that acknowledges in batches has to do so when it has
    nothing more to do."""

    forgives: ClassVar[frozenset[str]] = frozenset({"faults_begun", "watched"})

    def check(self, history: History) -> Finding:
        use = next(history.facts.of_kind(ApplicationUseEvent), None)
        if use is None:
            return Finding(Verdict.UNKNOWN, "it was not recorded how the application used its brokers")
        total: Counter[str] = Counter()
        for fields in use.processes.values():
            names = ("delivered", "automatic", "acknowledged", "returned", "unsettled")
            total.update({name: int(fields[name]) for name in names})
        numbers = dict(total)
        waited = total["delivered"] - total["automatic"]
        coverage = Coverage(waited, total["delivered"], "deliveries")
        if not waited:
            text = "no delivery waited for an acknowledgement" if total["delivered"] else "nothing was delivered"
            return Finding(Verdict.UNKNOWN, text, numbers, (), coverage)
        if not total["unsettled"]:
            summary = f"{counted(total['acknowledged'], 'delivery was', 'deliveries were')} acknowledged or rejected"
            if total["returned"]:
                summary += f", and {total['returned']} went back to their queue with their channel"
            says = any(fields.get("work") for fields in use.processes.values())
            return Finding(Verdict.VALID, summary + ("" if says else _NOT_SEEN), numbers, (), coverage)
        examples = tuple(
            f"{process} holds {counted(count, 'message')} of {queue}, neither acknowledged nor rejected"
            for process, fields in use.processes.items()
            for queue, count in fields["unsettled_in"].items()
        )[:EXAMPLES_MAX]
        return Finding(Verdict.INVALID, examples[0], numbers, examples, coverage)
