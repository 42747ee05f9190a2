"""The observer of a real cluster, when the processes cannot be looked at for a while."""

from __future__ import annotations

from typing import Any

import pytest

from topologies import catalogue
from topologies.cluster import ClusterError, NodeState
from topologies.local import LocalCluster
from topologies.observer import Observer
from topologies.waiting import wait_until

pytestmark = pytest.mark.broker


def test_it_goes_on_after_a_look_that_failed_and_records_none(monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[dict[str, Any]] = []
    failed: list[str] = []

    def record(kind: str, **fields: Any) -> None:
        if kind == "nodes":
            seen.append(fields)

    with LocalCluster.form(catalogue.load("three_nodes_three_zones")) as cluster:
        look = cluster.state

        def refuses(node: str) -> NodeState:
            failed.append(node)
            raise ClusterError("the engine does not answer")

        with Observer(cluster, "unused", record) as observer:
            wait_until(lambda: seen, timeout_s=20, what="a first look")
            monkeypatch.setattr(cluster, "state", refuses)
            wait_until(lambda: len(failed) > 2, timeout_s=20, what="looks that fail")
            before = len(seen)
            wait_until(lambda: len(failed) > 4, timeout_s=20, what="more looks that fail")
            assert len(seen) == before
            monkeypatch.setattr(cluster, "state", look)
            wait_until(lambda: len(seen) > before, timeout_s=20, what="the observer to look again")
            assert set(observer.states.values()) == {"up"}
