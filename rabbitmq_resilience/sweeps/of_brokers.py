"""What a run tells of its brokers: their processors and memory, what they took before the load, and whom they held for
gone."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from statistics import median

from rabbitmq_resilience.invariants.measured import curves, of_nodes
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.record.events import IdleEvent, NodesEvent, SampleEvent, SetUpEvent, WorkerEvent
from rabbitmq_resilience.sweeps.seen import Seen

#: Of fewer connections the memory is lost in what brokers take and give back anyway.
CONNECTIONS_MIN = 100


def brokers_cores(seen: Seen) -> float | None:
    """CPU-seconds a second of all brokers together, by their own account."""
    if seen.span_us is None:
        return None
    told = [curve.within(*seen.span_us).values for curve in of_nodes(curves(seen.history.metrics, "cores")).values()]
    seconds_seen = max(map(len, told), default=0)  # each value stands for one; a node that is down has none
    return sum(float(values.sum()) for values in told) / seconds_seen if seconds_seen else None


def messages_per_core_s(seen: Seen) -> float | None:
    """Confirmed messages for each CPU-second of the brokers."""
    cores, rate_per_s = brokers_cores(seen), seen.confirmed_per_s
    return rate_per_s / cores if cores and rate_per_s is not None else None


def memory_mb(seen: Seen) -> float | None:
    """Of all brokers together, in the middle of the span."""
    if seen.span_us is None:
        return None
    first_us, last_us = seen.span_us
    return _memory_mb(e for e in seen.history.facts.of_kind(SampleEvent) if first_us <= e.t_us <= last_us)


def connection_kb(seen: Seen) -> float | None:
    """By how much the memory of all brokers grew with the idle connections, for each of them: from the last look before
    the first client was there. None where that look did not tell of all brokers, or there are too few of them."""
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


def _memory_mb(samples: Iterable[SampleEvent]) -> float | None:
    told = [_mb(e.memory_bytes) for e in samples if e.memory_bytes]
    return median(told) if told else None


def set_up_per_s(what: str, seen: Seen) -> float | None:
    """Queues or bindings that brokers took a second, before the load."""
    told = [e for e in seen.history.facts.of_kind(SetUpEvent) if e.what == what]
    took_s = sum(e.took_s for e in told)
    return sum(e.count for e in told) / took_s if took_s else None


def parted_nodes(seen: Seen) -> float | None:
    """How many nodes took what happened for a partition: they paused, or told of one."""
    facts = seen.history.facts
    if "steady" not in facts.phases:
        return None
    begun_us = facts.phases["steady"]
    paused = {n for e in facts.of_kind(NodesEvent) for n, s in e.states.items() if s == "paused" and e.t_us >= begun_us}
    told = {node for e in facts.of_kind(SampleEvent) if e.t_us >= begun_us for node in e.partitions}
    return float(len(paused | told))


def cleaned_up_s(seen: Seen) -> float | None:
    """From when the first node that went was last seen up until the others tell of no queue that it leads any more:
    they elected others, deleted it, or told that it is down. Infinity where they did not before it was back."""
    gone = _gone(seen)
    if gone is None:
        return None
    node, up_us, back_us = gone
    for sample in seen.history.facts.of_kind(SampleEvent):
        is_of_others = up_us < sample.t_us < back_us and sample.node != node
        if is_of_others and not any(queue.get("leader") == node for queue in sample.queues.values()):
            return seconds(sample.t_us - up_us)
    return math.inf


def _gone(seen: Seen) -> tuple[str, float, float] | None:
    """The first node that went in the chaos phase, when it was last seen up before, and when it was so again."""
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
                return node, up_us[node], facts.first_up_us(node, after_us=t_us)
    return None
