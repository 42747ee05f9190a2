"""What a million needs: coefficients that are known are found again, intervals hold as often as they say, and what is
told is what arithmetic by hand gives."""

from __future__ import annotations

import itertools
import math
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import yaml

from rabbitmq_resilience.extensions.sweeps.capacity import CapacityRequest
from rabbitmq_resilience.extensions.sweeps.capacity_answer import CapacityAnswer, EnoughQueues, capacity
from rabbitmq_resilience.extensions.sweeps.capacity_command import main
from rabbitmq_resilience.extensions.sweeps.capacity_model import TooFewCellsError, fit
from rabbitmq_resilience.extensions.sweeps.results import ResultRow, Results
from rabbitmq_resilience.extensions.sweeps.sweep_file import Sweep, SweepFileError, load
from rabbitmq_resilience.extensions.sweeps.sweep_model import SweepSpec
from rabbitmq_resilience.extensions.sweeps.sweep_page import write_page
from rabbitmq_resilience.extensions.sweeps.table import table
from tests.messages import Messages
from tests.sweeps.test_results import OF, line
from tests.sweeps.written import BASE
from tests.tables.lines import line_with

NODES, QUEUES = (1, 3, 5, 7), (1, 4, 16)
#: As three powers: nodes cost, queues help, connections cost.
POWERS = {"nodes": -0.4, "queues": 0.2, "connections": -0.1}
ZONES = {"1": {"a": 1}, "3": {"a": 1, "b": 1, "c": 1}, "5": {"a": 2, "b": 2, "c": 1}, "7": {"a": 3, "b": 2, "c": 2}}
SWEEP: dict[str, Any] = {
    "version": 1,
    "title": "Messages for a CPU-second",
    "base": {**BASE, "schedule": [], "topology": {"name": "counted", "zones": {"a": 1}}},
    "axes": [
        {"name": "nodes", "settings": {label: {"topology.zones": zones} for label, zones in ZONES.items()}},
        {"field": "workload.queues", "values": list(QUEUES)},
    ],
    "measures": ["messages_per_core_s", "confirmed_per_s"],
    "capacity": {
        "by": ["nodes", "queues"],
        "wanted": {"per_s": 1_000_000, "cores_a_node": 8, "at": {"queues": 186}},
        "left_out": {"nodes": ["7"]},
        "beside": [{"what": "the study", "at": {"nodes": 31, "queues": 186}, "per_s": 1_345_531, "cores": 248}],
    },
}

Grid = list[dict[str, float]]


def grid() -> Grid:
    return [dict(zip(POWERS, at, strict=True)) for at in itertools.product(NODES, QUEUES, (8, 1000))]


def true_value(at: Mapping[str, float], level: float = 2000.0) -> float:
    return level * math.prod(math.pow(at[name], power) for name, power in POWERS.items())


def test_known_coefficients_are_found_again() -> None:
    model = fit([(at, true_value(at)) for at in grid()])
    assert {name: power.middle for name, power in model.powers.items()} == {
        name: pytest.approx(power) for name, power in POWERS.items()
    }
    far = {"nodes": 31, "queues": 186, "connections": 13_000}
    assert model.predict(far).middle == pytest.approx(true_value(far))
    assert model.outside(far) == ["nodes", "queues", "connections"]
    assert model.outside(grid()[5]) == []


def test_intervals_hold_the_truth_as_often_as_they_say() -> None:
    rng = np.random.default_rng(18)
    near, far = {"nodes": 5, "queues": 4, "connections": 100}, {"nodes": 31, "queues": 186, "connections": 13_000}
    tries, powers, cells, beyond = 600, 0, 0, 0
    for _ in range(tries):
        model = fit([(at, true_value(at) * rng.lognormal(0, 0.15)) for at in grid()])
        told = model.powers["nodes"]
        powers += told.low <= POWERS["nodes"] <= told.high
        one, other = model.predict(near), model.predict(far)
        cells += one.low <= true_value(near) * rng.lognormal(0, 0.15) <= one.high
        beyond += other.low <= true_value(far) * rng.lognormal(0, 0.15) <= other.high
    margin = 3 * (0.05 * 0.95 / tries) ** 0.5
    for held in (powers, cells, beyond):
        assert abs(held / tries - 0.95) <= margin


