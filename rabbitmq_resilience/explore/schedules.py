"""Draw schedules by Hypothesis. They are valid by construction, and use only faults that the driver offers.

Some faults take brokers away, cut them off or make them do something. Others, at the same time, slow links down, cut
clients off or kill them. A step begins at a drawn time, or later, as soon as the effect of each step can surely be
distinguished from the others (``nemesis.combining``). So faults overlap in every way that lets each be proven.

A run takes half a minute in addition to its faults. Therefore a run has several faults, and shrinking finds those that
matter.

Faults that need a preloaded library are drawn where set-up has built it.

Not drawn: ``lose_disk`` and ``damage_file`` (nothing is promised if a second member is away before the first is in sync
again), faults of packets and containers (``netem``, ``limit``, ``stress`` and so on), steps that wait for a
condition, and flapping links of clients (clients notice them too seldom for a proof).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from pydantic import TypeAdapter

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.combining import surely_provable
from rabbitmq_resilience.nemesis.fault_catalogue import FAULTS, AnyFault
from rabbitmq_resilience.nemesis.targets import node_problems
from rabbitmq_resilience.sut.drivers import DRIVERS
from rabbitmq_resilience.sut.preload.library import find_build
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.workload.workload_base import WorkloadBase

#: The fields of a fault, except its beginning.
Fields = dict[str, Any]
Drawn = Callable[[Topology, WorkloadBase], SearchStrategy[Fields]]

BROKER_FAULTS_MIN, BROKER_FAULTS_MAX = 4, 6
OTHER_FAULTS_MIN, OTHER_FAULTS_MAX = 2, 3
#: When steps begin; a step that cannot be distinguished from the others at that time begins later.
FIRST_STEP_S, LAST_STEP_S = 1.0, 12.0
#: The longest cut, in multiples of ``net_ticktime``: all nodes have reacted by then, so a longer one shows no more.
CUT_TICKS_MAX = 4
AWAY_S_MAX = 8.0
#: How much later to try a step again that cannot be distinguished from the others.
LATER_S = 2.0
#: Durations of faults that end before a broker or client can notice. Shorter ones are not drawn: on a busy machine
#: brokers get no processor for such times, and a cut at that time proves nothing.
BLIPS_S = (0.5, 1.0)
#: What is older survives a power cut: brokers of 4.0 do not flush the name of a new queue's configuration.
WRITTEN_BACK_S = 8.0
#: A broker with free space checks its disk only every 10 s, and an alarm that the broker did not raise proves nothing.
ALARM_S = (15, 18)

_ADAPTER: TypeAdapter[AnyFault] = TypeAdapter(AnyFault)


def _seconds(least: float, most: float) -> SearchStrategy[float]:
    """Draw seconds in tenths, which are easy to read; Hypothesis draws the least first."""
    return st.integers(round(least * 10), round(most * 10)).map(lambda tenths: tenths / 10)


def _nodes(topology: Topology, workload: WorkloadBase) -> SearchStrategy[str]:
    by_role = [f"{role}:{queue}" for role in ("leader", "follower") for queue in workload.queue_names or ()]
    if workload.queue_type == "classic":
        by_role = [target for target in by_role if target.startswith("leader:")]
    targets = [*topology.node_names, *_zones(topology), *by_role, "minority", "majority", "all"]
    return st.sampled_from([target for target in targets if not node_problems(target, topology, workload)])


def _zones(topology: Topology) -> Sequence[str]:
    return [f"zone:{zone}" for zone in topology.zones]


def _sides(topology: Topology, workload: WorkloadBase) -> SearchStrategy[Sequence[str]]:
    """Draw the sides of a cut: one part and the rest, all zones, or a single pair of nodes."""
    zones = _zones(topology) if len(topology.zones) > 1 else []
    leaders = [f"leader:{queue}" for queue in workload.queue_names or ()]
    targets = [*topology.node_names, *zones, *leaders, "minority"]
    parts = [target for target in targets if not node_problems(target, topology, workload)]
    pairs = st.lists(st.sampled_from(topology.node_names), min_size=2, max_size=2, unique=True)
    of_zones = [st.just(zones)] if zones else []
    return st.one_of(st.sampled_from(parts).map(lambda part: [part, "rest"]), *of_zones, pairs)


def _cut_s(topology: Topology) -> SearchStrategy[float]:
    return st.one_of(st.sampled_from(BLIPS_S), _seconds(1, CUT_TICKS_MAX * topology.net_ticktime_s))


@st.composite
def _partition(draw: st.DrawFn, topology: Topology, workload: WorkloadBase) -> Fields:
    sides = draw(_sides(topology, workload))
    one_way = len(sides) == 2 and draw(st.booleans())
    return {"between": sides, "one_way": one_way, "for_s": draw(_cut_s(topology))}


@st.composite
def _disconnect(draw: st.DrawFn, topology: Topology, workload: WorkloadBase) -> Fields:
    return {"between": draw(_sides(topology, workload)), "for_s": draw(_cut_s(topology))}


@st.composite
def _flapping(draw: st.DrawFn, topology: Topology, workload: WorkloadBase) -> Fields:
    period_s, times = draw(st.sampled_from([1.0, 2.0, 4.0])), draw(st.integers(3, 6))
    return {"between": draw(_sides(topology, workload)), "period_s": period_s, "for_s": period_s * times}


def _taken(topology: Topology, workload: WorkloadBase) -> SearchStrategy[Fields]:
    return st.fixed_dictionaries({"node": _nodes(topology, workload), "for_s": _seconds(0.5, AWAY_S_MAX)})


@st.composite
def _power_cut(draw: st.DrawFn, topology: Topology, workload: WorkloadBase) -> Fields:
    """Draw a power cut, of any nodes of a cluster that promises to keep what it confirmed. ``ext4`` comes first, as it
    takes least."""
    file_system, torn = draw(st.sampled_from(["ext4", "ordered", "posix"])), draw(st.booleans())
    kept = {"file_system": file_system, "torn": torn, "written_back_after_s": WRITTEN_BACK_S}
    return {**draw(_taken(topology, workload)), **kept}


@st.composite
def _slow_disk(draw: st.DrawFn, topology: Topology, workload: WorkloadBase) -> Fields:
    node, flush_ms = draw(_nodes(topology, workload)), draw(st.sampled_from([50.0, 200.0, 1000.0]))
    return {"node": node, "flush_ms": flush_ms, "for_s": draw(_seconds(10, 20))}


@st.composite
def _stop(draw: st.DrawFn, topology: Topology, workload: WorkloadBase) -> Fields:
    """Draw a stop. A drained node moves its leaders to others, so only a single node of several is drained."""
    drain = len(topology.nodes) > 1 and draw(st.booleans())
    node = draw(st.sampled_from(topology.node_names) if drain else _nodes(topology, workload))
    return {"node": node, "drain": drain, "for_s": draw(_seconds(0.5, AWAY_S_MAX))}


@st.composite
def _alarm(draw: st.DrawFn, topology: Topology, workload: WorkloadBase) -> Fields:  # noqa: ARG001 - one form for all
    resource = draw(st.sampled_from(["memory", "disk"]))
    return {"node": draw(st.sampled_from(topology.node_names)), "resource": resource, "for_s": draw(_seconds(*ALARM_S))}


def _rebalance(topology: Topology, workload: WorkloadBase) -> SearchStrategy[Fields]:  # noqa: ARG001 - one form for all
    return st.just({"for_s": 10.0})


@st.composite
def _latency(draw: st.DrawFn, topology: Topology, workload: WorkloadBase) -> Fields:  # noqa: ARG001 - one form for all
    ends = draw(st.lists(st.sampled_from(_zones(topology)), min_size=2, max_size=2, unique=True))
    latency_ms = draw(st.integers(2, 20)) * 10
    jitter_ms = draw(st.integers(0, latency_ms // 20)) * 10
    links = draw(st.sampled_from([" -> ", " <-> "])).join(ends)
    return {"links": links, "latency_ms": latency_ms, "jitter_ms": jitter_ms, "for_s": draw(_seconds(2, 20))}


def _client_killed(topology: Topology, workload: WorkloadBase) -> SearchStrategy[Fields]:  # noqa: ARG001 - one form for all
    return st.fixed_dictionaries({"client": st.sampled_from(workload.clients), "for_s": _seconds(0.5, AWAY_S_MAX)})


@st.composite
def _client_cut(draw: st.DrawFn, topology: Topology, workload: WorkloadBase) -> Fields:  # noqa: ARG001 - one form for all
    """Draw a cut of a client for up to three heartbeats: by then both sides have closed the connection."""
    sides = draw(st.permutations([draw(st.sampled_from(workload.clients)), "all"]))
    for_s = draw(st.one_of(st.sampled_from(BLIPS_S), _seconds(1, 3 * workload.heartbeat_interval_s)))
    return {"between": sides, "one_way": draw(st.booleans()), "for_s": for_s}


@st.composite
def _client_reset(draw: st.DrawFn, topology: Topology, workload: WorkloadBase) -> Fields:  # noqa: ARG001 - one form for all
    return {
        "between": [draw(st.sampled_from(workload.clients)), "all"],
        "for_s": draw(st.sampled_from([*BLIPS_S, 2.0])),
    }


#: Faults of brokers, with what draws their fields. Faults that are drawn more often are listed several times.
OF_BROKERS: Sequence[tuple[str, Drawn]] = (
    ("kill", _taken),
    ("kill", _taken),
    ("partition", _partition),
    ("partition", _partition),
    ("disconnect", _disconnect),
    ("flapping", _flapping),
    ("pause", _taken),
    ("stop", _stop),
    ("power_cut", _power_cut),
    ("slow_disk", _slow_disk),
    ("alarm", _alarm),
    ("rebalance", _rebalance),
)
#: The same for faults of links and clients.
OF_LINKS_AND_CLIENTS: Sequence[tuple[str, Drawn]] = (
    ("latency", _latency),
    ("kill_client", _client_killed),
    ("partition", _client_cut),
    ("disconnect", _client_reset),
)
#: Faults that need several nodes, and those that need several zones.
_BETWEEN_NODES: Sequence[Drawn] = (_partition, _disconnect, _flapping)
_BETWEEN_ZONES: Sequence[Drawn] = (_latency,)


@st.composite
def schedules(draw: st.DrawFn, topology: Topology, workload: WorkloadBase, driver: str) -> tuple[AnyFault, ...]:
    """Draw steps in the order of their times, each of a kind that ``driver`` offers."""
    broken = draw(_some(_possible(OF_BROKERS, topology, workload, driver), BROKER_FAULTS_MIN, BROKER_FAULTS_MAX))
    others = draw(
        _some(_possible(OF_LINKS_AND_CLIENTS, topology, workload, driver), OTHER_FAULTS_MIN, OTHER_FAULTS_MAX)
    )
    steps: list[AnyFault] = []
    for kind, drawn in draw(st.permutations([*broken, *others])):
        begins_s = draw(_seconds(FIRST_STEP_S, LAST_STEP_S))
        steps.append(_provable(steps, {"fault": kind, "at_s": begins_s, **draw(drawn(topology, workload))}, topology))
    return tuple(sorted(steps, key=lambda step: step.at_s or 0.0))


def _provable(steps: Sequence[AnyFault], fields: Fields, topology: Topology) -> AnyFault:
    """Return the step with these fields, at its time or as soon after it as all steps can surely be proven."""
    at_s = fields["at_s"]
    while True:
        step = _ADAPTER.validate_python({**fields, "at_s": round(at_s, 2)})
        if surely_provable([*steps, step], topology):
            return step
        at_s += LATER_S


def _some(kinds: Sequence[tuple[str, Drawn]], least: int, most: int) -> SearchStrategy[list[tuple[str, Drawn]]]:
    return st.lists(st.sampled_from(kinds), min_size=least, max_size=most)


def _possible(
    kinds: Sequence[tuple[str, Drawn]], topology: Topology, workload: WorkloadBase, driver: str
) -> Sequence[tuple[str, Drawn]]:
    too_few = [
        *(_BETWEEN_NODES if len(topology.nodes) == 1 else ()),
        *(_BETWEEN_ZONES if len(topology.zones) == 1 else ()),
    ]
    offered = DRIVERS[driver].offers - ({"data"} if not _has_disk_faults() or _may_lose(workload) else set())
    return [(kind, drawn) for kind, drawn in kinds if FAULTS[kind].acts_on in offered and drawn not in too_few]


def _has_disk_faults() -> bool:
    try:
        find_build()
    except ToolMissingError:
        return False
    return True


def _may_lose(workload: WorkloadBase) -> bool:
    """Return whether brokers since 3.13 lose confirmed messages by design if the power is cut."""
    return workload.queue_type == "classic"
