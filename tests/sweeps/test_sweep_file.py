"""Sweep files: every cell is the scenario that it says, and what is wrong is refused by line and field."""

from __future__ import annotations

import itertools
import re
import statistics
from collections import Counter, defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.extensions.sweeps.capacity import Capacity
from rabbitmq_resilience.extensions.sweeps.cells import parts, rounds
from rabbitmq_resilience.extensions.sweeps.estimates import expected_s, round_s
from rabbitmq_resilience.extensions.sweeps.measures import MEASURES
from rabbitmq_resilience.extensions.sweeps.prices import Leaderboard
from rabbitmq_resilience.extensions.sweeps.results import Results
from rabbitmq_resilience.extensions.sweeps.sweep_file import SweepFileError, load
from rabbitmq_resilience.extensions.sweeps.sweep_model import SweepSpec
from rabbitmq_resilience.scenario import fault_file
from tests.messages import Messages
from tests.sweeps.written import BASE, SWEEP, loaded, with_changes


def test_a_cell_is_the_scenario_that_somebody_would_write(tmp_path: Path) -> None:
    sweep = loaded(tmp_path, SWEEP)

    assert [tuple(cell.labels.values()) for cell in sweep.cells] == list(
        itertools.product(["1", "10", "100"], ["quorum", "mirrored"])
    )
    by_hand = {
        **BASE,
        "workload": {**BASE["workload"], "in_flight": 10},
        "title": "In flight: in_flight 10, queues quorum",
    }
    assert sweep.cells[2].scenario == fault_file.parse(yaml.safe_dump(by_hand))


def test_topologies_steps_and_lines_of_the_configuration_vary_too(tmp_path: Path) -> None:
    axes = [
        {
            "name": "nodes",
            "settings": {"3": {"topology": "three_nodes_three_zones"}, "5": {"topology": "five_nodes_three_zones"}},
        },
        {"field": "schedule.0.for_s", "values": [2, 4]},
    ]
    sweep = loaded(tmp_path, with_changes((("axes",), axes)))
    assert {(len(c.scenario.topology.nodes), c.scenario.schedule[0].for_s) for c in sweep.cells} == {
        (3, 2),
        (3, 4),
        (5, 2),
        (5, 4),
    }

    line = {"field": "topology.settings.vm_memory_high_watermark.relative", "values": [0.3, 0.6]}
    sweep = loaded(tmp_path, with_changes((("axes",), [line])))
    assert [c.scenario.topology.settings for c in sweep.cells] == [
        {"vm_memory_high_watermark.relative": 0.3},
        {"vm_memory_high_watermark.relative": 0.6},
    ]
    assert [c.scenario.topology.name for c in sweep.cells] == ["three_nodes_three_zones"] * 2
    assert parts("topology.settings.a.b.c") == ["topology", "settings", "a.b.c"]


def test_the_base_may_be_a_fault_file_and_may_name_a_preset(tmp_path: Path) -> None:
    (tmp_path / "base.fault.yaml").write_text(yaml.safe_dump({**BASE, "workload": {"preset": "flow_control_1"}}))
    sweep = loaded(tmp_path, with_changes((("base",), "base.fault.yaml")))
    assert [cell.scenario.generated.in_flight for cell in sweep.cells] == [1, 1, 10, 10, 100, 100]
    assert len({cell.scenario.generated.publishers for cell in sweep.cells}) == 1


def test_cells_are_left_out_or_kept_for_larger_machines(tmp_path: Path) -> None:
    plain = with_changes(
        (("leave_out",), [{"in_flight": "1", "queues": "mirrored"}]), (("axes", 0, "here"), ["1", "10"])
    )
    sweep = loaded(tmp_path, plain)
    assert [tuple(c.labels.values()) for c in sweep.chosen(whole=False)] == [
        ("1", "quorum"),
        ("10", "quorum"),
        ("10", "mirrored"),
    ]
    assert len(sweep.chosen(whole=True)) == 5


def test_cells_may_be_kept_for_larger_machines_one_by_one(tmp_path: Path, message: Messages) -> None:
    sweep = loaded(tmp_path, with_changes((("leave_out_here",), [{"in_flight": "1", "queues": "mirrored"}])))
    assert (len(sweep.chosen(whole=False)), len(sweep.chosen(whole=True))) == (5, 6)
    with message.of(SweepFileError) as refused:
        loaded(tmp_path, with_changes((("leave_out_here",), [{"queues": "quick"}])))
    assert "leave_out_here: " in str(refused.value)


def test_where_every_cell_is_wrong_that_is_what_is_reported(tmp_path: Path) -> None:
    """And not that there is nothing to compare."""
    wrong = with_changes((("base", "workload", "rate_per_s"), "many"), (("compared",), "queues"), (("repeats",), 6))
    with pytest.raises(SweepFileError, match="rate_per_s"):
        loaded(tmp_path, wrong)


