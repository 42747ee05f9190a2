"""Loads by name: each is what its file says, what is stated beside it wins, and what is wrong is told."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.command import main
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from rabbitmq_resilience.workload import presets
from rabbitmq_resilience.workload.presets import BadPresetError, UnknownPresetError
from rabbitmq_resilience.workload.workload_model import Workload
from tests.messages import Messages
from tests.workloads.refusals import LINKS

NAMES = presets.names()


def stated(workload: dict[str, Any]) -> str:
    plain = {"version": 1, "title": "t", "topology": "three_nodes_three_zones", "invariants": {"no_loss": {}}}
    return yaml.safe_dump({**plain, "workload": workload}, sort_keys=False)


def played(workload: dict[str, Any]) -> Workload:
    return fault_file.parse(stated(workload)).generated


def refused(workload: dict[str, Any]) -> str:
    with pytest.raises(FaultFileError) as caught:
        fault_file.parse(stated(workload), source="mine.fault.yaml")
    return str(caught.value)


def test_known() -> None:
    flows = [f"flow_control_{i}" for i in range(1, 6)]
    others = [
        "durable",
        "fan_out",
        "lazy",
        "low_latency_1",
        "low_latency_5",
        "low_latency_20",
        "many_queues",
        "million",
    ]
    assert tuple(sorted([*flows, *others, "not_durable", "sizing", "telemetry"], key=NAMES.index)) == NAMES
    assert NAMES.index("low_latency_5") < NAMES.index("low_latency_20")


@pytest.mark.parametrize("name", NAMES)
def test_stated_by_name(name: str) -> None:
    preset = presets.load(name)
    assert played({"preset": name}) == preset.workload()
    assert played({"preset": name, "scale": 1}) == Workload.model_validate(preset.published)
    assert {*preset.here} <= {*preset.published}, "what is different here must be told of there"


@pytest.mark.parametrize(
    ("name", "there", "here"),
    [
        ("flow_control_3", (500, 500, 100, 15_000), (30, 30, 6, 900)),
        ("flow_control_5", (1000, 1000, 200, 100_000), (50, 50, 10, 20_000)),
        ("many_queues", (100, 100, 100_000, 300), (20, 20, 1_000, 300)),
        ("million", (2600, 10_400, 186, 1_345_531), (26, 104, 4, 800)),
    ],
)
def test_scales(name: str, there: tuple[int, ...], here: tuple[int, ...]) -> None:
    def shape(load: Workload) -> tuple[Any, ...]:
        return load.publishers, load.consumers, load.queues, load.rate_per_s

    preset = presets.load(name)
    assert shape(preset.workload(scale=1)) == there
    assert shape(preset.workload()) == here
    assert shape(preset.workload(scale=0.5)) == tuple(round(count / 2) for count in there)


def test_own_fields_win() -> None:
    mine = played({"preset": "low_latency_5", "queue_type": "quorum", "rate_per_s": None, "consumers": 1})
    assert (mine.queue_type, mine.rate_per_s, mine.consumers, mine.publishers) == ("quorum", None, 1, 5)
    assert played({"preset": "flow_control_1", "scale": 0.2, "queues": 7}).queues == 7


def test_what_is_kept_states_the_whole_load(tmp_path: Path) -> None:
    """Also of what is None, and was something else in the preset."""
    scenario = fault_file.parse(stated({"preset": "flow_control_1", "group_size": None, "rate_per_s": None}))
    fault_file.save(scenario, tmp_path / "fault.yaml")
    assert "preset" not in (tmp_path / "fault.yaml").read_text()
    assert fault_file.load(tmp_path / "fault.yaml") == scenario


@pytest.mark.parametrize(
    ("workload", "names"),
    [
        ({"preset": "low_latency_6"}, "workload.preset"),
        ({"preset": "zebra"}, "workload.preset"),
        ({"preset": 5}, "workload.preset"),
        ({"preset": None}, "workload.preset"),
        ({"preset": "../topologies/three_nodes_three_zones"}, "workload.preset"),
        ({"scale": 2}, "scale"),
        ({"preset": "sizing", "scale": 0}, "workload.scale"),
        ({"preset": "sizing", "scale": True}, "workload.scale"),
        ({"preset": "sizing", "scale": "half"}, "workload.scale"),
        ({"preset": "sizing", "scale": 5000}, "workload.scale"),
        ({"preset": "sizing", "queus": 5}, "workload.queus"),
        ({"presett": "sizing"}, "workload.presett"),
        ({"preset": "sizing", "queues": "many"}, "workload.queues"),
        ({"preset": "not_durable", "queue_type": "quorum"}, "workload"),
    ],
)
def test_wrong_is_reported(workload: dict[str, Any], names: str, message: Messages) -> None:
    told = refused(workload)
    assert names in told
    message(told, hide=LINKS)


@pytest.mark.parametrize(
    "text",
    [
        "source: a\nwhat: b\npublished: {queues: -1}",
        "source: a\nwhat: b\npublished: {queues: 1}\nhere: {queus: 1}",
        "source: a\npublished: {queues: 1}",
        "source: [a",
        "",
    ],
)
def test_bad_file_is_reported(tmp_path: Path, text: str, message: Messages) -> None:
    (tmp_path / "odd.yaml").write_text(text)
    with message.of(BadPresetError, hide=LINKS) as refused:
        presets.load("odd", tmp_path)
    assert "odd.yaml" in str(refused.value)
    with message.of(UnknownPresetError):
        presets.load("zebra", tmp_path)


def test_listed(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["presets"]) == 0
    assert [line.split()[0] for line in capsys.readouterr().out.splitlines()] == list(NAMES)
    with pytest.raises(SystemExit, match="2"):
        main(["presets", "more"])


@pytest.mark.parametrize("queue_type", ["quorum", "mirrored"])
def test_replicated_queues_have_a_limit(queue_type: str, message: Messages) -> None:
    message(refused({"queue_type": queue_type, "queues": 5001}))
    message(refused({"queue_type": "classic", "queues": 100_001}))
