"""Whatever becomes of the files of a run, judging it again ends in a verdict and never in one that it does not have."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.recorded_history import load_history
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.history import DELIVERIES_SUFFIX, END_OF_STREAM, PUBLISHES_SUFFIX
from rabbitmq_resilience.history.manifest import MANIFEST_FILE, VERSION, Manifest
from rabbitmq_resilience.history.run_directory import RunDirectory, RunDirectoryError
from rabbitmq_resilience.report.index import write_index
from rabbitmq_resilience.runner.alone import recheck
from rabbitmq_resilience.runner.judging import judge_run
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from tests.corpus.reading import first_runs
from tests.messages import Messages

RECORDED = first_runs()
#: A publisher and a consumer were killed in it, and messages of the publisher are settled.
WHOLE = RECORDED / "clients_killed-3.10.8-version_2"
OTHER = RECORDED / "leader_killed-4.3.6"

JUDGED = ("verdict.json", "report.html")


def files(run: Path) -> list[str]:
    return sorted(
        path.relative_to(run).as_posix() for path in run.rglob("*") if path.is_file() and path.name not in JUDGED
    )


def judged(recorded: Path, folder: Path, damage: Callable[[Path], object]) -> dict[str, Any]:
    """The document after the damage, by the way of ``--recheck``; what is raised is for people."""
    run = folder / "run"
    shutil.rmtree(run, ignore_errors=True)
    shutil.copytree(recorded, run)
    assert json.loads((run / "verdict.json").read_text())["verdict"] == "VALID"
    damage(run)
    try:
        told: dict[str, Any] = dict(recheck(run).document)
    except (RunDirectoryError, FaultFileError):
        told = {}
    document: dict[str, Any] = json.loads((run / "verdict.json").read_text())
    assert document["verdict"] == told.get("verdict", "UNKNOWN")
    assert told or not (run / "fault.yaml").exists() or document["assumptions"]["history_whole"]["summary"]
    return document


Damage = tuple[str, str, float, float]


def damaged(data: bytes, damage: Damage, other: bytes) -> bytes | None:
    """The bytes of a file after a damage at two places, parts of its length; None if the file is gone."""
    _, how, one, two = damage
    start, end = sorted((int(one * len(data)), int(two * len(data))))
    lines = data.splitlines(keepends=True)
    return {
        "cut": data[:start],
        "removed": None,
        "emptied": b"",
        "flipped": data[:start] + bytes(byte ^ 1 << start % 8 for byte in data[start : start + 1]) + data[start + 1 :],
        "without a part": data[:start] + data[end:],
        "with a part twice": data[:end] + data[start:],
        "of another run": other,
        "without a line": b"".join(lines[: int(one * len(lines))] + lines[int(one * len(lines)) + 1 :]),
    }[how]


HOW = (
    "cut",
    "removed",
    "emptied",
    "flipped",
    "without a part",
    "with a part twice",
    "of another run",
    "without a line",
)


def damages(run: Path) -> st.SearchStrategy[Damage]:
    part = st.floats(0, 1)
    return st.tuples(st.sampled_from(files(run)), st.sampled_from(HOW), part, part)


def apply(run: Path, damage: Damage) -> bool:
    """Whether anything is another now."""
    path, other = run / damage[0], OTHER / damage[0]
    before = path.read_bytes()
    after = damaged(before, damage, other.read_bytes() if other.exists() else b"")
    if after is None:
        path.unlink()
    else:
        path.write_bytes(after)
    return after != before


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("damaged")


def test_a_verdict_that_is_withdrawn_keeps_no_consequences(folder: Path) -> None:
    def damage(run: Path) -> None:
        before = json.loads((run / "verdict.json").read_text())
        (run / "verdict.json").write_text(json.dumps({**before, "consequences": {"outages": {"longest_s": 41.0}}}))
        (run / "fault.yaml").write_text("no scenario")

    document = judged(WHOLE, folder, damage)
    assert (document["verdict"], document["consequences"]) == ("UNKNOWN", None)
    assert document["title"], "what the earlier verdict states of the run stays"


@pytest.mark.generated
@given(damages(WHOLE))
@example(("history/publisher-0.0.underway.bin", "removed", 0, 0))
@example(("history/publisher-0.settled.publishes.arrows", "removed", 0, 0))
@example(("logs/a1.log", "without a line", 0.5, 0.5))
@example((MANIFEST_FILE, "removed", 0, 0))
@example((MANIFEST_FILE, "flipped", 0.03, 0.03))
def test_no_damage_of_a_complete_record_goes_unnoticed(folder: Path, damage: Damage) -> None:
    changed = []
    document = judged(WHOLE, folder, lambda run: changed.append(apply(run, damage)))
    if not changed[0] or same_json(folder / "run", damage[0]):
        assert document["verdict"] == "VALID"
    elif damage[0] != "fault.yaml":  # its bounds may be changed to judge by others
        assert document["verdict"] == "UNKNOWN"
        whole = document["assumptions"]["history_whole"]
        assert (whole["verdict"], document["as_expected"]) == ("UNKNOWN", False)
        assert whole["examples"]


def same_json(run: Path, name: str) -> bool:
    """White space says nothing."""
    try:
        return name == MANIFEST_FILE and json.loads((run / name).read_text()) == json.loads((WHOLE / name).read_text())
    except (OSError, ValueError):
        return False


@pytest.mark.generated
@given(st.lists(damages(WHOLE), min_size=1, max_size=3))
def test_no_damage_of_a_run_that_was_broken_off_is_more_than_unknown(folder: Path, some: Sequence[Damage]) -> None:
    """Nobody came to write checksums, so that all is read as far as it goes."""

    def damage(run: Path) -> None:
        Manifest(VERSION).save(run)
        (run / "history" / "publisher-0.settled.publishes.arrows").unlink()
        for one in some:
            if (run / one[0]).exists() and one[0] != MANIFEST_FILE:
                apply(run, one)

    assert judged(WHOLE, folder, damage)["verdict"] == "UNKNOWN"


def test_a_record_of_version_1_is_refused_with_the_reason(folder: Path, message: Messages) -> None:
    """Such a record has no manifest; its columns are others, too."""
    document = judged(WHOLE, folder, lambda run: (run / MANIFEST_FILE).unlink())
    summary = document["assumptions"]["history_whole"]["summary"]
    assert (document["verdict"], document["invariants"]["no_loss"]["verdict"]) == ("UNKNOWN", "UNKNOWN")
    message(summary, hide={r"\S+/run/": "RUN/"})
    with pytest.raises(RunDirectoryError) as caught:
        load_history(folder / "run")
    assert str(caught.value) == summary


@pytest.mark.parametrize(
    "name", ["publisher-0.0.publishes.arrows", "consumer-0.0.deliveries.arrows", "publisher-0.jsonl"]
)
def test_a_file_with_a_dot_before_its_name_is_noticed_and_not_read(folder: Path, name: str) -> None:
    def unseal(run: Path) -> None:
        Manifest(VERSION).save(run)

    def add(run: Path) -> None:
        history = run / "history"
        (history / f".{name}").write_bytes((history / name).read_bytes())

    added = judged(WHOLE, folder, add)
    assert added["verdict"] == "UNKNOWN"
    assert f"history/.{name} did not exist when the run ended" in added["assumptions"]["history_whole"]["summary"]

    def add_unsealed(run: Path) -> None:
        unseal(run)
        add(run)

    unsealed = judged(WHOLE, folder, unseal)
    assert unsealed["invariants"]
    assert judged(WHOLE, folder, add_unsealed)["invariants"] == unsealed["invariants"]


STREAMS = [name for name in files(WHOLE) if name.endswith((PUBLISHES_SUFFIX, DELIVERIES_SUFFIX))]
NEEDED = [name for name in files(WHOLE) if name.endswith((".jsonl", "load.json", "counters.bin"))]


@pytest.mark.parametrize("how", ["removed", "emptied"])
@pytest.mark.parametrize("name", STREAMS + NEEDED)
def test_a_file_that_is_missing_or_empty_is_named(folder: Path, name: str, how: str) -> None:
    document = judged(WHOLE, folder, lambda run: apply(run, (name, how, 0, 0)))
    whole = document["assumptions"]["history_whole"]
    assert (document["verdict"], whole["verdict"]) == ("UNKNOWN", "UNKNOWN")
    worker = Path(name).name.partition(".")[0]
    assert worker in whole["summary"]


def test_4000_bytes_less_of_a_stream_are_4000_bytes_too_few(folder: Path) -> None:
    """What is missing was filled in as unknown, as if its publisher had been killed."""

    def cut(run: Path) -> None:
        path = run / "history" / "publisher-1.0.publishes.arrows"
        path.write_bytes(path.read_bytes()[:-4000])

    document = judged(WHOLE, folder, cut)
    assert document["verdict"] == "UNKNOWN"
    assert "publisher-1" in document["assumptions"]["history_whole"]["summary"]


def test_the_end_mark_of_a_life_that_was_killed_is_nothing_that_was_recorded(folder: Path) -> None:
    def without_marks(run: Path) -> None:
        for worker in ("publisher-0.0.publishes", "consumer-1.0.deliveries"):
            assert not (run / "history" / f"{worker}.arrows").read_bytes().endswith(END_OF_STREAM)

    assert judged(WHOLE, folder, without_marks)["verdict"] == "VALID"


def test_a_bound_may_be_changed_and_a_schedule_may_not(folder: Path, message: Messages) -> None:
    def edited(run: Path, old: str, new: str) -> None:
        text = (run / "fault.yaml").read_text()
        assert text.count(old) == 1
        (run / "fault.yaml").write_text(text.replace(old, new))

    document = judged(WHOLE, folder, lambda run: edited(run, "  order: {}\n", "  order: {}\n  recovery: {}\n"))
    assert set(document["invariants"]) == {"no_loss", "order", "recovery"}
    assert document["assumptions"]["history_whole"]["verdict"] == "VALID"
    document = judged(WHOLE, folder, lambda run: edited(run, "client: consumer:1", "client: consumer:0"))
    assert document["verdict"] == "UNKNOWN"
    message(document["assumptions"]["history_whole"]["summary"])


@pytest.mark.parametrize("text", [None, "", "{", "title: [", "\0"])
def test_without_a_scenario_no_verdict_of_before_stays(tmp_path: Path, text: str | None) -> None:
    run = Path(shutil.copytree(WHOLE, tmp_path / "run"))
    (run / "fault.yaml").unlink()
    if text is not None:
        (run / "fault.yaml").write_text(text)
    with pytest.raises((RunDirectoryError, FaultFileError), match=r"fault\.yaml"):
        recheck(run)
    document = json.loads((run / "verdict.json").read_text())
    assert (document["verdict"], document["as_expected"]) == ("UNKNOWN", False)
    assert "fault.yaml" in document["assumptions"]["history_whole"]["summary"]
    assert document["title"] == "Recorded: clients are killed"
    assert "UNKNOWN" in (run / "report.html").read_text()


def test_the_page_of_all_runs_says_what_a_run_says_now(tmp_path: Path) -> None:
    run = Path(shutil.copytree(WHOLE, tmp_path / "run"))
    index = write_index(tmp_path)
    assert "1 VALID, 0 INVALID, 0 UNKNOWN" in index.read_text()
    (run / "events.jsonl").unlink()
    assert recheck(run).verdict is Verdict.UNKNOWN
    assert "0 VALID, 0 INVALID, 1 UNKNOWN" in index.read_text()


def test_a_run_alone_gets_no_page_of_all_runs(tmp_path: Path) -> None:
    recheck(Path(shutil.copytree(WHOLE, tmp_path / "run")))
    assert [path.name for path in tmp_path.iterdir()] == ["run"]


def test_a_folder_that_is_no_run_is_left_alone(tmp_path: Path, message: Messages) -> None:
    with message.of(RunDirectoryError):
        recheck(tmp_path)
    assert not list(tmp_path.iterdir())


def test_what_a_killed_publisher_left_is_settled_where_no_one_came_to_do_it(tmp_path: Path) -> None:
    """The same rows, from what was under way, in a run that was broken off."""
    run = RunDirectory(Path(shutil.copytree(WHOLE, tmp_path / "run")))
    settled = run.history / "publisher-0.settled.publishes.arrows"
    before = settled.read_bytes()
    settled.unlink()
    Manifest(VERSION).save(run.path)
    assert judge_run(run).verdict == "UNKNOWN"
    assert settled.read_bytes() == before