def test_a_round_takes_longer_with_more_clusters_queues_and_metrics(tmp_path: Path) -> None:
    def took_s(*changes: tuple[tuple[str | int, ...], Any]) -> float:
        return round_s(loaded(tmp_path, with_changes(*changes)).cells)

    plain_s = took_s()
    assert took_s((("base", "metrics"), True)) > plain_s + 6 * 10
    assert took_s((("base", "workload", "queues"), 500)) > plain_s + 6 * 10
    nodes = {"field": "topology", "values": ["three_nodes_three_zones", "five_nodes_three_zones"]}
    assert took_s((("axes", 1), nodes)) > plain_s + 20, "two clusters are formed each round"


def test_each_cell_comes_once_a_round_in_an_order_that_the_seed_gives(tmp_path: Path) -> None:
    cells = loaded(tmp_path, SWEEP).cells
    order = [(number, cell.name) for number, cell in rounds(cells, 4, seed=1)]

    assert Counter(order) == Counter(itertools.product(range(1, 5), [cell.name for cell in cells]))
    assert [number for number, _ in order] == sorted(number for number, _ in order)
    assert order == [(number, cell.name) for number, cell in rounds(cells, 4, seed=1)]
    by_round = [[name for number, name in order if number == one] for one in range(1, 5)]
    assert len({tuple(names) for names in by_round}) > 1, "one order for all rounds would favour who comes first"


def test_those_of_one_cluster_are_played_together(tmp_path: Path) -> None:
    axes = [
        {"field": "topology", "values": ["three_nodes_three_zones", "five_nodes_three_zones"]},
        {"field": "workload.in_flight", "values": [1, 10, 100, 1000]},
    ]
    cells = loaded(tmp_path, with_changes((("axes",), axes))).cells
    for number in (1, 2, 3):
        names = [cell.scenario.topology.name for at, cell in rounds(cells, 3, seed=7) if at == number]
        assert len(list(itertools.groupby(names))) == 2


def test_of_two_cells_each_comes_first_as_often(tmp_path: Path) -> None:
    cells = loaded(tmp_path, SWEEP).cells
    turns = list(rounds(cells, 8, seed=7))
    orders = [[cell.name for at, cell in turns if at == number] for number in range(1, 9)]
    assert all(sorted(order) == sorted(cell.name for cell in cells) for order in orders)
    for one, other in itertools.combinations((cell.name for cell in cells), 2):
        assert sum(order.index(one) < order.index(other) for order in orders) == 4
    assert len({tuple(order) for order in orders}) > 2, "they are drawn anew"


def test_a_cluster_that_is_there_has_one_topology(tmp_path: Path, message: Messages) -> None:
    path = tmp_path / "there.sweep.yaml"
    ticks = {"field": "topology.net_ticktime_s", "values": [5, 20]}
    path.write_text(yaml.safe_dump(with_changes((("axes", 0), ticks))))
    with message.of(SweepFileError):
        load(path, driver="attached")


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param(
            [(("axes", 0, "field"), "workload.in_fligth")],
            ("line 2", "axes[0].values[0]", "in_flight?"),
            id="no_field",
        ),
        pytest.param(
            [(("axes", 0, "field"), "workload.queues.deep")],
            ("axes[0]", "workload.queues.deep"),
            id="below_a_value",
        ),
        pytest.param([(("axes", 0, "field"), "schedule.7.at_s")], ("axes[0]", "schedule.7.at_s"), id="no_step"),
        pytest.param(
            [(("axes", 0, "values"), [1, "many"])], ("axes[0].values[1]", '"many"', "in_flight"), id="no_value"
        ),
        pytest.param([(("axes", 0, "values"), [1, 1])], ("axes[0]",), id="same_value"),
        pytest.param(
            [(("axes", 0, "field"), "workload.queue_type")],
            ("axes[1].settings",),
            id="both_state_it",
        ),
        pytest.param(
            [(("axes", 0), {"field": "workload", "values": [{"queues": 2}, {"queues": 3}]})],
            ("axis 'workload'",),
            id="within_another",
        ),
        pytest.param([(("axes", 0), {"field": "title", "values": ["a", "b"]})], ("title",), id="title"),
        pytest.param([(("axes", 0), {"field": "seed", "name": "s", "values": [1, 2]})], ("seed",), id="seed"),
        pytest.param([(("axes", 0, "field"), "schedule.00.at_s")], ("schedule.00.at_s",), id="another_spelling"),
        pytest.param([(("axes", 0, "field"), "schedule.-1.at_s")], ("schedule.-1.at_s",), id="from_the_end"),
        pytest.param([(("axes", 0, "name"), "took_s")], ("took_s",), id="a_column"),
        pytest.param([(("axes", 0, "name"), "confirmed_per_s")], ("confirmed_per_s",), id="a_column_of_a_measure"),
        pytest.param(
            [(("axes", 1, "settings", "mirrored", "workload.group_size"), 3)],
            ("axes[1].settings.mirrored", "group_size", "1 problem"),
            id="values_that_contradict",
        ),
        pytest.param(
            [(("axes", 1, "settings", "again"), {"workload.queue_type": "quorum"})],
            ("axes:",),
            id="same_cell",
        ),
        pytest.param([(("axes", 1, "name"), "in_flight")], ("in_flight",), id="same_name"),
        pytest.param([(("axes", 0, "here"), ["7"])], ("axes[0]", "here: ", "1, 10, 100"), id="here"),
        pytest.param([(("leave_out",), [{"in_flight": "7"}])], ("leave_out: ", "in_flight: 7"), id="leave_out"),
        pytest.param(
            [(("measures",), ["latency"])],
            ("measures[0]", "'latency'", "confirm_p99_ms"),
            id="measure",
        ),
        pytest.param([(("budget_min",), 1)], ("budget_min", "6 cells", "2 min"), id="budget"),
        pytest.param([(("base", "workload", "queue"), 3)], ("base.workload.queue", "queues?"), id="base"),
        pytest.param([(("base",), "none.yaml")], ("base", "none.yaml"), id="no_base"),
        pytest.param([(("repeat",), 3)], ("repeat", "repeats?"), id="no_such_field"),
    ],
)
def test_what_is_wrong_is_reported_where_it_stands(
    tmp_path: Path, changes: list[tuple[tuple[str | int, ...], Any]], named: tuple[str, ...], message: Messages
) -> None:
    with message.of(SweepFileError, hide={r"confirmed_per_s, received_per_s, .*": "ALL MEASURES"}) as refused:
        loaded(tmp_path, with_changes(*changes))
    assert [part for part in named if part not in str(refused.value)] == [], str(refused.value)


