"""Faults on packets and containers: what they ask of Pumba and the machine, what shows them, and what is refused."""

from __future__ import annotations

import io
from collections.abc import Collection
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.netem import Netem
from rabbitmq_resilience.nemesis.packet_changes import PacketCounts
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.tools.distributions import ToolMissingError
from tests.faults.written_steps import parsed, refused
from tests.messages import Messages
from tests.run_scenarios import run_validated

LOSS = {"at_s": 2, "for_s": 9, "fault": "netem", "links": "zone:a -> zone:b", "loss_percent": 20, "by": "iptables"}
LIMIT = {"at_s": 2, "for_s": 9, "fault": "limit", "node": "a1", "cpus": 0.2}
STRESS = {"at_s": 2, "for_s": 9, "fault": "stress", "node": "zone:a", "cpu_workers": 2}
LINKS = {"at_s": 2, "for_s": 9, "links": "zone:a -> zone:b"}
NETEM: list[dict[str, Any]] = [
    {"fault": "netem", "loss_percent": 0.5},
    {"fault": "netem", "delay_ms": 80, "jitter_ms": 20},
    {"fault": "netem", "duplicate_percent": 10},
    {"fault": "netem", "corrupt_percent": 2.5},
    {"fault": "netem", "rate_kbit_per_s": 256},
]


parsed_on_five = partial(parsed, topology="five_nodes_three_zones")
refused_on_five = partial(refused, topology="five_nodes_three_zones")


def step(**fields: Any) -> Netem:
    (made,) = parsed_on_five({"at_s": 2, "for_s": 9, "links": "zone:a -> zone:b", **fields}).schedule
    assert isinstance(made, Netem)
    return made


def test_only_the_driver_of_containers_offers_them(message: Messages) -> None:
    told = refused_on_five(LOSS, LIMIT, STRESS, driver="local")

    assert [f"schedule[{step}].fault" in told for step in range(4)] == [True, True, True, False]
    assert told.count("--driver docker") == 3
    message(told)


def test_what_was_played_is_read_again_whatever_the_driver(tmp_path: Path) -> None:
    scenario = parsed_on_five(LOSS, {**LIMIT, "node": "c1"})
    fault_file.save(scenario, tmp_path / "fault.yaml")

    assert fault_file.load(tmp_path / "fault.yaml", driver=None) == scenario


def test_packets_go_past_proxies() -> None:
    scenario = parsed_on_five(LOSS)

    assert scenario.touched_links == frozenset()
    assert scenario.footprints[0].packets == {Link(a, b) for a in ("a1", "a2") for b in ("b1", "b2")}


def test_loss_needs_pumba_and_the_others_netem_too() -> None:
    assert parsed_on_five(LOSS).needs == {"pumba"}
    assert parsed_on_five(LIMIT).needs == frozenset()
    assert parsed_on_five(LIMIT, STRESS).needs == {"pumba", "stress-ng"}
    for fields in NETEM:
        assert parsed_on_five({"at_s": 0, "for_s": 5, "links": "a1 <-> b1", **fields}).needs == {"pumba", "netem"}


@pytest.mark.parametrize(
    ("fields", "action"),
    [
        ({**LOSS}, "loss --mode random --probability 0.20"),
        (NETEM[0], "loss --percent 0.50"),
        (NETEM[1], "delay --time 80 --jitter 20 --correlation 0"),
        (NETEM[2], "duplicate --percent 10.00"),
        (NETEM[3], "corrupt --percent 2.50"),
        (NETEM[4], "rate --rate 256kbit"),
    ],
)
def test_each_is_one_of_pumba_s_actions(fields: dict[str, Any], action: str) -> None:
    disturbance = step(**fields).disturbance
    assert " ".join(disturbance.action) == action
    assert disturbance.by == (fields.get("by", "netem"))


