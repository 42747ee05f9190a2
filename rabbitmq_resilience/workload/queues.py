"""Declare the queues of a workload with their leaders on the requested nodes, and prove that they are there."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from typing import Any, NotRequired, TypedDict

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi, dead_letters_kept
from rabbitmq_resilience.sut.node_protocol import Endpoints
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload import dead_letter_ways
from rabbitmq_resilience.workload.drain import Depth, DepthsUnknown
from rabbitmq_resilience.workload.exclusive import EXCLUSIVE, EXPIRING
from rabbitmq_resilience.workload.load import COPIES, share
from rabbitmq_resilience.workload.queue_settings import Mirroring
from rabbitmq_resilience.workload.workload_model import Workload

#: The size at which RabbitMQ by default stops growing a quorum queue's group with the cluster.
GROUP_SIZE_MAX = 5
POLICY = "workload"


class QueuePlace(TypedDict):
    """The place of a queue. Nodes have their names in the topology; the leader is the first of the members.

    ``consumer``: the number of the consumer that declares the queue. ``bound``: this consumer also binds the queue to
    exchanges. ``expires_s``: how long the queue must be without a consumer to be deleted.
    """

    type: str
    members: list[str]
    leader: str
    consumer: NotRequired[int]
    bound: NotRequired[bool]
    expires_s: NotRequired[float]


def queue_names(workload: Workload) -> list[str]:
    return workload.queue_names


def leader_nodes(workload: Workload, topology: Topology) -> list[str]:
    """Return the node that shall lead each queue, in index order. Raise ValueError if a name is no node or zone."""
    candidates: list[str] = []
    for name in workload.leaders_on or topology.node_names:
        zone = name.removeprefix("zone:")
        found = [node.name for node in topology.nodes if name == node.name or (zone != name and zone == node.zone)]
        if not found:
            raise ValueError(
                f"leaders_on: {name} is neither a node nor a zone; nodes are {', '.join(topology.node_names)}"
            )
        candidates += found
    return [candidates[index % len(candidates)] for index in range(workload.queues)]


def member_count(workload: Workload, topology: Topology) -> int:
    """Return how many copies each queue has."""
    nodes = len(topology.nodes)
    if workload.queue_type == "classic":
        return 1
    if workload.queue_type == "quorum":
        return workload.group_size or min(nodes, GROUP_SIZE_MAX)
    return (workload.mirroring or Mirroring()).ha_params or nodes


def no_record(*_: object, **__: object) -> None:
    """Record nothing."""


@contextmanager
def timed(record: Callable[..., object], *, what: str, count: int) -> Iterator[None]:
    """Record one event "set_up" with the number of items that the block declares, and its time."""
    begun_s = time.monotonic()
    yield
    if count:
        record("set_up", what=what, count=count, took_s=round(time.monotonic() - begun_s, 3))


def declare(
    cluster: Endpoints,
    workload: Workload,
    *,
    vhost: str,
    timeout_s: float = 60.0,
    record: Callable[..., object] = no_record,
) -> dict[str, QueuePlace]:
    """Create the virtual host with its queues, in index order, and wait until all members are there and in sync.

    Return the place of each queue, by name. For queues that consumers declare (see ``declared_by_consumers``), return
    the places where they are going to be. ``record`` gets the event "set_up", with the time that brokers took. Brokers
    that have just formed their cluster may be slow, so each step is repeated until they answer. Raise ``WaitTimeout``,
    which lists the queues that are not ready, or ``ApiError`` if a broker refuses a step.
    """
    topology = cluster.topology
    api = cluster.api(topology.node_names[0])
    insist(lambda: api.create_vhost(vhost), what=f"virtual host {vhost}", timeout_s=timeout_s)
    policy = queue_policy(workload)
    if policy:
        insist(lambda: api.set_policy(vhost, POLICY, policy), what="the queues' policy", timeout_s=timeout_s)
    if workload.owned:
        api.expect(vhost, queues=queue_names(workload))
        return _with_their_consumers(workload, topology)
    leaders = dict(zip(queue_names(workload), leader_nodes(workload, topology), strict=True))
    kind = queue_arguments(workload, topology)
    as_stated = partial(api.declare_queue, vhost, durable=workload.durable)
    with timed(record, what="queues", count=len(leaders)):
        for name, node in leaders.items():
            arguments = {**kind, **own_arguments(workload, name)}
            place = partial(as_stated, name, arguments=arguments, node=cluster.broker_name(node))
            insist(place, what=f"queue {name}", timeout_s=timeout_s)
    if workload.copy_every is not None:
        node = cluster.broker_name(next(iter(leaders.values())))
        place = partial(as_stated, COPIES, arguments={**kind, "x-max-length": 1}, node=node)
        insist(place, what=f"queue {COPIES}", timeout_s=timeout_s)
    node_of = {cluster.broker_name(node): node for node in topology.node_names}
    count = member_count(workload, topology)
    places: dict[str, QueuePlace] = {}

    def unready() -> list[str]:
        places.update(_places(api, vhost, workload.queue_type, node_of))
        return [
            f"{name}: {places.get(name, 'unknown')}, wanted {count} members led by {leader}"
            for name, leader in leaders.items()
            if name not in places or places[name]["leader"] != leader or len(places[name]["members"]) != count
        ]

    wait_until(
        unready, timeout_s=timeout_s, what="all queues to have their members and leaders", until=lambda wrong: not wrong
    )
    return {name: places[name] for name in leaders}


def declared_by_consumers(workload: Workload, topology: Topology) -> Mapping[str, Any] | None:
    """Return the arguments with which consumers declare their queues; None if queues exist before consumers."""
    if not workload.owned:
        return None
    limits = workload.limits.arguments if workload.limits else {}
    arguments = {**queue_arguments(workload, topology), **limits}
    return {"durable": workload.durable, "exclusive": workload.exclusive, "arguments": arguments}


def _with_their_consumers(workload: Workload, topology: Topology) -> dict[str, QueuePlace]:
    homes = topology.client_nodes
    owners = {
        queue: consumer
        for consumer in range(workload.consumers)
        for queue in share(consumer, workload.consumers, workload.queues)
    }
    expires_ms = workload.limits.expires_ms if workload.redeclare and workload.limits else None
    kind = EXCLUSIVE if expires_ms is None else EXPIRING
    found: dict[str, QueuePlace] = {}
    for queue, name in enumerate(queue_names(workload)):
        node = homes[owners[queue] % len(homes)]
        found[name] = QueuePlace(type=kind, members=[node], leader=node, consumer=owners[queue])
        if workload.routing is not None:
            found[name]["bound"] = True
        if expires_ms is not None:
            found[name]["expires_s"] = expires_ms / 1000
    return found


def depths(api: ManagementApi, vhost: str) -> dict[str, Depth]:
    """Return the depth of each queue. Raise ``DepthsUnknown`` if the node does not answer, or omits a number."""
    try:
        seen = api.queue_states(vhost)
        return {q["name"]: Depth(q["messages_ready"], q["messages_unacknowledged"], dead_letters_kept(q)) for q in seen}
    except (ApiError, ApiUnreachable) as error:
        raise DepthsUnknown(str(error)) from error
    except KeyError as error:
        raise DepthsUnknown(f"{api.base_url} lists a queue without {error}: {seen}") from error


def insist(declare_one: Callable[[], None], *, what: str, timeout_s: float) -> None:
    """Repeat a declaration, which must be idempotent, until the broker answers. Raise ``WaitTimeout`` if not."""

    def unanswered() -> str:
        try:
            declare_one()
        except ApiUnreachable as error:
            return str(error)
        return ""

    wait_until(unanswered, timeout_s=timeout_s, what=f"{what} to be declared", until=lambda reason: not reason)


def queue_policy(workload: Workload) -> dict[str, object]:
    """Return the definition of the policy of all queues, or {} for none. RabbitMQ applies one policy to a queue."""
    definition: dict[str, object] = {"queue-mode": "lazy"} if workload.lazy else {}
    if workload.queue_type == "mirrored":
        stated = (workload.mirroring or Mirroring()).model_dump(exclude_none=True)
        definition |= {name.replace("_", "-"): value for name, value in stated.items()}
    return definition


def queue_arguments(workload: Workload, topology: Topology) -> dict[str, object]:
    """Return the arguments to declare a queue of the workload's type with, except settings that the policy has."""
    arguments: dict[str, object] = dict(workload.arguments)
    if workload.single_active_consumer:
        arguments["x-single-active-consumer"] = True
    if workload.queue_type == "quorum":
        if workload.max_in_memory_length is not None:
            arguments["x-max-in-memory-length"] = workload.max_in_memory_length
        return {"x-queue-type": "quorum", "x-quorum-initial-group-size": member_count(workload, topology), **arguments}
    if workload.priorities:
        arguments["x-max-priority"] = max(workload.priorities)
    return {"x-queue-type": "classic", **arguments}


