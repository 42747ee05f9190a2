from __future__ import annotations

import json
from pathlib import Path

import pytest

from rabbitmq_resilience.history.run_directory import RunDirectory, RunDirectoryError
from rabbitmq_resilience.history.whole_files import write_whole
from tests.messages import Messages
from tests.pages.synthetic_run import write_synthetic_run

#: Hide the moment at which a run was made, the path of pytest, and what the module json found.
HIDE = {r"\d{8}T\d{6}Z": "STAMP", r"\S*pytest --recheck": "PYTEST --recheck", r"not JSON \(.*\);": "not JSON (WHY);"}


def test_two_runs_in_one_second_do_not_share_a_directory(tmp_path: Path) -> None:
    paths = {RunDirectory.create(tmp_path, "Zone b: cut / off").path for _ in range(5)}

    assert len(paths) == 5
    assert all("-zone-b-cut-off" in path.name for path in paths)
    assert all((path / "history").is_dir() and (path / "logs").is_dir() for path in paths)


@pytest.mark.parametrize("name", ["", "../../etc", "ä" * 300, "<script>"])
def test_any_name_stays_below_the_root(tmp_path: Path, name: str) -> None:
    assert RunDirectory.create(tmp_path, name).path.parent == tmp_path


def test_open_names_all_that_is_missing(tmp_path: Path, message: Messages) -> None:
    run = RunDirectory.create(tmp_path, "halved")
    run.history.rmdir()

    with message.of(RunDirectoryError, hide=HIDE) as caught:
        RunDirectory.open(run.path)
    assert all(name in str(caught.value) for name in ("fault.yaml", "events.jsonl", "history"))


def test_open_says_what_is_no_run_directory(tmp_path: Path, message: Messages) -> None:
    (tmp_path / "file").touch()

    with message.of(RunDirectoryError):
        RunDirectory.open(tmp_path / "nowhere")
    with message.of(RunDirectoryError):
        RunDirectory.open(tmp_path / "file")


def test_a_run_is_read_as_it_was_written(tmp_path: Path) -> None:
    written = write_synthetic_run(tmp_path, rate_per_s=20)

    run = RunDirectory.open(written.path)

    assert run.read_verdict()["seed"] == 4711
    assert sum(batch.num_rows for batch in run.publishes()) == sum(batch.num_rows for batch in run.deliveries()) > 1000
    assert [event.t_us for event in run.events()] == sorted(event.t_us for event in run.events())


def test_events_of_workers_are_merged(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "merged")
    run.events_file.write_text('{"t_us":1,"kind":"note"}\n{"t_us":3,"kind":"note"}\n')
    (run.history / "publisher-0.jsonl").write_text(
        '{"t_us":2,"kind":"worker","worker":"publisher-0","event":"started"}\n{"t_us":4,"ki'
    )

    assert [event.t_us for event in run.events()] == [1, 2, 3]


@pytest.mark.parametrize("text", ["", "{", "[1]"])
def test_a_broken_verdict_is_reported(tmp_path: Path, text: str, message: Messages) -> None:
    run = RunDirectory.create(tmp_path, "broken")
    with message.of(RunDirectoryError, hide=HIDE):
        run.read_verdict()

    run.verdict_file.write_text(text)

    with message.of(RunDirectoryError, hide=HIDE) as caught:
        run.read_verdict()
    assert "--recheck" in str(caught.value)


def test_a_verdict_that_cannot_be_written_leaves_the_old_one(tmp_path: Path) -> None:
    run = RunDirectory.create(tmp_path, "kept")
    run.write_verdict({"verdict": "VALID"})

    with pytest.raises(TypeError):
        run.write_verdict({"verdict": object()})

    assert json.loads(run.verdict_file.read_text()) == {"verdict": "VALID"}


def test_write_whole_leaves_no_draft(tmp_path: Path) -> None:
    write_whole(tmp_path / "text", "one")
    write_whole(tmp_path / "text", "two")

    assert [(path.name, path.read_text()) for path in tmp_path.iterdir()] == [("text", "two")]
