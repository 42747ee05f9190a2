"""How long a cut must last to mean something, and which promises are demanded: shared by the partition suites."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.pauses import RESTARTED_WITHIN_S, pause_margin_s
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.durations import TICKS_MAX
from rabbitmq_resilience.model.topology import PauseIfAllDown, Topology
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.guarantees import (
    WINDOW_S,
    promised,
    promising,
    stall_s_max,
    throughput_kept,
    versions,
)
from rabbitmq_resilience.scenario.known_defects import DOES_NOT_PAUSE, as_demanded
from rabbitmq_resilience.scenario.model import Phases, Scenario
from rabbitmq_resilience.workload.queue_settings import Mirroring
from rabbitmq_resilience.workload.workload_model import Workload

QUEUE_TYPES = ("quorum", "mirrored")

FIRST_STEP_S = 1.0
RECOVERED_WITHIN_S = 30.0
#: In larger clusters two nodes or more may be cut off. If they do not pause, publishers try them one after another, and
#: that must take no longer than a queue may stand still.
MINORITIES_OF_ONE_UNTIL = 4
IMPATIENT_S = 5.0


def noticed_s(net_ticktime_s: int) -> float:
    """Return the longest time that Erlang takes to notice a silent peer: kernel(6), net_ticktime."""
    return TICKS_MAX * net_ticktime_s


def long_cut_s(topology: Topology) -> float:
    """Return how long a long cut lasts: longer than a queue with a majority may stand still, so that a stuck queue is
    not mistaken for a waiting one; and longer than any node may take to act."""
    return max(stall_s_max(topology.net_ticktime_s) + 2 * WINDOW_S, acted_upon_s(topology))


def short_cut_s(net_ticktime_s: int) -> float:
    """Return how long a short cut lasts: no node can have noticed it, but every link has a tick to hold back, as ticks
    come after a quarter of net_ticktime."""
    return 0.5 * net_ticktime_s


def acted_upon_s(topology: Topology) -> float:
    """Return the longest time until every node has noticed a cut and acted by its mode, and one window more."""
    return noticed_s(topology.net_ticktime_s) + pause_margin_s(len(topology.nodes)) + WINDOW_S


def workload(queue_type: str, **fields: Any) -> Workload:
    """Return the same load for all queue types: three queues, led from different zones unless ``fields`` say
    otherwise."""
    common: dict[str, Any] = {"queues": 3, "publishers": 3, "consumers": 3, "rate_per_s": 450, **fields}
    if queue_type == "mirrored":
        return Workload(queue_type="mirrored", **{"mirroring": Mirroring(), **common})
    return Workload.model_validate({"queue_type": queue_type, **common})


def on_all_nodes(queue_type: str, topology: Topology) -> dict[str, int]:
    """Return members on every node. With five members on seven nodes, most may be in the zone that is cut off, and no
    side could go on."""
    return {"group_size": len(topology.nodes)} if queue_type == "quorum" else {}


def shape(topology: str, net_ticktime_s: int, mode: str = "pause_minority", **choice: Any) -> Topology:
    """Return a topology of the catalogue in that mode; ``choice`` are the fields of ``pause_if_all_down``."""
    handling = {"partition_handling": mode, "pause_if_all_down": PauseIfAllDown(**choice) if choice else None}
    return topology_catalogue.load(topology).model_copy(update={"net_ticktime_s": net_ticktime_s, **handling})


def partition_scenario(
    title: str,
    topology: Topology,
    workload: Workload,
    *schedule: AnyFault,
    settled_after_s: float | None = None,
    without: Sequence[str] = (),
    expect: Sequence[Expectation] = (),
) -> Scenario:
    """Return a scenario that demands every promise of its cluster, except those named in ``without``. It expects what
    any cut may cause, in addition to ``expect``.

    Throughput is demanded ``settled_after_s`` after each change, by default once no queue may stand still any more. The
    load goes on for that long after recovery, and for two windows more, if the cut itself leaves no time for them.
    """
    if len(topology.nodes) > MINORITIES_OF_ONE_UNTIL:
        workload = workload.model_copy(update={"confirm_timeout_s": IMPATIENT_S})
    grace_s = stall_s_max(topology.net_ticktime_s) if settled_after_s is None else settled_after_s
    restarts_s = 0.0 if topology.partition_handling == "pause_minority" else RESTARTED_WITHIN_S
    settled_s = WINDOW_S if settled_after_s is None else settled_after_s + restarts_s + 2 * WINDOW_S
    demanded: dict[str, Mapping[str, Any] | None] = {
        **promised(topology, recovered_within_s=RECOVERED_WITHIN_S),
        "throughput": throughput_kept(grace_s=grace_s),
        "partition_mode": {},
        **dict.fromkeys(without),
    }
    chosen = [name for name, bounds in demanded.items() if bounds is not None]
    pauses = topology.partition_handling == "pause_minority" and "partition_mode" in chosen
    known = as_demanded(DOES_NOT_PAUSE if pauses else (), chosen)
    # The modes have no effect from 4.3 on: only promises of any cluster are kept there.
    lasting = workload.queue_type == "quorum" and topology.partition_handling == "pause_minority"
    return promising(
        title,
        topology,
        workload,
        schedule,
        demanded=demanded,
        phases=Phases(steady_s=5, recovery_s=60, settled_s=settled_s, drain_s=60),
        broker=versions(workload, until="" if lasting else "4.3"),
        expect=(*expect, *known),
    )


def assert_paused(result: Result, nodes: str) -> None:
    """Assert that just these nodes had to pause, or none if no mode has an effect. Nodes of 4.0 may need longer than
    the cut lasts; then nothing was demanded of them."""
    cluster = Facts(result.run.events()).cluster
    assert cluster is not None, "the run does not say which nodes its cluster had"
    expected = nodes if cluster.handles_partitions else ""
    seen = str(result.document["invariants"]["partition_mode"]["numbers"]["had_to_pause"])
    too_short = cluster.broker_version >= (4,) and not seen
    assert too_short or sorted(seen.split()) == sorted(expected.split()), f"{seen} had to pause, not {expected}"


def nodes_of(topology: Topology, zone: str) -> str:
    return " ".join(node.name for node in topology.nodes if node.zone == zone)
