"""Check that no broker ends by itself."""

from __future__ import annotations

from collections.abc import Mapping
from typing import ClassVar

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fault_timeline import truth_of
from rabbitmq_resilience.checkers.gaps import UNSEEN_S_MAX, gaps, lasting_s
from rabbitmq_resilience.checkers.times import Times, times
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import EXAMPLES_MAX, Coverage, Finding, History, InvariantSpec, Verdict


class NoCrash(InvariantSpec):
    """No node's process is seen gone. Exempt are nodes that a step took away, until they are seen up again, and nodes
    that a step starved of memory or CPU, as the kernel may end them. ``partition_mode`` judges a node that stops
    serving and keeps its process. A process that was gone and back between two sightings is not noticed. If the
    observer did not look at a node for 10 s, the verdict is UNKNOWN."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun"})

    def check(self, history: History) -> Finding:
        facts = history.facts
        start_us, end_us = facts.phases.get("steady"), facts.phases.get("end", facts.phases.get("drain"))
        if facts.cluster is None or start_us is None or end_us is None or not facts.node_states:
            return Finding(Verdict.UNKNOWN, "the events do not show the cluster and the states of its nodes")
        gone = {node: _gone_us(facts, node, may) for node, may in _may_be_gone(facts, facts.cluster).items()}
        crashed = {node: t_us for node, t_us in gone.items() if t_us is not None and t_us < end_us}
        span = float(start_us), float(end_us)
        looks = {node: [t for t, states in facts.node_states if node in states] for node in facts.cluster.nodes}
        blind = {node: gaps(moments, span, longer_than_s=UNSEEN_S_MAX) for node, moments in looks.items()}
        least = max(blind, key=lambda node: lasting_s(blind[node]))
        demanded_s = seconds(span[1] - span[0])
        coverage = Coverage(round(demanded_s - lasting_s(blind[least]), 3), demanded_s)
        numbers = {"crashed": " ".join(crashed)}
        none = "no broker ended by itself"
        if gave_up := [node for node in facts.cluster.nodes if _ended_while_starting(facts, facts.cluster, node)]:
            none = f"no broker that was up ended by itself; {', '.join(gave_up)} ended while starting"
        if crashed:
            texts = [
                f"the process of {node} was gone at {facts.at(t_us)} though no step had taken it away, "
                f"{facts.faults_during(t_us, t_us)}"
                for node, t_us in sorted(crashed.items(), key=lambda item: item[1])
            ]
            return Finding(Verdict.INVALID, texts[0], numbers, tuple(texts[:EXAMPLES_MAX]), coverage)
        if blind[least]:
            since = " to ".join(map(facts.at, blind[least][0]))
            unseen = f"the observer did not look at {least} from {since}"
            summary = f"{unseen}; in the observed time, {none}"
            return Finding(Verdict.UNKNOWN, summary, numbers, (), coverage)
        return Finding(Verdict.VALID, none, numbers, (), coverage)


def _may_be_gone(facts: Facts, cluster: ClusterFacts) -> Mapping[str, Times]:
    """Return for each node when it may be gone: away or starved by a step, until it was seen up again."""
    truth = truth_of(facts, cluster)
    starved = {node: [s for s in facts.steps if s.injected and node in s.starved] for node in cluster.nodes}
    return {
        node: truth.away[node].possibly
        | times((step.possible_us[0], facts.first_up_us(node, after_us=step.possible_us[1])) for step in starved[node])
        for node in cluster.nodes
    }


def _ended_while_starting(facts: Facts, cluster: ClusterFacts, node: str) -> bool:
    """Return whether the process of ``node`` was there after a step had let it start again, and was gone before the
    node was seen up, with no step acting on it."""
    steps = [step for step in truth_of(facts, cluster).steps if step.injected and node in step.down]
    for step in steps:
        healed_us = step.possible_us[1]
        there = False
        for t_us, states in facts.sightings(healed_us, facts.first_up_us(node, after_us=healed_us)):
            acting = any(other.possible_us[0] <= t_us <= other.possible_us[1] for other in steps)
            if there and not acting and states.get(node) == "down":
                return True
            there = not acting and (there or states.get(node, "down") != "down")
    return False


def _gone_us(facts: Facts, node: str, may: Times) -> float | None:
    """Return when the process of ``node`` was first seen gone outside ``may``; None if it was not."""
    seen = (t_us for t_us, states in facts.node_states if states.get(node) == "down" and t_us not in may)
    return next(seen, None)
