"""A session writes a night, XML, a summary and annotations, and a night that is killed keeps what it had."""

from __future__ import annotations

import os
import signal
import time
from pathlib import Path
from xml.etree import ElementTree as ET

import pytest

from rabbitmq_resilience.extensions.nights import night_summary as summaries
from rabbitmq_resilience.extensions.nights.night_file import Night, find_nights, read_night
from rabbitmq_resilience.plugin.sessions import EXIT_UNKNOWN
from rabbitmq_resilience.tools.waiting import wait_until
from tests.messages import Messages
from tests.nights.staged import begun, session, stage
from tests.tables.lines import line_with

VALID, INVALID, UNKNOWN = "leader_killed-4.3.6", "automatic_acks-4.0.5", "purge_unproven-3.10.8"


def nights(folder: Path) -> list[Night]:
    return [read_night(path) for path in find_nights(folder / "nights")]


def scenario(number: int, title: str) -> str:
    return f"s{number}.fault.yaml::{title}"


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, int, str]:
    """A session in which everything happened that may."""
    titles = (f"{VALID} one", f"{INVALID} known", INVALID, UNKNOWN, "raises an error")
    folder = stage(tmp_path_factory.mktemp("broken"), *titles)
    outputs = ["--junitxml=out.xml", "--resilience-summary=summary.md", "--resilience-night-name=a job"]
    status, told = session(folder, *outputs, GITHUB_ACTIONS="true", GITHUB_WORKSPACE=str(folder))
    return folder, status, told


@pytest.mark.core
def test_the_night_is_written(broken: tuple[Path, int, str]) -> None:
    folder, status, told = broken
    (night,) = nights(folder)
    assert status == 1, told
    assert f"nights/{night.path.name}" in told
    assert night.path.name.endswith("Z-a-job.jsonl")
    assert (night.header.name, night.header.driver, night.header.budget_min) == ("a job", "local", None)
    assert night.ended is not None
    assert (night.ended.status, night.ended.played) == (1, 4)
    words = [(run.verdict, run.as_expected, bool(run.known)) for run in night.played]
    assert words == [
        ("VALID", True, False),
        ("INVALID", True, True),
        ("INVALID", False, False),
        ("UNKNOWN", False, False),
    ]
    assert [test.outcome for test in night.tested] == ["passed", "passed", "failed", "unknown", "failed"]
    assert night.tested[2].why == "INVALID: Recorded, a consumer with automatic acknowledgements dies"
    assert night.tested[-1].why == "the cluster did not form"
    first = night.played[0]
    assert first.scenario == scenario(0, f"{VALID} one")
    assert (first.broker_version, first.queue_type, first.drawn) == ("4.3.6", "quorum", False)
    assert first.recovered_s is not None
    assert (folder / "reports" / "runs" / first.fault_file).is_file()


@pytest.mark.core
def test_xml_has_properties_of_each_run(broken: tuple[Path, int, str]) -> None:
    folder, _, _ = broken
    night = nights(folder)[0]
    cases = list(ET.parse(folder / "out.xml").getroot().iter("testcase"))  # noqa: S314 - it is our own
    told = [{p.attrib["name"]: p.attrib["value"] for p in case.iter("property")} for case in cases]
    assert len(told) == 5
    assert told[4] == {}
    for properties, run in zip(told[:4], night.played, strict=True):
        assert properties["verdict"] == run.verdict
        assert properties["seed"] == str(run.seed)
        assert properties["broker_version"] == run.broker_version
        assert properties["driver"] == run.driver
        assert properties["outage_s"] == str(run.outage_s)
        assert properties["rerun"] == run.rerun
        assert properties.get("invariant") == (run.broke_first.invariant if run.broke_first else None)
        assert properties.get("recovered_s") == (None if run.recovered_s is None else str(run.recovered_s))
    assert told[2]["invariant"] == "no_loss"


@pytest.mark.core
def test_the_summary_shows_first_what_broke_first(broken: tuple[Path, int, str], message: Messages) -> None:
    text = (broken[0] / "summary.md").read_text(encoding="utf-8")
    lines = text.splitlines()
    start = lines.index("````text")
    message("\n".join(lines[:start]), hide={r"20\d\d-\S+Z": "TIME"})
    assert start < 8
    story = lines[start + 1 :]
    assert story[0].startswith("INVALID: Recorded")
    assert any(line.strip().startswith("no_loss ") and "INVALID" in line for line in story)
    assert "| INVALID (known) | 1 |" in lines
    assert "| failed: raises an error" in text or "| failed: s4.fault.yaml" in text


@pytest.mark.core
def test_annotations_name_file_and_line(broken: tuple[Path, int, str]) -> None:
    said = [line for line in broken[2].splitlines() if line.startswith("::")]
    assert len(said) == 3
    assert said[0].startswith("::error file=s2.fault.yaml,line=7,title=INVALID%3A Recorded"), said[0]
    assert "::no_loss: " in said[0]
    assert "%0Aagain: " in said[0]
    assert said[1].startswith("::error file=s4.fault.yaml,line=1,title=failed%3A ")
    assert said[1].endswith("::the cluster did not form")
    assert said[2].startswith("::warning file=s3.fault.yaml,line=")


