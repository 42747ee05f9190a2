"""Steps that last for ticks of their cluster, and cuts that are about as long as brokers need to notice them."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.notes import noted, notes
from rabbitmq_resilience.scenario.validation import validated
from rabbitmq_resilience.tools.locations import content
from tests.messages import Messages

FILE = """
version: 1
title: A zone is cut off
topology: {{name: zones, zones: {{a: 1, b: 1, c: 1}}, partition_handling: {mode}, net_ticktime_s: {tick_s}}}
workload: {{queue_type: quorum, queues: 1, rate_per_s: 100}}
phases: {{steady_s: 2, recovery_s: 60, settled_s: 1}}
schedule:
  - {{at_s: 1, {lasts}, fault: {fault}}}
invariants: {{no_loss: {{}}}}
"""
CUT = 'partition, between: ["zone:c", rest]'


def read(lasts: str, *, tick_s: int = 5, fault: str = CUT, mode: str = "pause_minority") -> Scenario:
    return fault_file.parse(FILE.format(lasts=lasts, tick_s=tick_s, fault=fault, mode=mode), source="cut.yaml")


@pytest.mark.parametrize(("tick_s", "for_s"), [(5, 20), (15, 60), (60, 240)])
def test_it_lasts_for_as_many_ticks_of_its_cluster(tick_s: int, for_s: float) -> None:
    scenario = read("for_ticks: 4", tick_s=tick_s)
    assert scenario.schedule[0].for_s == for_s
    assert fault_file.parse(fault_file.dump(scenario)) == scenario
    validated(scenario, driver="local")


def test_on_another_cluster_it_lasts_for_as_many_of_that_one() -> None:
    assert read("for_ticks: 4").with_topology(net_ticktime_s=15).schedule[0].for_s == 60
    assert read("for_s: 20").with_topology(net_ticktime_s=15).schedule[0].for_s == 20


@pytest.mark.parametrize("lasts", ["for_ticks: 4, for_s: 21", "for_ticks: 0", "for_ticks: often", "when: {}"])
def test_what_is_wrong_is_reported(lasts: str, message: Messages) -> None:
    with message.of(fault_file.FaultFileError):
        read(lasts)


@pytest.mark.parametrize(
    ("lasts", "tick_s", "mode", "noted"),
    [
        ("for_s: 20", 15, "pause_minority", True),  # ends as it is noticed
        ("for_s: 20", 5, "pause_minority", True),  # some node may not have paused yet
        ("for_s: 24", 5, "pause_minority", False),
        ("for_s: 3", 5, "pause_minority", False),
        ("for_s: 6", 5, "autoheal", True),
        ("for_s: 7", 5, "autoheal", False),
        ("for_ticks: 5", 60, "pause_minority", False),
    ],
)
def test_a_cut_that_ends_about_when_it_is_noticed_is_noted(
    lasts: str, tick_s: int, mode: str, noted: bool, message: Messages
) -> None:
    told = list(notes(read(lasts, tick_s=tick_s, mode=mode)))
    assert len(told) == noted
    for text in told:
        message(text)


def test_other_steps_are_not_noted() -> None:
    assert list(notes(read("for_s: 20", fault="kill, node: c1"))) == []
    assert list(notes(read("for_s: 20", fault='partition, between: ["publisher:0", all]'))) == []


SHIPPED = sorted(path for room in ("examples", "platforms") for path in content("faults").glob(f"{room}/*.fault.yaml"))


@pytest.mark.parametrize("path", SHIPPED, ids=lambda path: path.name)
def test_no_cut_that_people_begin_with_ends_about_when_it_is_noticed(path: Path) -> None:
    assert list(notes(fault_file.load(path, driver="docker"))) == []


def test_notes_are_left_out_of_what_ended_as_expected() -> None:
    scenario = read("for_s: 20")
    assert noted(scenario, unless=True) == []
    assert noted(scenario)[0].startswith("NOTE     step 0 (partition)")
