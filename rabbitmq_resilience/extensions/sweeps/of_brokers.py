"""Measure the brokers of a run: processors, memory, queue depths, set-up rates, and how they saw a lost node."""

from __future__ import annotations

import math
from collections.abc import Mapping
from itertools import pairwise
from statistics import median

import numpy as np

from rabbitmq_resilience.checkers.backlog import depths_of
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import gaps
from rabbitmq_resilience.checkers.measured import curves, of_nodes
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.extensions.sweeps.results import Depth
from rabbitmq_resilience.extensions.sweeps.seen import JudgedRun
from rabbitmq_resilience.history.events import IdleEvent, SampleEvent, SetUpEvent, WorkerEvent

#: The memory of fewer connections is lost in the usual changes of a broker's memory.
CONNECTIONS_MIN = 100
#: The longest gap between samples of queues for which they count as observed. Samples are taken every second; after the
#: loss of a node, brokers may delay one for 8 s.
UNLOOKED_S_MAX = 5.0
#: For how many moments the depth of the queues is kept.
MOMENTS_MAX = 120


def brokers_cores(seen: JudgedRun) -> float | None:
    """Return the CPU-seconds a second of all brokers together, by their own metrics.

    Each broker counts with its mean, times the part of the span in which it ran. None if one ran without metrics, or if
    it is unknown whether it ran."""
    facts, span_us = seen.history.facts, seen.span_us
    if span_us is None or facts.cluster is None:
        return None
    found = of_nodes(curves(seen.history.metrics, "cores"))
    cores = 0.0
    for node in facts.cluster.nodes:
        running = _running(facts, node, span_us)
        samples = found[node].within(*span_us).values if node in found else ()
        if running is None or (running and not len(samples)):
            return None
        cores += running * float(np.mean(samples)) if running else 0.0
    return cores


def _running(facts: Facts, node: str, span_us: Period) -> float | None:
    """Return the part of the node's samples in which it was not down; None without samples."""
    looks = [states[node] for t_us, states in facts.node_states if span_us[0] <= t_us <= span_us[1] and node in states]
    return sum(state != "down" for state in looks) / len(looks) if looks else None


def messages_per_core_s(seen: JudgedRun) -> float | None:
    """Return the confirmed messages for each CPU-second of the brokers."""
    cores, rate_per_s = brokers_cores(seen), seen.confirmed_per_s
    return rate_per_s / cores if cores and rate_per_s is not None else None


def memory_mb(seen: JudgedRun) -> float | None:
    """Return the memory of all brokers together: the median of the samples in the span that have every broker."""
    facts = seen.history.facts
    if seen.span_us is None or facts.cluster is None:
        return None
    first_us, last_us = seen.span_us
    looks = (e.memory_bytes for e in facts.of_kind(SampleEvent) if first_us <= e.t_us <= last_us)
    complete = [_mb(look) for look in looks if look.keys() == set(facts.cluster.nodes)]
    return median(complete) if complete else None


def depth_max(seen: JudgedRun) -> float | None:
    """Return the most messages that all queues held together; None if a gap in the samples may hide the peak."""
    if seen.span_us is None:
        return None
    first_us, last_us = seen.span_us
    samples = list(depths_of(seen.history.facts))
    if gaps([t_us for t_us, _ in samples], seen.span_us, longer_than_s=UNLOOKED_S_MAX):
        return None
    return max((float(held) for t_us, held in samples if first_us <= t_us <= last_us), default=None)