@pytest.mark.plays
def test_a_night_that_could_not_tell_says_so(tmp_path: Path, message: Messages) -> None:
    folder = stage(tmp_path / "f", UNKNOWN, f"{VALID} one")
    status, told = session(folder, "--resilience-summary=summary.md")
    assert status == EXIT_UNKNOWN
    assert "::warning" not in told
    text = (folder / "summary.md").read_text(encoding="utf-8")
    message(text.partition("````text")[0], hide={r"20\d\d-\S+Z": "TIME"})
    assert f"status {EXIT_UNKNOWN}" in text


@pytest.mark.plays
def test_without_the_option_nothing_is_written_and_a_session_without_scenarios_writes_nothing(tmp_path: Path) -> None:
    folder = stage(tmp_path / "f", f"{VALID} one")
    (folder / "test_own.py").write_text("def test_own():\n    pass\n")
    assert session(folder, "test_own.py", "--resilience-summary=summary.md")[0] == 0
    assert session(folder, "--check-only")[0] == 0
    assert session(folder, "-n", "2")[0] == 1, "it is not played there"
    assert session(folder, "--collect-only", "--resilience-summary=summary.md")[0] == 0
    assert not (folder / "nights").exists()
    assert not (folder / "summary.md").exists()
    (folder / "pytest.ini").write_text("[pytest]\n")
    assert session(folder)[0] == 0
    assert not (folder / "nights").exists()


@pytest.mark.plays
def test_what_cannot_be_written_is_reported_before_anything_is_played(tmp_path: Path, message: Messages) -> None:
    folder = stage(tmp_path / "f", f"{VALID} one")
    status, told = session(folder, "--resilience-summary=nowhere/summary.md")
    assert status == pytest.ExitCode.USAGE_ERROR
    message(line_with(told, "nowhere/summary.md"))
    (folder / "nights").write_text("a file")
    status, told = session(folder)
    assert status == pytest.ExitCode.USAGE_ERROR
    message(line_with(told, "File exists"))
    assert "PLAYING" not in told


@pytest.mark.plays
def test_repeats_have_a_line_and_properties_each(tmp_path: Path) -> None:
    folder = stage(tmp_path / "f", f"{VALID} one")
    assert session(folder, "--resilience-repeat=3", "--junitxml=out.xml")[0] == 0
    (night,) = nights(folder)
    assert len(night.played) == 3
    assert len(night.tested) == 1
    assert len({run.run for run in night.played}) == 3
    root = ET.parse(folder / "out.xml").getroot()  # noqa: S314 - it is our own
    told = {p.attrib["name"]: p.attrib["value"] for p in root.iter("property")}
    assert [told[name] for name in ("run", "run.2", "run.3")] == [run.run for run in night.played]


@pytest.mark.plays
@pytest.mark.parametrize("memory", ["cache", "nights"])
def test_a_night_that_is_killed_keeps_what_it_had_and_the_next_goes_on(
    tmp_path: Path, memory: str, message: Messages
) -> None:
    """By SIGKILL, as if its machine had gone. The next night has pytest's cache, or only the folder of nights."""
    titles = (f"{VALID} one", f"{VALID} two", "hangs", f"{VALID} four")
    folder = stage(tmp_path / "f", *titles)
    with begun(folder) as process:
        try:
            wait_until((folder / "hangs").exists, timeout_s=240, what="the third scenario")
        finally:
            process.send_signal(signal.SIGKILL)
            process.communicate(timeout=60)
    (killed,) = nights(folder)
    assert killed.ended is None
    assert [run.scenario for run in killed.played] == [scenario(i, titles[i]) for i in (0, 1)]
    text = summaries.summary(killed, [], runs=folder / "reports" / "runs")
    message(line_with(text, "or its machine"), hide={r"20\d\d-\S+Z": "TIME"})
    assert set(killed.not_reached) == {scenario(i, title) for i, title in enumerate(titles)} - {
        run.scenario for run in killed.played
    }
    (told,) = (line for line in text.splitlines() if line.startswith(f"{len(titles) - 2} of {len(titles)} "))
    message(told)

    (folder / "s2.fault.yaml").unlink()
    if memory == "nights":
        os.rename(folder / ".pytest_cache", tmp_path / "another machine")  # noqa: PTH104 - of pytest's own
    else:
        killed.path.unlink()
    time.sleep(1.1)  # nights of one second are told apart by a number
    assert session(folder, "--resilience-budget-min=0.000001", "--resilience-summary=summary.md")[0] == 0
    second = nights(folder)[-1]
    assert [run.scenario for run in second.played] == [scenario(3, titles[3])]
    assert {left.scenario for left in second.left_out} == {scenario(i, titles[i]) for i in (0, 1)}
    assert all(left.last_played is not None for left in second.left_out)
    text = (folder / "summary.md").read_text(encoding="utf-8")
    message(line_with(text, "2 did not fit"))
    assert f"| {scenario(0, titles[0])} | 20" in text


@pytest.mark.plays
def test_a_night_that_cannot_be_read_is_left_out_and_reported(tmp_path: Path, message: Messages) -> None:
    folder = stage(tmp_path / "f", f"{VALID} one")
    (folder / "nights").mkdir()
    (folder / "nights" / "old.jsonl").write_text('{"is": "night", "format": 7}\n')
    status, told = session(folder)
    assert status == 0
    message(line_with(told, "old.jsonl, line 1, format: ").strip("- "))
