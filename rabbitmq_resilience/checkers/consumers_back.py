"""Check that each queue of the user's application has its consumers again once all faults are healed."""

from __future__ import annotations

from collections.abc import Iterator

from rabbitmq_resilience.checkers.after_healing import AfterHealing, Deadline
from rabbitmq_resilience.checkers.application_connections import connections_of, consumers_at, least_consumers
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, Verdict
from rabbitmq_resilience.history.application_events import GOES_ITSELF
from rabbitmq_resilience.history.events import ApplicationUseEvent, WireEvent


class ConsumersBack(AfterHealing):
    """Each queue that had consumers when the first fault began has as many again, ``within_s`` after all nodes were up
    for good after the last healing, and when the drain begins. If its consumers came and went from the steady phase
    on, the least that it had until then counts. Queues that may go with their consumers or their node, or that the
    application deleted, do not count. If the drain began earlier than that, a node did not come up, or nodes were not
    observed for 6 s, a queue that had not all its consumers ``within_s`` after the healing is UNKNOWN."""

    def check_after(self, history: History, deadline: Deadline) -> Finding:
        facts, phases = history.facts, history.facts.phases
        connections = connections_of(facts)
        passing = frozenset(_passing(facts))
        begun_us = phases["chaos"] if facts.first_begun_us is None else facts.first_begun_us
        counts = least_consumers(connections, phases["steady"], begun_us)
        wanted = {queue: count for queue, count in counts.items() if count and queue not in passing}
        if not wanted:
            return Finding(Verdict.UNKNOWN, "no queue that stays had a consumer all the time before the first fault")
        short = deadline.due_us > phases["drain"]
        moments = [min(deadline.sure_us, phases["drain"] - 1), phases["drain"] - 1]
        problems = {
            queue: f"{queue} had {counted(count, 'consumer')} before the faults, and {there} at "
            f"{facts.at(at_us)}, {deadline.since(at_us)}"
            for at_us in moments
            for queue, count in wanted.items()
            if (there := consumers_at(connections, at_us).get(queue, 0)) < count
        }
        numbers = {"queues": len(wanted), "without": len(problems)}
        coverage = Coverage(len(wanted), len(wanted), "queues")
        if not problems:
            summary = f"{counted(len(wanted), 'queue')} had all consumers again"
            return Finding(Verdict.VALID, summary, numbers, (), coverage)
        examples = tuple(list(problems.values())[:EXAMPLES_MAX])
        verdict = Verdict.UNKNOWN if short else Verdict.INVALID
        return Finding(verdict, examples[0], numbers, examples, coverage)


def _passing(facts: Facts) -> Iterator[str]:
    """Yield the queues that may go by themselves, as the broker listed them or as they were declared, and those that
    the application deleted. The broker's list may have been made before they were declared."""
    for use in facts.of_kind(ApplicationUseEvent):
        yield from (queue for queue, reason in use.skipped.items() if reason in GOES_ITSELF)
    for event in facts.of_kind(WireEvent):
        fields = event.fields
        declared = event.what == "queue_declared" and not fields["passive"]
        if event.what == "queue_deleted" or (declared and (fields["exclusive"] or fields["auto_delete"])):
            yield fields["queue"]
