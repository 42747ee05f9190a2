"""What the API server tells of a Job and its pod, in words."""

from __future__ import annotations

from dataclasses import replace
from datetime import UTC, datetime
from typing import Any

import pytest

client = pytest.importorskip("kubernetes.client")

from rabbitmq_resilience.extensions.attached.kubernetes.job_states import JobStatus, seen  # noqa: E402
from tests.messages import Messages  # noqa: E402

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


def told(one: Any, *pods: Any) -> JobStatus:
    return seen(one, pods, player="play", keeper="keep")


def test_what_goes_well(message: Messages) -> None:
    unmade = told(job())
    assert (replace(unmade, waits=""), bool(unmade.waits)) == (JobStatus(), True)
    message(unmade.waits)
    assert told(job(), pod(waiting("ContainerCreating"))) == JobStatus("p", waits="ContainerCreating")
    assert told(job(), pod(running(), running())) == JobStatus("p", plays=True, kept=True)
    done = told(job(), pod(terminated(1, "Error"), running()))
    assert done == JobStatus("p", status=1, reason="Error", kept=True)


def test_what_it_waits_for(message: Messages) -> None:
    unplaced = condition("PodScheduled", "Unschedulable", "0/3 nodes are available", status="False")
    waits = told(job(), pod(None, None, unplaced)).waits
    assert waits.endswith("pod p: 0/3 nodes are available")
    message(waits)
    pulls = told(job(), pod(waiting("ErrImagePull", "no such host")))
    assert (pulls.lost, pulls.waits) == ("", "ErrImagePull: no such host"), "it is tried again"


@pytest.mark.parametrize(
    ("one", "pods", "fact"),
    [
        pytest.param(None, [], "", id="removed"),
        pytest.param(job(condition("Failed", "DeadlineExceeded")), [], "60 s", id="too_long"),
        pytest.param(
            job(condition("Failed", "BackoffLimitExceeded")), [], "(BackoffLimitExceeded: so it is)", id="pod_gone"
        ),
        pytest.param(
            job(),
            [pod(phase="Failed", reason="Evicted", message="low on memory")],
            "(Evicted): low on memory",
            id="evicted",
        ),
        pytest.param(
            job(),
            [pod(terminated(2, "Error"), terminated(0, "Completed"), condition("DisruptionTarget", "Eviction"))],
            "(Eviction): so it is",
            id="disrupted",
        ),
        pytest.param(job(), [pod(running(), terminated(137, "Error"), deleted=True)], "pod p", id="deleted"),
        pytest.param(
            job(), [pod(waiting("ErrImageNeverPull", "not present"))], "(ErrImageNeverPull): not present", id="no_image"
        ),
        pytest.param(
            job(), [pod(waiting("ImagePullBackOff", "back-off"))], "(ImagePullBackOff): back-off", id="not_pulled"
        ),
        pytest.param(job(), [pod(running(), waiting("InvalidImageName"))], "(InvalidImageName)", id="no_image_name"),
        pytest.param(job(), [pod(terminated(128, "StartError"), running())], ": no such file", id="not_started"),
    ],
)
def test_what_is_lost(one: Any, pods: list[Any], fact: str, message: Messages) -> None:
    lost = told(one, *pods).lost
    assert lost != ""
    assert fact in lost
    message(lost)


@pytest.mark.parametrize(
    ("one", "ended", "fact"),
    [
        pytest.param(job(), pod(running(), running(), deleted=True), "pod p", id="deleted"),
        pytest.param(
            job(condition("Failed", "DeadlineExceeded")),
            pod(running(), running(), deleted=True),
            "60 s",
            id="too_long",
        ),
        pytest.param(
            job(condition("FailureTarget", "BackoffLimitExceeded")),
            pod(running(), running(), condition("DisruptionTarget", "Eviction"), deleted=True),
            "(Eviction): so it is",
            id="disrupted",
        ),
        pytest.param(job(), pod(running(), running(), phase="Unknown"), "pod p (node1)", id="node_gone"),
    ],
)
def test_a_pod_that_is_being_ended_can_be_fetched_from_for_a_while(
    one: Any, ended: Any, fact: str, message: Messages
) -> None:
    found = told(one, ended)
    assert (found.lost, fact in found.ends, found.kept) == ("", True, True)
    message(found.ends)


def test_a_pod_that_has_come_to_its_end_is_not_lost() -> None:
    """Its phase is Failed too where pytest has."""
    done = pod(terminated(1, "Error"), terminated(0, "Completed"), phase="Failed")
    assert told(job(condition("Failed", "BackoffLimitExceeded")), done).lost == ""
