"""Find, before the run, loads that may have no time in which throughput can be judged."""

from __future__ import annotations

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.checkers.times import left, times, union
from rabbitmq_resilience.scenario.model import Scenario


def without_settled_window(scenario: Scenario) -> str:
    """Return why no window of throughput may lie in settled time, and what to change.

    It is empty if one does, or if the times of the steps are not known before the run. Recovery is taken to need no
    time, and the broker to be of the version that publishers need most patience with. All times are in seconds from the
    end of the steady phase.
    """
    demanded = scenario.chosen_invariants.get("throughput")
    changing = [step for step in scenario.schedule if step.footprint(scenario.topology).unsettles]
    lasting = [(step.at_s, step.ends_s) for step in changing if step.at_s is not None and step.ends_s is not None]
    if not isinstance(demanded, Throughput) or not lasting or len(lasting) < len(changing):
        return ""
    grace_s, lost_s = demanded.grace_s, _lost_grace_s(scenario, demanded)
    exempt = union(
        times([(begins_s, min(ends_s, begins_s + max(grace_s, lost_s))), (ends_s, ends_s + grace_s)])
        for begins_s, ends_s in lasting
    )
    settled = left((0.0, scenario.chaos_s + scenario.settled_s), exempt)
    longest_s = max((end - start for start, end in settled), default=0.0)
    if longest_s >= demanded.window_s:
        return ""
    return (
        f"throughput may be UNKNOWN: no {demanded.window_s:g} s of the load surely lie {lost_s:g} s after a node or "
        f"link is lost, and {grace_s:g} s after other changes (the longest time is {longest_s:.1f} s); let the load go "
        f"on for {grace_s + demanded.window_s + 1:g} s after recovery (phases.settled_s), or let a step last for more "
        f"than {lost_s + demanded.window_s:g} s"
    )


def _lost_grace_s(scenario: Scenario, demanded: Throughput) -> float:
    """Return how long throughput waits after a loss, with the version that lets it wait longest."""
    if demanded.lost_grace_s is not None:
        return demanded.lost_grace_s
    allowed, topology = Availability(), scenario.topology
    timeout_s = scenario.workload.confirms_within_s
    longest_s = allowed.last_confirms_s(
        net_ticktime_s=topology.net_ticktime_s,
        confirm_timeout_s=0.0 if timeout_s is None else timeout_s,
        nodes=len(topology.nodes),
    )
    return longest_s - allowed.grace_s
