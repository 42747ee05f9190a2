"""Start the nodes of a new cluster in a suitable order."""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping
from pathlib import Path

from rabbitmq_resilience.sut.broker.configuration import joins_in_order
from rabbitmq_resilience.sut.broker_host import Broker
from rabbitmq_resilience.tools.waiting import wait_until


def start_in_turns(
    brokers: Mapping[str, Broker],
    *,
    release: tuple[int, int],
    ram_nodes: Collection[str],
    joining: Path,
    check: Callable[[], None],
    timeout_s: float,
) -> None:
    """Start all ``brokers``: first a few, then another one whenever a node begins to join (has a file in ``joining``).

    Joining is serial and cheap. The boot before it is parallel and costs most of the CPU. If all nodes started at once,
    all would begin to join at the same time, and cores would be idle. If RabbitMQ itself chooses the node that others
    join (``broker.configuration.formation_keys``), all nodes start at once, except RAM nodes. These start when the
    others have booted, because the chosen node must keep its metadata on disk.

    ``check`` may raise an error, which ends the wait. Raise WaitTimeout if not all nodes are started within
    ``timeout_s``.
    """
    in_order = joins_in_order(release)
    last = frozenset() if in_order else frozenset(ram_nodes)
    waiting = sorted(brokers, key=lambda node: node in last)
    ahead = (os.cpu_count() or 1) + 1 if in_order else len(waiting)

    def is_due(node: str) -> bool:
        return node not in last or all(brokers[other].has_booted for other in brokers.keys() - last)

    def start_next() -> list[str]:
        check()
        arrived = sum(1 for _ in joining.iterdir())
        while waiting and len(brokers) - len(waiting) - arrived < ahead and is_due(waiting[0]):
            brokers[waiting.pop(0)].start()
        return waiting

    what = "all nodes to be started"
    wait_until(start_next, timeout_s=timeout_s, poll_s=0.02, what=what, until=lambda left: not left)
