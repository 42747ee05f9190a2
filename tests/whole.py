"""Waiting for a cluster to be whole again after a test broke it."""

from __future__ import annotations

from collections.abc import Collection

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.known_defects import HANGS_IN_GLOBAL_SYNC, known_hangs
from rabbitmq_resilience.sut.pool import reports_statistics, unfit_reason
from rabbitmq_resilience.sut.running import RunningCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.workload_model import Workload
from tests.statistics_ended import TRACE

FORMED_WITHIN_S = 90.0
FIT_WITHIN_S = 60.0


def await_whole(cluster: RunningCluster) -> None:
    """A node that came back may hang for ever in its start, which RabbitMQ before 3.11 is known for, and the statistics
    of one may have ended. That is for a suite to show; where its log says so, it is started anew, as a person would."""
    try:
        cluster.await_formed(timeout_s=FORMED_WITHIN_S)
    except ClusterError:
        away = [node for node in cluster.topology.node_names if cluster.state(node) == "paused"]
        hung = [node for node in away if HANGS_IN_GLOBAL_SYNC.leaves_trace(_log(cluster, node))]
        if not hung:
            raise
        _start_anew(cluster, hung)
    silent = [node for node in cluster.topology.node_names if not reports_statistics(cluster, node)]
    _start_anew(cluster, [node for node in silent if TRACE.search(_log(cluster, node))])


def await_fit(cluster: RunningCluster) -> None:
    """Wait until the cluster might serve another scenario: after a node is back, others go on reporting for a moment
    that they were partitioned from it."""
    wait_until(
        lambda: unfit_reason(cluster),
        timeout_s=FIT_WITHIN_S,
        what="the cluster to be fit for another scenario",
        until=lambda reason: not reason,
    )


def _start_anew(cluster: RunningCluster, nodes: Collection[str]) -> None:
    for node in nodes:
        cluster.kill(node)
        cluster.start(node)
    if nodes:
        cluster.await_formed(timeout_s=FORMED_WITHIN_S)


def assert_valid(result: Result, cluster: RunningCluster) -> None:
    """A scenario on a cluster that is there already has no logs of brokers that would tell a known defect of theirs
    from ours; but ``cluster``, which it was played on, has."""
    untrue = {name: found for name, found in result.document["invariants"].items() if found["verdict"] != "VALID"}
    known = known_hangs(Workload(queue_type="quorum"), demanded=list(result.document["invariants"]))
    logs = [_log(cluster, node) for node in cluster.topology.node_names]
    excused = any(
        {hang.invariant} <= set(untrue) <= hang.excuses and any(map(hang.leaves_trace, logs)) for hang in known
    )
    assert result.verdict == "VALID" or excused, (untrue, [log[-500:] for log in logs])


def _log(cluster: RunningCluster, node: str) -> str:
    return cluster.logs()[node].read_text(errors="replace")
