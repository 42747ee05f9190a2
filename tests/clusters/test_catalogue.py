from pathlib import Path

import pytest
from pydantic import ValidationError

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.model.topology_catalogue import BadTopologyError, UnknownTopologyError, load, names
from tests.messages import Messages

SIZES = {
    "one_node": (1,),
    "two_nodes_two_zones": (1, 1),
    "three_nodes_three_zones": (1, 1, 1),
    "five_nodes_three_zones": (2, 2, 1),
    "seven_nodes_three_zones": (3, 2, 2),
    "four_nodes_two_zones": (2, 2),
    "four_nodes_three_zones": (2, 1, 1),
    "three_nodes_two_zones": (2, 1),
    "three_nodes_two_balancers": (1, 1, 1),
    "three_nodes_far_zones": (1, 1, 1),
    "three_nodes_small_logs": (1, 1, 1),
    "four_nodes_for_a_million": (2, 1, 1),
    "five_nodes_two_zones": (3, 2),
    "seven_nodes_two_zones": (4, 3),
}

#: Pydantic's errors name its version.
PYDANTIC = {r"https://errors\.pydantic\.dev/[^/]+/": "PYDANTIC/"}


def test_catalogue_is_complete() -> None:
    assert set(names()) == set(SIZES)


@pytest.mark.parametrize("name", SIZES)
def test_each_loads(name: str) -> None:
    topology = load(name)

    assert tuple(topology.zones.values()) == SIZES[name]
    assert topology.partition_handling == "pause_minority"
    assert topology.net_ticktime_s == 5
    assert len(set(topology.node_names)) == sum(SIZES[name])


def test_unknown_name_lists_the_known(message: Messages) -> None:
    with message.of(UnknownTopologyError):
        load("two_moons")


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("name: odd\nzones: {a: 3}\ncolour: red", "colour"),
        ("name: odd\nzones: {a: 8}", "zones"),
        ("name: even\nzones: {a: 3}", "even"),
        ("name: [odd", "line 1"),
        ("", "odd.yaml"),
    ],
)
def test_bad_file_is_reported(tmp_path: Path, text: str, told: str, message: Messages) -> None:
    (tmp_path / "odd.yaml").write_text(text)

    with message.of(BadTopologyError, hide=PYDANTIC) as refused:
        load("odd", tmp_path)
    assert told in str(refused.value)


def test_paths_start_at_the_file(tmp_path: Path) -> None:
    (tmp_path / "own.yaml").write_text("name: own\nzones: {a: 3}\nrabbitmq_conf: conf/rabbitmq.conf")

    assert load("own", tmp_path).rabbitmq_conf == tmp_path / "conf" / "rabbitmq.conf"


def test_links_are_all_ordered_pairs() -> None:
    links = Topology(name="t", zones={"a": 2, "b": 1}).links

    assert len(links) == 6
    assert {Link("a1", "b1"), Link("b1", "a1"), Link("a1", "a2")} <= links


@pytest.mark.parametrize("zones", [{"a": 4, "b": 4}, {}, {"A": 3}, {"a": 0, "b": 3}])
def test_impossible_zones_are_refused(zones: dict[str, int]) -> None:
    with pytest.raises(ValidationError):
        Topology(name="t", zones=zones)
