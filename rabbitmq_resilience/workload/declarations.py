"""Declare queues, bindings and policies during a run, and ask every node afterwards which of them it has.

No client uses these items. A queue has the workload's own type, and the policy that mirrors the workload's queues
mirrors it too. A binding routes a key of its own to one of the workload's queues, from an exchange that is declared
before. A policy matches no queue.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from typing import NamedTuple

from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable, ManagementApi
from rabbitmq_resilience.sut.node_protocol import Endpoints
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until
from rabbitmq_resilience.workload.queues import insist, queue_arguments, queue_names
from rabbitmq_resilience.workload.workload_model import Workload

KINDS = ("queue", "binding", "policy")
NAME_PREFIX = "declared-"
EXCHANGE = "declarations"

#: The most items of a run, so that a long run has no more queues than a small machine can lead.
DECLARATIONS_MAX = 300
#: Longer than a broker with a short ``net_ticktime`` takes to notice a cut: then a hanging declaration goes on.
ANSWER_WITHIN_S = 10.0
EXCHANGE_WITHIN_S = 60.0
METADATA_POLL_S = 0.5

#: Journals one event: ``record("declaration", item=..., ...)``, see ``history.events``.
Record = Callable[..., object]

#: {node: its items, or None if it gave no answer}
Metadata = dict[str, list[str] | None]


class Item(NamedTuple):
    """One item to declare, of one of the KINDS."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


@contextmanager
def declaring(cluster: Endpoints, workload: Workload, *, vhost: str, record: Record) -> Iterator[None]:
    """Declare a new item every ``declare_every_s`` until the block ends, at most DECLARATIONS_MAX items.

    Declare nothing if ``declare_every_s`` is None. Each node has a thread of its own, so a node that hangs does not
    hold up the requests to other nodes. On exit, wait for the answers to all requests. Raise ``WaitTimeout`` if the
    exchange cannot be declared.
    """
    if workload.declare_every_s is None:
        yield
        return
    nodes = cluster.topology.node_names
    insist(
        lambda: cluster.api(nodes[0]).declare_exchange(vhost, EXCHANGE),
        what=f"exchange {EXCHANGE}",
        timeout_s=EXCHANGE_WITHIN_S,
    )
    declarations = _Declarations(cluster, workload, vhost, record, workload.declare_every_s, threading.Event())
    with ThreadPoolExecutor(len(nodes), thread_name_prefix="declare") as pool:
        threads = [pool.submit(declarations.declare_through, node) for node in nodes]
        try:
            yield
        finally:
            declarations.ended.set()
        for thread in threads:
            thread.result()


def planned_items(index: int, nodes: int) -> list[Item]:
    """Return the items to declare through the node with that index, in order.

    Each name occurs once in the cluster; the kinds take turns.
    """
    numbers = range(index, DECLARATIONS_MAX, nodes)
    return [
        Item(KINDS[(turn + index) % len(KINDS)], f"{NAME_PREFIX}{number:03}") for turn, number in enumerate(numbers)
    ]


@dataclass(frozen=True)
class _Declarations:
    cluster: Endpoints
    workload: Workload
    vhost: str
    record: Record
    every_s: float
    ended: threading.Event

    def declare_through(self, node: str) -> None:
        """Declare the items of this node. Nodes begin one after another; after an answer a node waits a whole turn."""
        nodes = self.cluster.topology.node_names
        index = nodes.index(node)
        pause_s = self.every_s * index
        for item in planned_items(index, len(nodes)):
            if self.ended.wait(pause_s):
                return
            self._attempt(item, node)
            pause_s = self.every_s * len(nodes)

    def _attempt(self, item: Item, node: str) -> None:
        def journal(state: str, detail: str = "") -> None:
            self.record("declaration", item=str(item), node=node, state=state, detail=detail)

        journal("asked")
        try:
            self._declare(item, self.cluster.api(node))
        except ApiError as error:
            journal("refused", str(error))
        except ApiUnreachable as error:
            journal("unanswered", str(error))
        else:
            journal("created")

    def _declare(self, item: Item, api: ManagementApi) -> None:
        if item.kind == "queue":
            arguments = queue_arguments(self.workload, self.cluster.topology)
            api.declare_queue(self.vhost, item.name, arguments=arguments, timeout_s=ANSWER_WITHIN_S)
        elif item.kind == "binding":
            queues = queue_names(self.workload)
            queue = queues[int(item.name.removeprefix(NAME_PREFIX)) % len(queues)]
            api.bind_queue(self.vhost, queue, exchange=EXCHANGE, routing_key=item.name, timeout_s=ANSWER_WITHIN_S)
        else:
            definition = {"max-length": 1_000_000}
            pattern = f"^matches no queue: {item.name}$"
            api.set_policy(self.vhost, item.name, definition, pattern=pattern, timeout_s=ANSWER_WITHIN_S)


def read_metadata(cluster: Endpoints, vhost: str, *, timeout_s: float) -> Metadata:
    """Return the declared items that each node reports.

    A declaration may reach the nodes one after another, so ask them until all answer and agree. After ``timeout_s``
    return their last answers.
    """
    metadata: Metadata = {}

    def agreed() -> bool:
        metadata.update({node: _items_of(cluster.api(node), vhost) for node in cluster.topology.node_names})
        answers = list(metadata.values())
        return None not in answers and all(answer == answers[0] for answer in answers)

    with suppress(WaitTimeout):  # an invariant judges whether they may differ
        wait_until(agreed, timeout_s=timeout_s, what="all nodes to report the same metadata", poll_s=METADATA_POLL_S)
    return metadata


def _items_of(api: ManagementApi, vhost: str) -> list[str] | None:
    try:
        known = api.definitions(vhost)
    except (ApiError, ApiUnreachable):
        return None
    items = [
        *(Item("queue", queue["name"]) for queue in known["queues"]),
        *(Item("binding", binding["routing_key"]) for binding in known["bindings"] if binding["source"] == EXCHANGE),
        *(Item("policy", policy["name"]) for policy in known["policies"]),
    ]
    return sorted(str(item) for item in items if item.name.startswith(NAME_PREFIX))