def test_a_run_is_expected_to_take_its_phases_and_a_little_more(tmp_path: Path) -> None:
    scenario = loaded(tmp_path, SWEEP).cells[0].scenario
    assert 12 < expected_s(scenario) < 30


FOLDER = Path(__file__).parents[2] / "sweeps"


def test_what_zones_far_apart_add_is_expected_as_it_was_seen() -> None:
    """Of all loads together: each kind of queue crosses the network as many times as it likes."""
    cells = load(FOLDER / "across_zones.sweep.yaml").cells
    took_s = defaultdict(list)
    for line in Results.read(FOLDER / "results" / "across_zones").lines:
        if line.took_s is not None:
            took_s[line.labels["zones"]].append(line.took_s)

    def expected(zones: str) -> float:
        return statistics.mean(expected_s(cell.scenario) for cell in cells if cell.labels["zones"] == zones)

    near = "three, 0 ms"
    for zones in ("three, 5 ms", "three, 10 ms", "three, 50 ms"):
        added_s = statistics.mean(took_s[zones]) - statistics.mean(took_s[near])
        assert 0.7 * added_s < expected(zones) - expected(near) < 1.5 * added_s


@pytest.mark.parametrize("path", sorted(FOLDER.glob("*.sweep.yaml")), ids=lambda p: p.name)
def test_what_is_in_the_folder_is_accepted_and_no_larger_than_an_hour(path: Path) -> None:
    """The page of the folder says how large each is; what is expected otherwise is what to write there."""
    sweep = load(path, driver="docker" if "--driver docker" in path.read_text() else "local")
    here, repeats = sweep.chosen(whole=False), sweep.spec.repeats
    took_min = repeats * round_s(here) / 60
    assert len(here) <= 30
    assert took_min < 60
    name = path.name.removesuffix(".sweep.yaml")
    told = f"| {name} | {len(here)} | {len(sweep.cells)} | {repeats} | {took_min:.0f} |"
    assert told in (FOLDER / "README.md").read_text().splitlines()


def test_the_example_of_the_page_is_accepted(tmp_path: Path) -> None:
    example, board, wanted = re.findall(
        r"```yaml\n(.*?)```", (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text(), re.DOTALL
    )
    assert Leaderboard.model_validate(yaml.safe_load(board)["leaderboard"])
    assert Capacity.model_validate(yaml.safe_load(wanted)["capacity"])
    (tmp_path / "example.sweep.yaml").write_text(example)
    assert len(load(tmp_path / "example.sweep.yaml").cells) == 6


def test_the_page_names_every_field_and_measure() -> None:
    text = (Path(__file__).parents[2] / "docs" / "sweeps.md").read_text()
    assert [name for name in SweepSpec.model_fields if f"`{name}`" not in text and name != "version"] == []
    assert [name for name in MEASURES if f"`{name}`" not in text and not re.search(r"_p\d", name)] == []


def test_results_are_of_what_named_files_say_wherever_they_are(tmp_path: Path) -> None:
    """A sweep goes on in another folder, and no longer once brokers would be configured in another way."""
    settings = {"few": {"topology.advanced_config": "credit.config"}, "default": {}}
    plain = with_changes((("axes", 1), {"name": "credit", "settings": settings}))
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        folder.mkdir()
        (folder / "credit.config").write_text("[{rabbit, [{credit_flow_default_credit, {400, 200}}]}].")
    sweep = loaded(here, plain)
    assert sweep.digest == loaded(there, plain).digest
    (here / "credit.config").write_text("[{rabbit, [{credit_flow_default_credit, {40, 20}}]}].")
    assert sweep.digest != loaded(there, plain).digest
