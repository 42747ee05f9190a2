"""What the API server tells of a Job and its pod, in words."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

client = pytest.importorskip("kubernetes.client")

from rabbitmq_resilience.clusters.attached.kubernetes.job_states import Seen, seen  # noqa: E402

NOW = datetime.now(UTC)


def job(*conditions: Any) -> Any:
    return client.V1Job(
        spec=client.V1JobSpec(active_deadline_seconds=60, template=client.V1PodTemplateSpec()),
        status=client.V1JobStatus(conditions=list(conditions) or None),
    )


def condition(kind: str, reason: str, message: str = "so it is", status: str = "True") -> Any:
    of = client.V1JobCondition if kind.startswith("Fail") else client.V1PodCondition
    return of(type=kind, status=status, reason=reason, message=message)


def waiting(reason: str, message: str | None = None) -> Any:
    return client.V1ContainerState(waiting=client.V1ContainerStateWaiting(reason=reason, message=message))


def running() -> Any:
    return client.V1ContainerState(running=client.V1ContainerStateRunning(started_at=NOW))


def terminated(status: int, reason: str) -> Any:
    done = client.V1ContainerStateTerminated(exit_code=status, reason=reason, message="no such file")
    return client.V1ContainerState(terminated=done)


def pod(play: Any = None, keep: Any = None, *conditions: Any, deleted: bool = False, **status: Any) -> Any:
    statuses = [
        client.V1ContainerStatus(name=name, state=state, image="i", image_id="i", ready=True, restart_count=0)
        for name, state in (("play", play), ("keep", keep))
        if state is not None
    ]
    return client.V1Pod(
        metadata=client.V1ObjectMeta(name="p", deletion_timestamp=NOW if deleted else None),
        spec=client.V1PodSpec(containers=[], node_name="node1"),
        status=client.V1PodStatus(container_statuses=statuses or None, conditions=list(conditions) or None, **status),
    )


def told(one: Any, *pods: Any) -> Seen:
    return seen(one, pods, player="play", keeper="keep")


def test_what_goes_well() -> None:
    assert told(job()) == Seen(waits="its pod to be made")
    assert told(job(), pod(waiting("ContainerCreating"))) == Seen("p", waits="ContainerCreating")
    assert told(job(), pod(running(), running())) == Seen("p", plays=True, kept=True)
    done = told(job(), pod(terminated(1, "Error"), running()))
    assert done == Seen("p", status=1, reason="Error", kept=True)


def test_what_it_waits_for() -> None:
    unplaced = condition("PodScheduled", "Unschedulable", "0/3 nodes are available", status="False")
    assert told(job(), pod(None, None, unplaced)).waits == "a node for pod p: 0/3 nodes are available"
    pulls = told(job(), pod(waiting("ErrImagePull", "no such host")))
    assert (pulls.lost, pulls.waits) == ("", "ErrImagePull: no such host"), "it is tried again"


@pytest.mark.parametrize(
    ("one", "pods", "why"),
    [
        (None, [], "somebody has removed the Job"),
        (job(condition("Failed", "DeadlineExceeded")), [], "as its time was over (60 s)"),
        (job(condition("Failed", "BackoffLimitExceeded")), [], "(BackoffLimitExceeded: so it is), and its pod is gone"),
        (job(), [pod(phase="Failed", reason="Evicted", message="low on memory")], "(Evicted): low on memory"),
        (
            job(),
            [pod(terminated(2, "Error"), terminated(0, "Completed"), condition("DisruptionTarget", "Eviction"))],
            "ended by the cluster (Eviction): so it is",
        ),
        (job(), [pod(running(), terminated(137, "Error"), deleted=True)], "somebody has deleted pod p"),
        (job(), [pod(waiting("ErrImageNeverPull", "not present"))], "(ErrImageNeverPull): not present"),
        (job(), [pod(waiting("ImagePullBackOff", "back-off"))], "play cannot be started (ImagePullBackOff): back-off"),
        (job(), [pod(running(), waiting("InvalidImageName"))], "keep cannot be started (InvalidImageName): no more is"),
        (job(), [pod(terminated(128, "StartError"), running())], "play cannot be started: no such file"),
    ],
)
def test_what_is_lost(one: Any, pods: list[Any], why: str) -> None:
    assert why in told(one, *pods).lost


@pytest.mark.parametrize(
    ("one", "ended", "why"),
    [
        (job(), pod(running(), running(), deleted=True), "somebody has deleted pod p"),
        (
            job(condition("Failed", "DeadlineExceeded")),
            pod(running(), running(), deleted=True),
            "the Job was ended, as its time was over (60 s)",
        ),
        (
            job(condition("FailureTarget", "BackoffLimitExceeded")),
            pod(running(), running(), condition("DisruptionTarget", "Eviction"), deleted=True),
            "pod p was ended by the cluster (Eviction): so it is",
        ),
        (job(), pod(running(), running(), phase="Unknown"), "the node of pod p (node1) does not answer any more"),
    ],
)
def test_a_pod_that_is_being_ended_can_be_fetched_from_for_a_while(one: Any, ended: Any, why: str) -> None:
    found = told(one, ended)
    assert (found.lost, found.ends, found.kept) == ("", why, True)


def test_a_pod_that_has_come_to_its_end_is_not_lost() -> None:
    """Its phase is Failed too where pytest has."""
    done = pod(terminated(1, "Error"), terminated(0, "Completed"), phase="Failed")
    assert told(job(condition("Failed", "BackoffLimitExceeded")), done).lost == ""