def test_nodes_are_those_by_hand() -> None:
    """A core carries 1,000 on one node: with the power 0 it does on all, with -1/2 twice as much needs four times as
    many nodes, and with -1 a node brings no more than it costs."""
    for power, per_s, nodes in ((0.0, 1_000_000, 125), (-0.5, 80_000, 100), (-1.0, 8001, math.inf), (0.5, 64_000, 4)):
        model = fit([({"nodes": n}, 1000.0 * n**power) for n in (1, 2, 3, 5, 7)])
        needed = model.nodes_needed("nodes", per_s * (1 - 1e-9) if nodes < math.inf else per_s, 8, {})
        assert (needed.low, needed.middle, needed.high) == (nodes, nodes, nodes)


def test_too_little_for_a_model_is_reported(message: Messages) -> None:
    with message.of(TooFewCellsError) as refused:
        fit([(at, 1.0) for at in grid()[:5]])
    assert re.findall(r"\d+", str(refused.value)) == ["5", "3", "6"]
    with message.of(TooFewCellsError) as refused:
        fit([({**at, "connections": 8.0}, 1.0 + number) for number, at in enumerate(grid())])
    assert "connections" in str(refused.value)
    with message.of(TooFewCellsError):
        fit([])


def loaded(folder: Path, **changes: Any) -> Sweep:
    path = folder / "capacity.sweep.yaml"
    path.write_text(yaml.safe_dump({**SWEEP, "capacity": {**SWEEP["capacity"], **changes}}, sort_keys=False))
    return load(path)


def run(nodes: int, queues: int, number: int, per_core_s: float | None, rate: float = 5000.0) -> ResultRow:
    values = {"messages_per_core_s": per_core_s, "confirmed_per_s": rate}
    return replace(line("1", "quorum", number), labels={"nodes": str(nodes), "queues": str(queues)}, values=values)


def played(folder: Path, *, collapse: float = 1.0) -> Results:
    """Where seven nodes carry ``collapse`` times what the powers say."""
    rng = np.random.default_rng(18)
    lines = [
        run(n, q, number, 2000 * n**-0.4 * q**0.2 * (collapse if n == 7 else 1.0) * float(rng.lognormal(0, 0.02)))
        for n, q in itertools.product(NODES, QUEUES)
        for number in range(1, 5)
    ]
    return Results(folder, OF, lines)


def told(results: Results, spec: SweepSpec) -> CapacityAnswer:
    found = capacity(results, spec)
    assert isinstance(found, CapacityAnswer)
    return found


def no_model(results: Results, spec: SweepSpec) -> str:
    """Return why there is none, for lack of cells."""
    found = capacity(results, spec)
    assert isinstance(found, str)
    assert found.startswith("0 cells")
    return found


def test_what_a_million_needs_by_hand(tmp_path: Path) -> None:
    found = told(played(tmp_path), loaded(tmp_path).spec)
    # 8 n 2000 n^-0.4 186^0.2 >= 1,000,000
    by_hand = math.ceil((1_000_000 / (8 * 2000 * 186**0.2)) ** (1 / 0.6))
    assert found.nodes.low <= by_hand <= found.nodes.high
    assert found.cores.middle == 8 * found.nodes.middle
    assert found.outside == ["nodes", "queues"]
    assert found.queues == EnoughQueues(200, "nodes 7, queues 1"), "one queue carried 5,000/s"
    assert found.is_beyond
    assert found.missing == ""
    (study,) = found.from_others
    assert study.measured == pytest.approx(1_345_531 / 248)
    assert study.times == pytest.approx(study.measured / (2000 * 31**-0.4 * 186**0.2), rel=0.15)