@pytest.mark.parametrize(
    ("steps", "names"),
    [
        ([{**LOSS, "loss_percent": 0.5}], "schedule[0].loss_percent"),
        ([{**LOSS, "loss_percent": 0}], "schedule[0].loss_percent"),
        ([{**LOSS, "delay_ms": 80}], "loss_percent and delay_ms are done"),
        ([{**LOSS, "loss_percent": None}], "nothing is done"),
        ([{**LOSS, "jitter_ms": 5}], "give delay_ms"),
        ([{**LINKS, **NETEM[3], "by": "iptables"}], "leave by out"),
        ([{**LOSS, "links": "publisher:0 -> a1"}], "schedule[0].links"),
        ([{**LOSS, "links": "zone:a -> zone:x"}], "zone:x"),
        ([{**LINKS, **NETEM[1], "jitter_ms": 75}], "schedule[0].jitter_ms"),
        ([{**LIMIT, "cpus": None}], "schedule[0]"),
        ([{**STRESS, "cpu_workers": 0}], "schedule[0]"),
        ([{**STRESS, "memory_bytes": 5}], "schedule[0].memory_bytes"),
        ([{**LIMIT, "node": "z1"}], "schedule[0].node"),
        ([LOSS, {"at_s": 30, "for_s": 5, "fault": "partition", "between": ["b1", "rest"]}], "schedule[1].at_s"),
        (
            [{"at_s": 0, "for_s": 50, "fault": "latency", "links": "b2 -> a2", "latency_ms": 50}, LOSS],
            "schedule[1].at_s",
        ),
        ([LOSS, {"at_s": 5, "for_s": 5, "fault": "kill", "node": "a2"}], "a2"),
        ([LOSS, {**LOSS, "links": "c1 -> b2"}], "b2"),
    ],
)
def test_what_cannot_work_is_refused(steps: list[dict[str, Any]], names: str, message: Messages) -> None:
    told = refused_on_five(*steps)
    assert names in told
    message(told)


def test_what_does_not_meet_is_accepted() -> None:
    parsed_on_five(LOSS, {"at_s": 30, "for_s": 5, "fault": "kill", "node": "a2"})
    parsed_on_five(LOSS, {**LOSS, "links": "zone:b -> zone:a"})
    parsed_on_five(LOSS, {"at_s": 2, "for_s": 5, "fault": "partition", "between": ["zone:c", "zone:a"]})


def seen(sent: int = 100, *answers_ms: float, met: int = 50, repeated: int = 0) -> PacketCounts:
    return PacketCounts(sent, answers_ms, met, repeated)


@pytest.mark.parametrize(
    ("fields", "shows", "does_not"),
    [
        (LOSS, seen(100, *[1.0] * 80), seen(100, *[1.0] * 100)),
        ({**LOSS, "loss_percent": 100}, seen(100), seen(100, 1.0)),
        (NETEM[1], seen(2, 61.0, 99.0), seen(2, 59.0, 99.0)),
        (NETEM[1], seen(1, 60.0), seen(1)),
        (NETEM[2], seen(1, 1.0, repeated=1), seen(1, 1.0)),
        (NETEM[3], seen(100, *[1.0] * 99), seen(1, 1.0)),
        (NETEM[4], seen(3, 2.0, 150.0, 300.0), seen(3, 2.0, 9.0, 300.0)),
    ],
)
def test_probes_show_each_or_do_not(fields: dict[str, Any], shows: PacketCounts, does_not: PacketCounts) -> None:
    assert step(**fields).change.unseen(shows) == ""
    assert step(**fields).change.unseen(does_not) != ""


def test_much_loss_is_judged_as_a_cut_that_comes_and_goes() -> None:
    link = frozenset({Link("a1", "b1")})

    assert step(**{**LOSS, "loss_percent": 2}).change.effect_on(link).links_slow == link
    effects = {percent: step(**{**LOSS, "loss_percent": percent}).change.effect_on(link) for percent in (20, 100)}
    assert all(effect.links_cut == link for effect in effects.values())
    assert {percent: effect.intermittent for percent, effect in effects.items()} == {20: True, 100: False}


def test_what_is_missing_is_reported_before_anything_is_started(tmp_path: Path) -> None:
    asked: list[Collection[str]] = []

    def require(needs: Collection[str]) -> None:
        asked.append(needs)
        raise ToolMissingError("no pumba found")

    testbed = RunContext(ClusterPool(), tmp_path, io.StringIO(), driver="docker", require=require)
    with pytest.raises(ToolMissingError, match="pumba"):
        run_validated(parsed_on_five(LOSS), testbed)

    assert asked == [{"pumba", "act lose_packets"}]
    assert list(tmp_path.iterdir()) == []
