"""Faults of load balancers and of their links as people write them: read or refused."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.sut.drivers import FORMING
from tests.faults.written_steps import parsed, refused
from tests.messages import Messages

BALANCED = "three_nodes_two_balancers"
PLAIN = "three_nodes_three_zones"


def step(fault: str, *, at_s: float = 1, for_s: float = 10, **fields: Any) -> dict[str, Any]:
    return {"at_s": at_s, "for_s": for_s, "fault": fault, **fields}


@pytest.mark.parametrize("fault", ["kill", "pause"])
@pytest.mark.parametrize("balancer", ["balancer:0", "balancer:1", "balancer:all"])
def test_balancers_are_named_by_number(fault: str, balancer: str) -> None:
    parsed(step(fault, node=balancer), driver="local", topology=BALANCED)


@pytest.mark.parametrize(
    ("balancer", "topology", "names"),
    [
        ("balancer:2", BALANCED, "balancer:0, balancer:1"),
        ("balancer:one", BALANCED, "'balancer:one'"),
        ("balancer:0", PLAIN, "balancers: 2"),
        ("balancer:all", PLAIN, "balancers: 2"),
    ],
)
def test_a_balancer_that_is_not_there_is_refused(balancer: str, topology: str, names: str, message: Messages) -> None:
    told = refused(step("kill", node=balancer), driver="local", topology=topology)
    message(told)
    assert names in told


@pytest.mark.parametrize("driver", FORMING)
def test_every_driver_that_forms_clusters_has_balancers(driver: str) -> None:
    parsed(step("kill", node="balancer:0"), driver=driver, topology=BALANCED)


@pytest.mark.parametrize(
    "between",
    [
        ["balancer:0", "b1"],
        ["balancer:0", "zone:a"],
        ["balancer:1", "all"],
        ["publisher:0", "balancer:0"],
        ["publisher:0", "consumer:0", "balancer:0"],
    ],
)
@pytest.mark.parametrize("fault", ["partition", "disconnect"])
def test_links_of_balancers_can_be_cut(fault: str, between: list[str]) -> None:
    (links,) = (s.footprint(r.topology).links for r in [parsed_one(fault, between)] for s in r.schedule)
    assert links
    assert all("balancer:" in str(link) for link in links)


def parsed_one(fault: str, between: list[str]) -> Any:
    return parsed(step(fault, between=between), driver="local", topology=BALANCED)


def test_latency_may_be_on_links_of_balancers() -> None:
    parsed(step("latency", links="balancer:0 <-> zone:a", latency_ms=50), driver="local", topology=BALANCED)
    parsed(step("latency", links="publisher:0 -> balancer:1", latency_ms=50), driver="local", topology=BALANCED)


@pytest.mark.parametrize(
    ("between", "topology", "names"),
    [
        (["publisher:0", "a1"], BALANCED, "balancer:0, balancer:1"),
        (["publisher:0", "all"], BALANCED, "balancer:0, balancer:1"),
        (["publisher:0", "balancer:0"], PLAIN, "schedule[0].between"),
        (["balancer:0", "balancer:1"], BALANCED, "schedule[0].between"),
        (["balancer:7", "a1"], BALANCED, "balancer:0, balancer:1"),
    ],
)
def test_links_that_no_one_uses_are_refused(between: list[str], topology: str, names: str, message: Messages) -> None:
    told = refused(step("partition", between=between), driver="local", topology=topology)
    assert names in told
    message(told)


@pytest.mark.parametrize(
    "other",
    [
        step("pause", at_s=5, node="balancer:0"),
        step("kill", at_s=5, node="balancer:all"),
        step("partition", at_s=5, between=["balancer:0", "b1"]),
        step("disconnect", at_s=5, between=["publisher:0", "balancer:0"]),
        step("latency", at_s=5, links="balancer:0 -> b1", latency_ms=50),
    ],
)
def test_two_steps_on_one_balancer_at_a_time_are_refused(other: dict[str, Any], message: Messages) -> None:
    told = refused(step("kill", node="balancer:0"), other, driver="local", topology=BALANCED)
    assert "balancer:0" in told
    message(told)


def test_two_balancers_may_be_taken_at_a_time() -> None:
    one, other = step("kill", node="balancer:0"), step("pause", at_s=5, node="balancer:1")
    parsed(one, other, step("kill", at_s=3, node="a1"), driver="local", topology=BALANCED)


def test_a_balancer_is_only_killed_and_paused(message: Messages) -> None:
    message(refused(step("stop", node="balancer:0"), driver="local", topology=BALANCED))
    message(refused(step("kill", node="balancer:0"), driver="attached", topology=BALANCED))


def test_the_former_name_never_takes_a_broker(message: Messages) -> None:
    message(refused(step("kill_balancer", balancer="a1"), driver="local", topology=BALANCED))
