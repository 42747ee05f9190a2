"""Whether this machine alone may have made something late: brokers do nothing while they wait for a processor."""

from __future__ import annotations

from rabbitmq_resilience.invariants.facts import OTHERS_CPU_MIN, Facts
from rabbitmq_resilience.invariants.units import seconds

#: How much later than allowed a machine may make it that other programs use.
LATE_TIMES_MAX = 2


def of_this_machine(facts: Facts, start_us: float, end_us: float, *, allowed_s: float, came: bool) -> str:
    """Why it may have been this machine that made late what was to come ``allowed_s`` after the start, and did not come
    before the end: a broker waited for a processor for so long that it would have been in time without that; or it
    ``came`` then, not twice as late, while other programs took much of this machine. Empty if it was not.

    Asked are the brokers that were not seen to be up when it was due and after that; all, where all were."""
    took_s = seconds(end_us - start_us)
    waited_s = facts.waited_s(_late_nodes(facts, start_us + allowed_s * 1e6, end_us), start_us, end_us)
    if took_s - waited_s <= allowed_s:
        return f"a broker waited for a processor of this machine for {waited_s:.3g} s of that"
    others = facts.others_cpu(start_us, end_us)
    if came and others >= OTHERS_CPU_MIN and took_s <= LATE_TIMES_MAX * allowed_s:
        return f"other programs took {others:.0%} of this machine's processors then"
    return ""


def _late_nodes(facts: Facts, due_us: float, end_us: float) -> frozenset[str]:
    looks = [states for t_us, states in facts.node_states if due_us <= t_us <= end_us]
    away = frozenset(node for states in looks for node, state in states.items() if state != "up")
    return away or frozenset(facts.cluster.nodes if facts.cluster else ())
