"""What the partition suites share: how long a cut must last to mean something, and which promises are demanded."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

from faults.catalogue import AnyFault
from faults.scenario import Expectation, Invariants, Phases, Scenario
from invariants.availability import Availability
from invariants.facts import Facts
from invariants.pauses import RESTARTED_WITHIN_S, pause_margin_s
from invariants.situations import TICKS_MAX
from invariants.verdict import Verdict
from suites.judging import Result
from topologies import catalogue
from topologies.spec import PauseIfAllDown, Topology
from workloads.spec import Mirroring, Workload

QUEUE_TYPES = ("quorum", "mirrored")

#: For clients to connect elsewhere and for leaders to be elected.
ELECTED_AFTER_S = 5.0
WINDOW_S = 2.5
FIRST_STEP_S = 1.0
RECOVERED_WITHIN_S = 30.0


#: A node that comes back may wait for ever for Erlang's global names, without a word after those of peer discovery
#: (rabbit_mnesia:init/0 ends in global:sync/0).
HANGS_IN_GLOBAL_SYNC = Expectation(
    broker="<3.11",
    verdict=Verdict.INVALID,
    invariant="recovery",
    also=("availability", "throughput"),
    reference="rabbitmq/rabbitmq-server#5438",
    always=False,
    log=r"skipping registration\.(?!.*Running boot step)",
)


#: A mirror that is started just then waits for the supervisor that waits for it, and the node never ends its stop.
HANGS_WHILE_STOPPING = Expectation(
    broker="<4",
    verdict=Verdict.INVALID,
    invariant="recovery",
    also=("availability", "throughput"),
    reference="rabbitmq/rabbitmq-server#4241",
    always=False,
    log=r"RabbitMQ is asked to stop(?!.*Successfully stopped RabbitMQ)",
)


def known_hangs(workload: Workload, *, demanded: Collection[str]) -> tuple[Expectation, ...]:
    """What may keep any node away that comes back, and what may break in consequence of that which is demanded."""
    known = (HANGS_IN_GLOBAL_SYNC, *([HANGS_WHILE_STOPPING] if workload.queue_type == "mirrored" else []))
    return tuple(
        hang.model_copy(update={"also": tuple(name for name in hang.also if name in demanded)}) for hang in known
    )


def noticed_s(net_ticktime_s: int) -> float:
    """The longest that Erlang takes to notice a silent peer: kernel(6), net_ticktime."""
    return TICKS_MAX * net_ticktime_s


def stall_s_max(net_ticktime_s: int) -> float:
    """The longest that a queue with a majority may stand still: the cut is noticed; a publisher that is then served
    by a broker which still takes the old leader for the leader gets no confirm until its patience ends, and goes
    elsewhere."""
    return Availability().bound_s(net_ticktime_s)


def long_cut_s(topology: Topology) -> float:
    """Longer than any queue with a majority may stand still, so that one that does is told from one that waits; and
    longer than any node may take to act."""
    return max(stall_s_max(topology.net_ticktime_s) + 2 * WINDOW_S, acted_upon_s(topology))


def short_cut_s(net_ticktime_s: int) -> float:
    """Over before anybody can have noticed, yet longer than a quarter of it, at which every link has a tick to hold."""
    return 0.5 * net_ticktime_s


def acted_upon_s(topology: Topology) -> float:
    """The longest until every node has noticed a cut and done what its mode demands, and a window more."""
    return noticed_s(topology.net_ticktime_s) + pause_margin_s(len(topology.nodes)) + WINDOW_S


def workload(queue_type: str, **fields: Any) -> Workload:
    """The same load for all queue types: three queues, led from different zones unless ``fields`` say otherwise."""
    common: dict[str, Any] = {"queues": 3, "publishers": 3, "consumers": 3, "rate_per_s": 450, **fields}
    if queue_type == "mirrored":
        return Workload(queue_type="mirrored", **{"mirroring": Mirroring(), **common})
    return Workload.model_validate({"queue_type": queue_type, **common})


def on_all_nodes(queue_type: str, topology: Topology) -> dict[str, int]:
    """Members on every node: of five on seven nodes most may be in the zone that is cut off, and nobody could go on."""
    return {"group_size": len(topology.nodes)} if queue_type == "quorum" else {}


def shape(topology: str, net_ticktime_s: int, mode: str = "pause_minority", **choice: Any) -> Topology:
    """A topology of the catalogue in that mode; ``choice`` are the fields of ``pause_if_all_down``."""
    handling = {"partition_handling": mode, "pause_if_all_down": PauseIfAllDown(**choice) if choice else None}
    return catalogue.load(topology).model_copy(update={"net_ticktime_s": net_ticktime_s, **handling})


def partition_scenario(
    title: str,
    topology: Topology,
    workload: Workload,
    *schedule: AnyFault,
    settled_after_s: float | None = None,
    without: Sequence[str] = (),
    expect: Sequence[Expectation] = (),
) -> Scenario:
    """A scenario with every promise demanded that its cluster gives, but for those named in ``without``. What a cut may
    always lead to is expected beside ``expect``.

    Throughput is demanded ``settled_after_s`` after each change, by default once no queue may stand still any more.
    The load goes on for that long after recovery, and for two windows more, if the cut itself leaves no time for them.
    """
    stall_s = stall_s_max(topology.net_ticktime_s)
    grace_s = stall_s if settled_after_s is None else settled_after_s
    demanded = {
        "no_loss": {},
        "order": {},
        "availability": {"stall_s_max": stall_s},
        "recovery": {"within_s": RECOVERED_WITHIN_S},
        "throughput": {"ratio_min": 0.5, "window_s": WINDOW_S, "grace_s": grace_s},
        "partition_mode": {},
    }
    restarts_s = 0.0 if topology.partition_handling == "pause_minority" else RESTARTED_WITHIN_S
    return Scenario(
        title=f"{title}, {topology.name}, {topology.partition_handling}, {workload.queue_type}",
        broker=_versions(topology, workload),
        seed=4711,
        topology=topology,
        workload=workload,
        phases=Phases(
            steady_s=5,
            recovery_s=60,
            settled_s=WINDOW_S if settled_after_s is None else settled_after_s + restarts_s + 2 * WINDOW_S,
            drain_s=60,
        ),
        schedule=tuple(schedule),
        invariants=Invariants.model_validate(
            {name: bounds for name, bounds in demanded.items() if name not in without}
        ),
        expect=(*expect, *known_hangs(workload, demanded=[name for name in demanded if name not in without])),
    )


def _versions(topology: Topology, workload: Workload) -> str:
    """Those that have such queues; and of the modes, which have no effect from 4.3 on, only the first goes on there."""
    if workload.queue_type == "mirrored":
        return ">=3.8,<4"
    lasting = workload.queue_type == "quorum" and topology.partition_handling == "pause_minority"
    return ">=3.8" if lasting else ">=3.8,<4.3"


def assert_paused(result: Result, nodes: str) -> None:
    """Just of these nodes it was demanded, and seen, that they pause; of none where no mode has an effect. Nodes of 4.0
    may need longer than the cut lasts, and then nothing was demanded of them."""
    cluster = Facts(result.run.events()).cluster
    assert cluster is not None, "the run does not tell of which nodes its cluster was"
    expected = nodes if cluster.handles_partitions else ""
    seen = str(result.document["invariants"]["partition_mode"]["numbers"]["had_to_pause"])
    too_short = cluster.broker_version >= (4,) and not seen
    assert too_short or sorted(seen.split()) == sorted(expected.split()), f"{seen} had to pause, not {expected}"


def nodes_of(topology: Topology, zone: str) -> str:
    return " ".join(node.name for node in topology.nodes if node.zone == zone)
