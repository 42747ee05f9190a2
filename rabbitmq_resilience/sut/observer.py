"""Sample a cluster: node states twice a second, queues and memory once a second, flow control every five seconds."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, dead_letters_kept
from rabbitmq_resilience.sut.node_protocol import NodeState
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.tools.waiting import wait_until

STATES_EVERY_S = 0.5
SAMPLE_EVERY_S = 1.0
#: A broker reports the flow state of a connection for this long after flow control held it back (credit_flow:state/0).
FLOW_EVERY_S = 5.0
#: The largest part of the time that flow queries may take. A broker that answers them slowly is asked less often.
FLOW_ASKED_RATIO_MAX = 0.1
#: A broker gathers the statistics of each queue to report its state. With more queues than this, the state of queues is
#: not asked for.
FLOW_QUEUES_MAX = 1000

#: While a node is cut off, other nodes wait for it before they answer: some seconds on 3.10.
SAMPLE_TIMEOUT_S = 8.0

#: An older sample does not describe the present state.
FRESH_S = 3.0

#: A function that receives each observation: the kind ("nodes", "sample" or "flow_states") and its fields.
Record = Callable[..., object]


class Observer:
    """Three threads that sample the cluster until the context ends; the latest observation is always available.

    Node states come from the processes and their AMQP listeners, which answer at once even during a network fault.
    Queues come from the management API of any node that answers.
    """

    def __init__(self, cluster: Cluster, vhost: str, record: Record, *, mirrored: bool = False) -> None:
        """Create an observer; entering the context starts it. ``mirrored``: query the queue processes themselves.
        This costs more, but only they know which mirrors are synchronised."""
        self._cluster = cluster
        self._mirrored = mirrored
        self._vhost = vhost
        self._record = record
        self._closed = threading.Event()
        self._states: Mapping[str, NodeState] = {}
        self._queues: Mapping[str, Mapping[str, Any]] = {}
        self._members: Mapping[str, Sequence[str]] = {}
        self._partitions: Mapping[str, Sequence[str]] = {}
        self._sampled = 0
        self._sampled_s = float("-inf")
        self._threads = [
            threading.Thread(target=self._watch_states, name="observe-nodes", daemon=True),
            threading.Thread(target=self._watch_queues, name="observe-queues", daemon=True),
            threading.Thread(target=self._watch_flow, name="observe-flow", daemon=True),
        ]

    def __enter__(self) -> Self:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._closed.set()
        for thread in self._threads:
            thread.join()

    @property
    def topology(self) -> Topology:
        return self._cluster.topology

    @property
    def states(self) -> Mapping[str, NodeState]:
        return self._states

    @property
    def queues(self) -> Mapping[str, Mapping[str, Any]]:
        """Return {queue: {"ready", "unacked", "leader", "members", "online", "behind"}} of the latest sample, of any
        age. ``ready`` and ``unacked`` are None if the broker gives no number. Some also have "dead_letters"."""
        return self._queues

    @property
    def queues_now(self) -> Mapping[str, Mapping[str, Any]]:
        """Return ``queues``, or an empty mapping if the latest sample began more than ``FRESH_S`` ago."""
        return self._queues if time.monotonic() - self._sampled_s <= FRESH_S else {}

    @property
    def partitions(self) -> Mapping[str, Sequence[str]]:
        """Return {node: the nodes from which it reports a partition} of the latest sample. RabbitMQ reports partitions
        of its own metadata, so a report outlives the cut until the partition is repaired."""
        return self._partitions

    def leader_of(self, queue: str) -> str | None:
        """Return the node that leads the queue now; None if no leader serves, or if no fresh sample shows one."""
        leader = self.queues_now.get(queue, {}).get("leader")
        return leader if leader is not None and self._states.get(leader) == "up" else None

    def followers_of(self, queue: str) -> tuple[str, ...]:
        """Return the queue's followers that serve; empty if no fresh sample shows a leader that serves."""
        leader = self.leader_of(queue)
        members = self._members.get(queue, ()) if leader is not None else ()
        return tuple(node for node in members if node != leader and self._states.get(node) == "up")

    def depth(self) -> int:
        """Return the number of messages, ready or unacknowledged, in all queues of the latest sample."""
        return sum((queue["ready"] or 0) + (queue["unacked"] or 0) for queue in self._queues.values())

    def fresh_queues(self, *, timeout_s: float) -> Mapping[str, Mapping[str, Any]]:
        """Return the queues of a sample that began after this call. Raise WaitTimeout if no such sample comes."""
        seen = self._sampled
        wait_until(lambda: self._sampled > seen + 1, timeout_s=timeout_s, what="a sample of the queues")
        return self._queues

    def _watch_states(self) -> None:
        while not self._closed.is_set():
            with suppress(ClusterError):  # the state is unknown now; the gap in the history shows that
                self._states = {name: self._cluster.state(name) for name in self._cluster.topology.node_names}
                self._record("nodes", states=dict(self._states))
            self._closed.wait(STATES_EVERY_S)

    def _watch_queues(self) -> None:
        names = list(self._cluster.topology.node_names)
        while not self._closed.is_set():
            for name in sorted(names, key=lambda node: self._states.get(node) != "up"):
                if self._closed.is_set() or self._states.get(name) != "up":
                    continue
                try:
                    self._sample(name)
                    break
                except (ApiError, ApiUnreachable):
                    names.remove(name)  # a node that did not answer is asked last from now on
                    names.append(name)
                    break
            self._closed.wait(SAMPLE_EVERY_S)

    def _watch_flow(self) -> None:
        asked, took_s = 0, 0.0
        while not self._closed.wait(max(FLOW_EVERY_S, took_s / FLOW_ASKED_RATIO_MAX)):
            up = [name for name, state in self._states.items() if state == "up"]
            begun_s = time.monotonic()
            if up:
                with suppress(ApiError, ApiUnreachable):  # the next query goes to the next node
                    self._look_at_flow(up[asked % len(up)])
            asked, took_s = asked + 1, time.monotonic() - begun_s

    @property
    def _short(self) -> Mapping[str, str]:
        """Return {Erlang name: topology name} of all nodes."""
        return {self._cluster.broker_name(name): name for name in self._cluster.topology.node_names}

    def _look_at_flow(self, node: str) -> None:
        api, short = self._cluster.api(node), self._short
        connections = Counter(api.connection_states(self._vhost, timeout_s=SAMPLE_TIMEOUT_S))
        flow = None
        if len(self._queues) <= FLOW_QUEUES_MAX:
            rows = api.queues(self._vhost, columns=("name", "state"), timeout_s=SAMPLE_TIMEOUT_S)
            flow = sorted(row["name"] for row in rows if row.get("state") == "flow")
        silent = [short.get(name, name) for name in api.silent_nodes(timeout_s=SAMPLE_TIMEOUT_S)]
        self._record("flow_states", node=node, connections=dict(connections), flow_queues=flow, silent=silent)

    def _sample(self, node: str) -> None:
        begun_s = time.monotonic()
        api, short = self._cluster.api(node), self._short
        ask = api.queues if self._mirrored else api.queue_states
        listed = ask(self._vhost, timeout_s=SAMPLE_TIMEOUT_S)
        self._queues = {row["name"]: _queue(row, short) for row in listed}
        self._members = {row["name"]: [short[name] for name in _online(row) if name in short] for row in listed}
        rows = {short[row["name"]]: row for row in api.nodes() if row["name"] in short}
        self._partitions = {
            name: [short.get(peer, peer) for peer in row["partitions"]]
            for name, row in rows.items()
            if row.get("partitions")
        }
        self._sampled, self._sampled_s = self._sampled + 1, begun_s
        memory = {name: row["mem_used"] for name, row in rows.items() if row.get("mem_used")}
        self._record(
            "sample",
            node=node,
            queues=dict(self._queues),
            memory_bytes=memory,
            partitions=dict(self._partitions),
        )


def _queue(row: Mapping[str, Any], short: Mapping[str, str]) -> dict[str, Any]:
    """Convert one row of ``/api/queues`` to what ``Observer.queues`` has. A queue that is down has no leader."""
    leader = short.get(row.get("leader") or row.get("node") or "")
    online = _online(row)
    behind = len(set(row.get("slave_nodes") or ()) - set(row.get("synchronised_slave_nodes") or ()))
    if row.get("state") in ("down", "crashed", "stopped", "timeout", "minority"):
        leader = None
    kept = dead_letters_kept(row)
    return {
        **({"dead_letters": kept} if kept else {}),
        "ready": row.get("messages_ready"),
        "unacked": row.get("messages_unacknowledged"),
        "leader": leader,
        "members": len(row.get("members", online)),  # for mirrored queues, brokers list only the mirrors that run
        "online": len(online),
        "behind": behind,
    }


def _online(row: Mapping[str, Any]) -> list[str]:
    """Return the nodes of the online members; without a list of members, the leader's node and the mirrors."""
    if "members" in row:  # quorum
        return list(row.get("online") or ())
    return [row.get("node") or "", *(row.get("slave_nodes") or ())]
