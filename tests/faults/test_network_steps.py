"""Faults beside the network of a topology: what could not be told from it is refused."""

from __future__ import annotations

from typing import Any

import pytest

from tests.faults.written_steps import parsed, refused
from tests.messages import Messages

FAR = "three_nodes_far_zones"


def step(fault: str, *, for_s: float = 10, **fields: Any) -> dict[str, Any]:
    return {"at_s": 1, "for_s": for_s, "fault": fault, **fields}


def test_the_links_of_the_network_always_carry_proxies() -> None:
    scenario = parsed(topology=FAR, driver="local")
    assert scenario.touched_links == scenario.topology.network_links
    assert scenario.topology.links <= scenario.touched_links


@pytest.mark.parametrize("for_s", [0.1, 1.5, 10])
def test_cuts_that_last_longer_than_a_round_trip_are_taken(for_s: float) -> None:
    parsed(step("partition", for_s=for_s, between=["a1", "rest"]), topology=FAR, driver="local")


def test_a_shorter_cut_is_refused(message: Messages) -> None:
    told = refused(step("partition", for_s=0.01, between=["a1", "rest"]), topology=FAR, driver="local")
    message(told)


def test_latency_is_more_than_the_network_has(message: Messages) -> None:
    parsed(step("latency", links="a1 <-> b1", latency_ms=80, jitter_ms=20), topology=FAR, driver="local")
    told = refused(step("latency", links="a1 <-> b1", latency_ms=12), topology=FAR, driver="local")
    assert "12 ms" in told
    message(told)


def test_packets_must_not_go_through_the_proxies_of_the_network(message: Messages) -> None:
    told = refused(step("netem", links="a1 -> b1", loss_percent=10), topology=FAR, driver="docker")
    message(told)
