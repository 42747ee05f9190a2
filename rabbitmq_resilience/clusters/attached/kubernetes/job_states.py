"""What becomes of a Job, as the API server tells of it and of its pod at one moment."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

#: What a container waits for that nobody brings. An image may be tried again, and is not waited for.
_IN_VAIN = {
    "CreateContainerConfigError",
    "CreateContainerError",
    "ErrImageNeverPull",
    "ImageInspectError",
    "ImagePullBackOff",
    "InvalidImageName",
    "RunContainerError",
}
#: The second is there before its pods are gone, in newer versions.
_FAILED = ("Failed", "FailureTarget")
_NOT_BEGUN = ("StartError", "ContainerCannotRun")


@dataclass(frozen=True)
class Seen:
    """``pod``: its name, once there is one. ``status``: that with which the player has ended, and ``reason``, the
    kubelet's word for how. ``kept``: what it recorded can be fetched. ``lost``: in words, why no more will come.
    ``ends``: in words, why the pod is being ended, while something may still come. ``waits``: what it waits for."""

    pod: str | None = None
    plays: bool = False
    status: int | None = None
    reason: str = ""
    kept: bool = False
    lost: str = ""
    ends: str = ""
    waits: str = ""


def seen(job: Any | None, pods: Sequence[Any], *, player: str, keeper: str) -> Seen:
    """Of the objects of the client (V1Job, V1Pod)."""
    if job is None:
        return Seen(lost="somebody has removed the Job")
    over, failed = _failure(job, of_time=True), _failure(job, of_time=False)
    if not pods:
        return Seen(lost=over or (failed and f"{failed}, and its pod is gone"), waits="its pod to be made")
    pod = pods[-1]
    states = {one.name: one.state for one in pod.status.container_statuses or () if one.state}
    done = states[player].terminated if player in states else None
    if done is not None and done.reason in _NOT_BEGUN:
        return Seen(pod.metadata.name, lost=f"{player} cannot be started: {done.message}")
    kept = keeper in states and states[keeper].running is not None
    ends = _taken(pod, over)
    return Seen(
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
    """Why the Job has failed, as its controller tells: as its time was over, or otherwise; empty where it has not."""
    failed = [one for one in job.status.conditions or () if one.type in _FAILED and one.status == "True"]
    if not failed or (failed[0].reason == "DeadlineExceeded") != of_time:
        return ""
    if of_time:
        return f"the Job was ended, as its time was over ({job.spec.active_deadline_seconds} s)"
    return f"the Job has failed ({failed[0].reason}: {failed[0].message})"


def _taken(pod: Any, over: str) -> str:
    """Why the pod ends otherwise than by itself; ``over``: of a Job whose time is."""
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
            yield f"{name} cannot be started ({state.waiting.reason}): {state.waiting.message or 'no more is told'}"


def _waits(pod: Any, states: dict[str, Any]) -> Iterator[str]:
    for one in pod.status.conditions or ():
        if one.type == "PodScheduled" and one.status == "False":
            yield f"a node for pod {pod.metadata.name}: {one.message}"
    reasons = {state.waiting.reason: state.waiting.message for state in states.values() if state.waiting is not None}
    for reason, message in reasons.items():
        yield f"{reason}: {message}" if message else str(reason)