def own_arguments(workload: Workload, queue: str) -> dict[str, object]:
    """Return the further arguments of one of the workload's queues. A queue that takes dead letters drops none."""
    letters = workload.dead_letters
    if letters is not None and queue in letters.taking(workload.services):
        return {}
    limits = workload.limits.arguments if workload.limits else {}
    return limits if letters is None else {**limits, **dead_letter_ways.arguments(letters, workload, queue)}


def _places(api: ManagementApi, vhost: str, kind: str, node_of: Mapping[str, str]) -> dict[str, QueuePlace]:
    """Return the place of each queue, with the members that can lead now: online replicas, synchronised mirrors."""
    places: dict[str, QueuePlace] = {}
    try:
        seen = api.queues(vhost)
    except ApiUnreachable:
        return places
    for queue in seen:
        leader, followers = _leader_and_followers(queue, kind)
        if leader in node_of:
            members = [leader, *(node for node in followers if node != leader)]
            names = [node_of[node] for node in members if node in node_of]
            places[queue["name"]] = QueuePlace(type=kind, members=names, leader=node_of[leader])
    return places


def _leader_and_followers(queue: Mapping[str, Any], kind: str) -> tuple[str, Sequence[str]]:
    if kind == "quorum":
        return queue.get("leader", ""), queue.get("online") or ()
    return queue.get("node", ""), queue.get("synchronised_slave_nodes") or ()
