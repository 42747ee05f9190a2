"""``rabbitmq-resilience compare`` as people call it; nothing is played."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.extensions.nights.night_file import Header, NightMachine, NightWriter
from rabbitmq_resilience.extensions.sweeps import compare_command
from rabbitmq_resilience.extensions.sweeps.compare_command import main
from rabbitmq_resilience.extensions.sweeps.results import Results
from rabbitmq_resilience.runner.run_line import RunLine
from tests.messages import Messages
from tests.sweeps.test_results import OF, line
from tests.sweeps.written import BASE
from tests.tables.lines import line_with

HEADER = Header(
    night="2026-11-24T01:00:00Z",
    name=None,
    suite_version="1",
    suite_commit="c1",
    machine=NightMachine(cpus=2, memory_gb=24.0, cpu_model="x", kernel="6", id="m1"),
    driver="local",
    budget_min=None,
)
PLAYED = RunLine(
    scenario="suites/test_kills.py::test_killed[0]",
    title="Killed",
    verdict="VALID",
    as_expected=True,
    expected="VALID",
    known=None,
    invariants={"recovery": "VALID"},
    broke_first=None,
    seed=1,
    broker_version="3.10.8",
    driver="local",
    topology=None,
    partition_handling=None,
    queue_type="quorum",
    outage_s=1.0,
    outage_total_s=0.0,
    stall_s=1.0,
    recovered_s=2.0,
    kept_ratio=1.0,
    confirmed_per_s=400.0,
    others_cpu=0.0,
    started_at=None,
    duration_s=20.0,
    run="run",
    rerun="pytest run",
    fault_file="run/fault.yaml",
)


def night(folder: Path, name: str, *, header: Header = HEADER, **told: object) -> Path:
    """Ten scenarios, each a little slower than the one before."""
    with NightWriter.in_folder(folder, name, header) as writer:
        for number in range(10):
            one = replace(PLAYED, scenario=f"suites/test_kills.py::test_killed[{number}]", outage_s=1.0 + number)
            writer.write(replace(one, **told))  # type: ignore[arg-type]
    return folder / f"{name}.jsonl"


def told(folder: Path) -> str:
    return (folder / "comparison.md").read_text()


def test_two_nights_of_which_one_recovers_later(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    first = night(tmp_path / "nights", "one")
    elsewhere = replace(HEADER, machine=replace(HEADER.machine, id="m2"))
    second = night(tmp_path / "nights", "two", header=elsewhere, recovered_s=3.0, broker_version="3.12.0")
    assert main([str(first), str(second), "--to", str(tmp_path / "out")], program="compare") == 0
    text = told(tmp_path / "out")
    message(line_with(text, "| 2 | 3 | +1 (+1 to +1) | worse |"))
    message(line_with(text, "| 5.5 (2 to 9) | 5.5 (2 to 9) | +0 (+0 to +0) | no"))
    message(line_with(text, "m1 and m2"))
    message(line_with(text, "3.10.8 and 3.12.0"))
    message(capsys.readouterr().out)
    assert (tmp_path / "out" / "comparison.html").exists()


def test_a_recovery_that_never_came_is_the_longest(tmp_path: Path, message: Messages) -> None:
    first = night(tmp_path / "nights", "one")
    broken: dict[str, Any] = {"recovered_s": None, "verdict": "INVALID", "invariants": {"recovery": "INVALID"}}
    second = night(tmp_path / "nights", "two", **broken)
    assert main([str(first), str(second), "--to", str(tmp_path / "out")], program="compare") == 0
    text = told(tmp_path / "out")
    message(line_with(text, "| 2 | never | never (never to never) | worse |"))
    message(line_with(text, "| 0 of 10 | 10 of 10 | worse |"))


def test_drawn_schedules_and_runs_that_could_not_tell_are_no_numbers(tmp_path: Path, message: Messages) -> None:
    first = night(tmp_path / "nights", "one")
    assert main([str(first), str(night(tmp_path / "n", "drawn", drawn=True))], program="compare") == 1
    unknown = night(tmp_path / "nights", "two", verdict="UNKNOWN")
    assert main([str(first), str(unknown), "--to", str(tmp_path / "out")], program="compare") == 0
    text = told(tmp_path / "out")
    message(line_with(text, "of 0 comparisons"))
    assert "suites/test_kills.py::test_killed[3]: 0 of one.jsonl, 1 of two.jsonl" in text


def test_two_results_of_a_sweep(tmp_path: Path) -> None:
    for name, factor in (("before", 1.0), ("after", 0.5)):
        results = Results.read(tmp_path / name)
        results.begin(replace(OF, commit=name), "the file")
        for number in range(1, 8):
            results.enter(line("1", "quorum", number, values={"confirmed_per_s": factor * (100.0 + number)}))
    assert main([str(tmp_path / name) for name in ("before", "after")] + ["--to", str(tmp_path)], program="x") == 0
    text = told(tmp_path)
    assert "| in_flight 1, queues quorum | 104 (101 to 107) | 52 (50.5 to 53.5) | x0.5 (0.48" in text
    assert "- commit: before and after" in text


def test_two_results_of_which_each_measured_something_else(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], message: Messages
) -> None:
    for name, measure in (("before", "confirmed_per_s"), ("after", "confirm_p99_ms")):
        results = Results.read(tmp_path / name)
        results.begin(OF, "the file")
        for number in range(1, 8):
            results.enter(line("1", "quorum", number, verdict="UNKNOWN", values={measure: 5.0}))
    assert main([str(tmp_path / name) for name in ("before", "after")], program="compare") == 1
    message(capsys.readouterr().err)


def test_what_never_came_and_comes_now_is_known_by_its_direction(tmp_path: Path, message: Messages) -> None:
    first = night(tmp_path / "nights", "one", recovered_s=None, verdict="INVALID", invariants={"recovery": "INVALID"})
    assert main([str(first), str(night(tmp_path / "nights", "two")), "--to", str(tmp_path / "out")], program="x") == 0
    rows = [line for line in told(tmp_path / "out").splitlines() if "| never | 2 | " in line]
    (row,) = (line for line in rows if "test_killed" not in line)
    assert row.endswith("| better |")
    message(row)


@pytest.mark.parametrize(
    "arguments",
    [
        pytest.param(["nowhere", "nowhere2"], id="nowhere"),
        pytest.param(["."], id="one_folder"),
        pytest.param([".", "."], id="the_same"),
        pytest.param([".", "empty"], id="empty"),
        pytest.param(["a.fault.yaml"], id="one_file"),
        pytest.param(["a.fault.yaml", "--second", "workload.in_flight"], id="no_value"),
        pytest.param(["b.fault.yaml", "--second", "workload.in_flight=10"], id="no_file"),
        pytest.param([".", ".", "-x"], id="for_pytest"),
    ],
)
def test_what_cannot_be_compared_is_reported(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    arguments: list[str],
    message: Messages,
) -> None:
    (tmp_path / "a.fault.yaml").write_text(yaml.safe_dump(BASE))
    (tmp_path / "empty").mkdir()
    monkeypatch.chdir(tmp_path)
    assert main(arguments, program="compare") == 1
    message(capsys.readouterr().err)


def checked(folder: Path, *arguments: str) -> tuple[int, str]:
    """What pytest says that only checks what would be played."""
    program = [sys.executable, "-m", "rabbitmq_resilience", "compare", *arguments, "--check-only", "-v"]
    done = subprocess.run(program, cwd=folder, capture_output=True, text=True, check=False, timeout=120)
    return done.returncode, done.stdout + done.stderr


@pytest.mark.core
def test_two_fault_files_are_played_in_turn_as_often_as_shows_something(tmp_path: Path) -> None:
    (tmp_path / "before.fault.yaml").write_text(yaml.safe_dump(BASE))
    other = {**BASE, "workload": {**BASE["workload"], "in_flight": 7}}
    (tmp_path / "after.fault.yaml").write_text(yaml.safe_dump(other))
    status, text = checked(tmp_path, "before.fault.yaml", "after.fault.yaml")
    assert status == 0, text
    order = [row.split("scenario ")[1].split(" ")[0] for row in text.splitlines() if " PASSED" in row]
    assert len(order) % 2 == 0 and len(order) >= 12
    assert all(set(order[i : i + 2]) == {"before", "after"} for i in range(0, len(order), 2))


@pytest.mark.plays
def test_settings_of_all_fault_files(tmp_path: Path) -> None:
    for name in ("one", "two"):
        (tmp_path / f"{name}.fault.yaml").write_text(yaml.safe_dump({**BASE, "seed": len(name) + ord(name[0])}))
    status, text = checked(tmp_path, "one.fault.yaml", "two.fault.yaml", "--second", "workload.in_flight=10")
    assert status == 0, text
    assert "scenario two, side second: workload" in text and "(round 6)" in text


@pytest.fixture
def three_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Go to a folder with three fault files; one of them has a field that there is not."""
    for name in ("one", "two", "wrong"):
        text = yaml.safe_dump({**BASE, "seed": ord(name[0])}, sort_keys=False)
        (tmp_path / f"{name}.fault.yaml").write_text(text.replace("queues:", "quues:") if name == "wrong" else text)
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        pytest.param(["--second", "workload.in_fligt=10"], "--second: workload.in_fligt: ", id="no_such_field"),
        pytest.param(["--first", "workload.in_flight=x"], "--first: workload.in_flight: ", id="no_number"),
        pytest.param(["--second", "on.driver=boats"], "--second: on.driver: 'boats'", id="no_such_driver"),
        pytest.param(["--second", "phases.steady_s=5"], "are the same scenario", id="no_change"),
        pytest.param(["wrong.fault.yaml"], "wrong.fault.yaml: line ", id="another_file"),
        pytest.param(["two.fault.yaml", "--repeats", "4"], "4 can never", id="too_few"),
    ],
)
def test_what_is_wrong_is_named_as_it_was_written(
    three_files: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], named: str, message: Messages
) -> None:
    """The sweep file that is made of the arguments is not the user's: its lines are not named, and it is removed."""
    assert main(["one.fault.yaml", *arguments], program="compare") == 1
    said = capsys.readouterr().err
    assert named in said
    assert "sweep.yaml" not in said and "axes" not in said
    assert not [*three_files.glob("reports/comparisons/*")]
    message(said)