def depth_over_time(seen: JudgedRun) -> list[Depth]:
    """Return what the queues held over time, as about MOMENTS_MAX samples.

    Each is the highest one of a stretch, so that no peak is lost. A gap in the samples is marked by None."""
    facts = seen.history.facts
    begun_us = facts.phases.get("chaos", facts.origin_us)
    samples = [(round(seconds(t_us - begun_us), 2), held) for t_us, held in depths_of(facts)]
    each = -(-len(samples) // MOMENTS_MAX) or 1
    ends = [i for i in range(1, len(samples)) if samples[i][0] - samples[i - 1][0] > UNLOOKED_S_MAX]
    found: list[Depth] = []
    for first, last in pairwise([0, *ends, len(samples)]):
        if first:
            found.append(((samples[first - 1][0] + samples[first][0]) / 2, None))
        stretches = (samples[i : min(i + each, last)] for i in range(first, last, each))
        found.extend(max(stretch, key=lambda moment: moment[1]) for stretch in stretches)
    return found


def connection_kb(seen: JudgedRun) -> float | None:
    """Return by how much the memory of all brokers grew for each idle connection.

    It is compared with the last sample before the first client connected. None if that sample lacks a broker, or if
    there are fewer than CONNECTIONS_MIN idle connections."""
    facts, now_mb = seen.history.facts, memory_mb(seen)
    begun_us = min((e.t_us for e in facts.of_kind(WorkerEvent) if e.event == "connected"), default=math.inf)
    begun_us = min([begun_us, *(e.t_us for e in facts.of_kind(IdleEvent))])
    before = [e.memory_bytes for e in facts.of_kind(SampleEvent) if e.t_us < begun_us][-1:]
    connections = sum({e.worker: e.connected for e in facts.of_kind(IdleEvent)}.values())
    nodes = set(facts.cluster.nodes) if facts.cluster else set()
    if now_mb is None or not before or before[0].keys() != nodes or connections < CONNECTIONS_MIN:
        return None
    return (now_mb - _mb(before[0])) * 1024 / connections


def _mb(memory_bytes: Mapping[str, int]) -> float:
    return sum(memory_bytes.values()) / 2**20


def set_up_per_s(what: str, seen: JudgedRun) -> float | None:
    """Return how many queues or bindings (``what``) brokers declared a second, before the load."""
    events = [e for e in seen.history.facts.of_kind(SetUpEvent) if e.what == what]
    took_s = sum(e.took_s for e in events)
    return sum(e.count for e in events) / took_s if took_s else None


def parted_nodes(seen: JudgedRun) -> float | None:
    """Return how many nodes saw a partition: they paused, or reported one.

    A broker that starts looks paused too. So only a node that was up in the sample before counts as paused."""
    facts = seen.history.facts
    if "steady" not in facts.phases:
        return None
    begun_us = facts.phases["steady"]
    paused, before = set(), dict[str, str]()
    for t_us, states in facts.node_states:
        paused |= {n for n, s in states.items() if s == "paused" and before.get(n) == "up" and t_us >= begun_us}
        before |= states
    reported = {node for e in facts.of_kind(SampleEvent) if e.t_us >= begun_us for node in e.partitions}
    return float(len(paused | reported))


def cleaned_up_s(seen: JudgedRun) -> float | None:
    """Return how long after the loss of a node the other brokers still list queues that it leads.

    The time begins when the first lost node was last seen up. It ends when the others list no queue with that leader:
    they elected another one, deleted the queue, or report it as down. Infinity if they did not while the node was
    surely away. None if the node led no queue, or if a gap in the samples may hide the end."""
    gone = _gone(seen)
    if gone is None:
        return None
    node, up_us, away_us = gone
    looks = list(seen.history.facts.of_kind(SampleEvent))
    before = [_leads(node, look) for look in looks if look.t_us <= up_us][-1:]
    after = [(look.t_us, _leads(node, look)) for look in looks if up_us < look.t_us <= away_us and look.node != node]
    if before == [False] and not any(leads for _, leads in after):
        return None
    ill_us = max((t_us for t_us, leads in after if leads), default=up_us)
    clean_us = next((t_us for t_us, _ in after if t_us > ill_us), math.inf)
    unlooked_us = min(clean_us, away_us) - ill_us
    return seconds(clean_us - up_us) if unlooked_us <= UNLOOKED_S_MAX * 1e6 else None


def _leads(node: str, look: SampleEvent) -> bool:
    return any(queue.get("leader") == node for queue in look.queues.values())


def _gone(seen: JudgedRun) -> tuple[str, float, float] | None:
    """Return (node, last time up, until when surely away) of the first node that was lost in the chaos phase.

    A node that starts again looks paused, and leads its queues before it serves clients."""
    facts = seen.history.facts
    chaos_us = facts.phases.get("chaos")
    if chaos_us is None:
        return None
    up_us: dict[str, int] = {}
    for t_us, states in facts.node_states:
        for node, state in states.items():
            if state == "up":
                up_us[node] = t_us
            elif t_us >= chaos_us and node in up_us:
                return node, up_us[node], _away_us(facts, node, t_us)
    return None


def _away_us(facts: Facts, node: str, gone_us: float) -> float:
    """Return until when the lost ``node`` was surely away.

    That is when it was last seen down or suspended before it was back. If it only paused, that is when its links
    healed, at the latest when it was back. If it did not come back, the last sample takes the place of that time."""
    back_us = min(facts.first_up_us(node, after_us=gone_us), facts.node_states[-1][0])
    states = [(t_us, states.get(node)) for t_us, states in facts.node_states if gone_us <= t_us <= back_us]
    if stopped := [t_us for t_us, state in states if state in ("down", "suspended")]:
        return stopped[-1]
    return min([back_us, *(step.sure_us[1] for step in facts.steps if step.cut and step.sure_us[1] >= gone_us)])