def test_a_queue_of_few_nodes_says_nothing_of_a_queue_of_more(tmp_path: Path) -> None:
    """Each further member may cost some of the rate."""
    rates = {1: 32_000.0, 3: 5000.0, 5: 4000.0, 7: 2000.0}
    good, spec = played(tmp_path), loaded(tmp_path).spec
    of = [replace(row, values={**row.values, "confirmed_per_s": rates[int(row.labels["nodes"])]}) for row in good.lines]
    for per_s in (4000, 30_000, 45_000, 1_000_000):
        wanted = CapacityRequest(per_s=per_s, cores_a_node=8, at={"queues": 16})
        found = capacity(Results(tmp_path, OF, of), spec, wanted=wanted)
        assert isinstance(found, CapacityAnswer) and found.queues is not None
        nodes = next((n for n in NODES if n >= found.nodes.middle), 7)
        assert found.queues.count == math.ceil(per_s / rates[nodes])
        assert found.is_beyond is (per_s > 32_000)


def test_runs_that_were_not_played_are_reported(tmp_path: Path) -> None:
    spec, good = loaded(tmp_path).spec, played(tmp_path)
    part = [row for row in good.lines if row.labels["nodes"] != "7"]
    found = told(Results(tmp_path, OF, part), spec)
    assert found.missing == f"only {len(part)} of {len(good.lines)} runs were played until now"
    (one,) = found.left_out
    assert (one.what, math.isnan(one.measured), found.checked, found.within) == ("nodes 7", True, 0, 0)


def test_cells_that_broke_a_promise_or_mostly_carried_nothing_are_no_part_of_a_model(
    tmp_path: Path, message: Messages
) -> None:
    spec, good = loaded(tmp_path).spec, played(tmp_path)
    whole = told(good, spec)
    nothing = {"messages_per_core_s": 0.0}
    bad = [replace(one, values={**one.values, **nothing}) if one.round > 1 else one for one in good.lines]
    message(no_model(Results(tmp_path, OF, bad), spec))
    broke = [replace(one, verdict="INVALID") for one in good.lines]
    message(no_model(Results(tmp_path, OF, broke), spec))
    lucky = [*good.lines]
    lucky[5] = replace(lucky[5], values={**lucky[5].values, "confirmed_per_s": 90_000.0})
    assert told(Results(tmp_path, OF, lucky), spec).queues == whole.queues, "one run of a cell was lucky"


def test_more_nodes_than_anybody_has_are_distinguished_from_nodes_that_bring_nothing(tmp_path: Path) -> None:
    spec = loaded(tmp_path).spec
    much = CapacityRequest(per_s=1e12, cores_a_node=8, at=dict(spec.capacity.wanted.at) if spec.capacity else {})
    found = capacity(played(tmp_path), spec, wanted=much)
    assert isinstance(found, CapacityAnswer)
    assert (found.nodes.middle, found.more_than) == (math.inf, 10_000)


def test_cells_that_were_left_out_are_foretold_and_a_collapse_is_not(tmp_path: Path) -> None:
    spec = loaded(tmp_path).spec
    good = told(played(tmp_path), spec)
    assert [one.outside for one in good.left_out] == [["nodes"]] * 3
    assert good.within == 3
    assert told(played(tmp_path, collapse=0.5), spec).within == 0


def test_cells_without_a_number_are_counted_and_never_is_none(tmp_path: Path, message: Messages) -> None:
    results = played(tmp_path)
    results.lines[:4] = [replace(one, status="not held", values={}) for one in results.lines[:4]]
    results.lines[4:8] = [run(1, 4, number, math.inf) for number in range(1, 5)]
    found = told(results, loaded(tmp_path).spec)
    assert (found.unused, found.model.cells) == (2, 10)
    message(no_model(Results(tmp_path, OF, []), loaded(tmp_path).spec))