def test_sides_that_mix_versions_in_other_parts_are_distinguished(tmp_path: Path, message: Messages) -> None:
    def mixed(name: str, new: int) -> Path:
        folder = tmp_path / name
        for number in range(10):
            night(folder, f"{number}", broker_version="4.0.5" if number < new else "3.10.8")
        return folder

    assert main([str(mixed("a", 1)), str(mixed("b", 9)), "--to", str(tmp_path / "out")], program="compare") == 0
    line = line_with(told(tmp_path / "out"), "90 times 3.10.8, 10 times 4.0.5")
    assert "10 times 3.10.8, 90 times 4.0.5" in line
    message(line)


def test_files_whose_names_end_alike_are_all_played(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[list[str]] = []

    def run_pytest(command: list[str], *, limit_s: float | None) -> int:
        assert limit_s is None
        called.append(command)
        return 7

    monkeypatch.setattr(compare_command, "run_pytest", run_pytest)
    files = [tmp_path / f"{letter}-{'long' * 20}.fault.yaml" for letter in "ab"]
    for seed, file in enumerate(files):
        file.write_text(yaml.safe_dump({**BASE, "seed": seed}))
    assert main([*map(str, files), "--to", str(tmp_path / "to")], program="compare") == 7
    (axis,) = yaml.safe_load(Path(called[0][3]).read_text())["axes"]
    assert [settings["base"] for settings in axis["settings"].values()] == [str(file) for file in files]
    assert all(len(label) <= 60 for label in axis["settings"])


def test_scenarios_whose_versions_are_swapped_are_named(tmp_path: Path, message: Messages) -> None:
    """Over all scenarios both sides have as many runs of each version."""

    def half(name: str, *, odd: str, even: str) -> Path:
        with NightWriter.in_folder(tmp_path / name, "night", HEADER) as writer:
            for number in range(4):
                version = odd if number % 2 else even
                scenario = f"suites/test_kills.py::test_killed[{number}]"
                writer.write(replace(PLAYED, scenario=scenario, broker_version=version))
        return tmp_path / name

    sides = half("a", odd="4.0.5", even="3.10.8"), half("b", odd="3.10.8", even="4.0.5")
    assert main([*map(str, sides), "--to", str(tmp_path / "out")], program="compare") == 0
    line = line_with(told(tmp_path / "out"), "RabbitMQ: alike over all scenarios")
    assert "test_killed[0], and 3 more" in line
    message(line)
