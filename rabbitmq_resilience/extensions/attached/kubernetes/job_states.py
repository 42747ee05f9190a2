"""Read the state of a Job from the objects of the API server."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: Reasons for which a container waits in vain. ``ErrImagePull`` is not one: the kubelet tries again first.
_IN_VAIN = {
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
}
#: Newer versions set the second one before the pods of the Job are gone.
_FAILED = ("Failed", "FailureTarget")
_NOT_BEGUN = ("StartError", "ContainerCannotRun")


@dataclass(frozen=True)
class JobStatus:
    """The state of a Job at one moment.

    ``pod``: the name of its pod, if there is one. ``plays``: the player runs. ``status``: the exit status of the
    player, if it has ended, and ``reason``, the kubelet's word for it. ``kept``: the keeper runs, so the records can be
    fetched. ``lost``: why nothing more will come, as a text. ``ends``: why the pod is being ended, as a text; records
    may still come. ``waits``: for what the pod waits."""

    pod: str | None = None
    plays: bool = False
    status: int | None = None
    reason: str = ""
    kept: bool = False
    lost: str = ""
    ends: str = ""
    waits: str = ""


def seen(job: Any | None, pods: Sequence[Any], *, player: str, keeper: str) -> JobStatus:
    """Return the state that these objects show (V1Job and V1Pod of the client; of several pods the last counts).

    ``player``, ``keeper``: the names of the two containers."""
    if job is None:
        return JobStatus(lost="somebody has removed the Job")
    over, failed = _failure(job, of_time=True), _failure(job, of_time=False)
    if not pods:
        return JobStatus(lost=over or (failed and f"{failed}, and its pod is gone"), waits="its pod to be made")
    pod = pods[-1]
    states = {one.name: one.state for one in pod.status.container_statuses or () if one.state}
    done = states[player].terminated if player in states else None
    if done is not None and done.reason in _NOT_BEGUN:
        return JobStatus(pod.metadata.name, lost=f"{player} cannot be started: {done.message}")
    kept = keeper in states and states[keeper].running is not None
    ends = _taken(pod, over)
    return JobStatus(
        pod.metadata.name,
        plays=player in states and states[player].running is not None,
        status=None if done is None else int(done.exit_code),
        reason="" if done is None else str(done.reason or ""),
        kept=kept,
        lost=next(_in_vain(states), "" if kept else ends),
        ends=ends,
        waits="; ".join(_waits(pod, states)),
    )


def _failure(job: Any, *, of_time: bool) -> str:
    """Return why the Job has failed, as its controller reports it; empty if it has not.

    ``of_time``: whether to look for a passed time limit only, or for all other reasons."""
    failed = [one for one in job.status.conditions or () if one.type in _FAILED and one.status == "True"]
    if not failed or (failed[0].reason == "DeadlineExceeded") != of_time:
        return ""
    if of_time:
        return f"the Job was ended, as its time was over ({job.spec.active_deadline_seconds} s)"
    return f"the Job has failed ({failed[0].reason}: {failed[0].message})"


def _taken(pod: Any, over: str) -> str:
    """Return why the pod is ended from outside; empty if it is not. ``over``: why, if the time of the Job is over."""
    name = f"pod {pod.metadata.name}"
    if pod.status.phase == "Failed" and pod.status.reason:
        return f"{name} was ended by its node ({pod.status.reason}): {pod.status.message}"
    disrupted = [one for one in pod.status.conditions or () if one.type == "DisruptionTarget" and one.status == "True"]
    if disrupted:
        return f"{name} was ended by the cluster ({disrupted[0].reason}): {disrupted[0].message}"
    if pod.metadata.deletion_timestamp is not None:
        return over or f"somebody has deleted {name}"
    if pod.status.phase == "Unknown":
        return f"the node of {name} ({pod.spec.node_name}) does not answer any more"
    return ""


def _in_vain(states: dict[str, Any]) -> Iterator[str]:
    for name, state in states.items():
        if state.waiting is not None and state.waiting.reason in _IN_VAIN:
            yield f"{name} cannot be started ({state.waiting.reason}): {state.waiting.message or 'no details'}"


def _waits(pod: Any, states: dict[str, Any]) -> Iterator[str]:
    for one in pod.status.conditions or ():
        if one.type == "PodScheduled" and one.status == "False":
            yield f"a node for pod {pod.metadata.name}: {one.message}"
    reasons = {state.waiting.reason: state.waiting.message for state in states.values() if state.waiting is not None}
    for reason, message in reasons.items():
        yield f"{reason}: {message}" if message else str(reason)