def test_page_and_table_say_what_is_needed_and_that_it_lies_outside(tmp_path: Path, message: Messages) -> None:
    sweep, results = loaded(tmp_path), played(tmp_path / "sweeps" / "mine")
    results.folder.mkdir(parents=True)
    write_page(results, sweep, tmp_path / "runs")
    as_table, page = table(results, sweep), (results.folder / "index.html").read_text()
    head = line_with(as_table, "1,000,000")
    warning = line_with(as_table, "(nodes: 1 to 7, queues: 1 to 16)")
    message(head)
    message(warning)
    for text in (as_table, page):
        assert head.removeprefix("## ") in text
        assert warning.split("**")[1] in text
        assert "3 of 3" in text and "the study" in text
    few = Results(tmp_path, OF, results.lines[:4])
    message(line_with(table(few, sweep), "1 cells have"))


@pytest.mark.parametrize(
    ("changes", "named"),
    [
        pytest.param({"by": ["queues"]}, "by: ", id="without_nodes"),
        pytest.param(
            {"by": ["nodes"], "wanted": {"per_s": 1, "cores_a_node": 1}, "beside": []}, "by: ", id="not_all_axes"
        ),
        pytest.param({"wanted": {"per_s": 1, "cores_a_node": 8}}, "wanted.at: ", id="nothing_stated"),
        pytest.param({"wanted": {"per_s": 0, "cores_a_node": 8, "at": {"queues": 1}}}, "wanted.per_s: ", id="no_load"),
        pytest.param({"left_out": {"nodes": ["9"]}}, "left_out: ", id="no_such_label"),
        pytest.param({"of": "brokers_cores"}, "capacity.of: ", id="no_such_field"),
        pytest.param({"rate": "confirm_p99_ms"}, "confirm_p99_ms", id="not_measured"),
        pytest.param(
            {"beside": [{"what": "x", "at": {"nodes": 1}, "per_s": 1, "cores": 1}]}, "beside: x: at: ", id="beside"
        ),
    ],
)
def test_what_is_wrong_is_reported(tmp_path: Path, changes: dict[str, Any], named: str, message: Messages) -> None:
    with message.of(SweepFileError) as refused:
        loaded(tmp_path, **changes)
    assert named in str(refused.value)


def test_labels_must_be_numbers(tmp_path: Path, message: Messages) -> None:
    axes = [{**SWEEP["axes"][0], "settings": {"one": {}, "3": {"topology.zones": ZONES["3"]}}}, SWEEP["axes"][1]]
    path = tmp_path / "words.sweep.yaml"
    path.write_text(yaml.safe_dump({**SWEEP, "axes": axes}, sort_keys=False))
    with message.of(SweepFileError) as refused:
        load(path)
    assert "axis nodes: 'one'" in str(refused.value)


def test_the_command_shows_it_for_other_numbers_too(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    sweep, folder = loaded(tmp_path), tmp_path / "mine"
    results = Results.read(folder)
    results.begin(OF, sweep.text)
    for each in played(folder).lines:
        results.enter(each)
    assert main([str(folder), "--per-s", "2000", "--cores-a-node", "2", "--at", "queues=4"], program="c") == 0
    text = capsys.readouterr().out
    message(line_with(text, "2,000 messages/s"))
    need = line_with(text, "1 nodes of 2 cores")
    assert "at 4 queues" in need
    message(need.partition(". ")[0])
    assert "(nodes: 1 to 7, queues: 1 to 16)" not in text, "this lies within what was measured"
    for arguments in (["--at", "cats=4"], ["--at", "queues"], ["--at", "queues=-1"], ["--per-s", "0"]):
        assert main([str(folder), *arguments], program="c") == 1
        message(capsys.readouterr().err)
    assert main([str(tmp_path / "nowhere")], program="c") == 1
    message(capsys.readouterr().err)
