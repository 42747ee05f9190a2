"""What each broker stores while a scenario is played: on one machine they share a file system, not their folders."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from rabbitmq_resilience.clusters.protocol import Cluster
from rabbitmq_resilience.invariants.disk import Disk
from rabbitmq_resilience.scenarios.model import Scenario

EVERY_S = 5.0


@contextmanager
def stored_watched(
    scenario: Scenario, cluster: Cluster, record: Callable[..., object], *, every_s: float = EVERY_S
) -> Iterator[None]:
    """Record one event ``stored`` at the begin, each ``every_s``, and when the block ends.

    Nothing is recorded unless the scenario bounds what nodes take of their disks, and brokers are processes of ours.
    """
    nodes = list(cluster.pids())
    disk = scenario.chosen_invariants.get("disk")
    if not nodes or not isinstance(disk, Disk) or disk.taken_bytes_max is None:
        yield
        return
    ended = threading.Event()

    def look() -> None:
        record("stored", stored_bytes={node: cluster.stored_bytes(node) for node in nodes})

    def watch() -> None:
        while not ended.wait(every_s):
            look()

    look()
    thread = threading.Thread(target=watch, name="watch-stored", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()
        look()
