"""A night is read as it was written, and whatever is wrong with its file is told."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.extensions.nights.night_file import (
    Ended,
    Header,
    LeftOut,
    Line,
    Night,
    NightFileError,
    NightWriter,
    Tested,
    find_nights,
    read_night,
)
from rabbitmq_resilience.runner.run_line import BrokeFirst
from tests.messages import Messages
from tests.nights.literal import HEADER, PLAYED


def written(path: Path, *lines: Line, header: Header = HEADER) -> Path:
    with NightWriter(path, header) as night:
        for line in lines:
            night.write(line)
    return path


def test_a_night_is_read_as_it_was_written(tmp_path: Path) -> None:
    broke = replace(
        PLAYED, verdict="INVALID", as_expected=False, broke_first=BrokeFirst(invariant="order", summary="é")
    )
    left, ended = LeftOut(scenario="b", why="budget", last_played=None), Ended(status=1, played=2, at="2026-11-22")
    tested = Tested(scenario="b", outcome="skipped", why="for another version", took_s=0.1, at="2026-11-22")
    path = written(tmp_path / "deep" / "night.jsonl", left, PLAYED, broke, tested, ended)
    assert read_night(path) == Night(path, HEADER, [PLAYED, broke], [left], ended, torn=False, tested=[tested])


def test_the_lines_are_those_that_were_agreed(tmp_path: Path) -> None:
    path = written(tmp_path / "night.jsonl", PLAYED)
    first, second = map(json.loads, path.read_text(encoding="utf-8").splitlines())
    assert first == {"is": "night", **asdict(HEADER), "planned": []}
    assert second == {"is": "played", **asdict(PLAYED)}


def test_a_night_is_never_written_over(tmp_path: Path) -> None:
    path = written(tmp_path / "night.jsonl", PLAYED)
    with pytest.raises(FileExistsError):
        NightWriter(path, HEADER)
    assert len(read_night(path).played) == 1


def test_each_line_is_there_as_soon_as_it_is_written(tmp_path: Path) -> None:
    with NightWriter(tmp_path / "night.jsonl", HEADER) as night:
        for count in range(1, 4):
            night.write(PLAYED)
            assert len(read_night(night.path).played) == count


@given(st.data())
def test_a_file_that_is_cut_short_keeps_every_whole_line(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("night")
    whole = written(folder / "whole.jsonl", PLAYED, replace(PLAYED, title="naïve"), PLAYED).read_bytes()
    first = whole.index(b"\n") + 1
    kept = data.draw(st.integers(first, len(whole)))
    cut = folder / "cut.jsonl"
    cut.write_bytes(whole[:kept])
    night = read_night(cut)
    assert len(night.played) == whole[:kept].count(b"\n") - 1
    assert night.torn == (not whole[:kept].endswith(b"\n"))


@pytest.mark.parametrize(
    ("line", "text", "place"),
    [
        pytest.param(2, "{", ", line 2: ", id="torn"),
        pytest.param(2, "[1]", ", line 2: ", id="no_object"),
        pytest.param(2, '{"is": "eaten"}', ", line 2: ", id="no_kind"),
        pytest.param(1, '{"is": "night", "format": 2}', ", line 1, format: ", id="later_format"),
        pytest.param(
            2,
            json.dumps({"is": "played", **asdict(PLAYED), "verdict": "FINE"}),
            ", line 2, verdict: ",
            id="no_verdict",
        ),
        pytest.param(1, json.dumps({"is": "played", **asdict(PLAYED)}), "", id="no_night"),
    ],
)
def test_what_is_wrong_is_refused_with_its_line(
    tmp_path: Path, line: int, text: str, place: str, message: Messages
) -> None:
    path = written(tmp_path / "night.jsonl", PLAYED, PLAYED)
    lines = path.read_text(encoding="utf-8").splitlines()
    lines[line - 1] = text
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    with message.of(NightFileError) as error:
        read_night(path)
    assert str(error.value).startswith(f"{path}{place}")


def test_a_field_of_later_is_passed_over(tmp_path: Path) -> None:
    path = written(tmp_path / "night.jsonl")
    with path.open("a", encoding="utf-8") as file:
        file.write(json.dumps({"is": "played", **asdict(PLAYED), "of_later": 7}) + "\n")
    assert read_night(path).played == [PLAYED]


def test_nights_are_found_wherever_they_lie_and_in_their_order(tmp_path: Path) -> None:
    second = written(tmp_path / "a" / "night.jsonl", header=replace(HEADER, night="2026-11-23T01:00:00Z"))
    first = written(tmp_path / "z.jsonl", header=HEADER)
    (tmp_path / "events.jsonl").write_text('{"kind": "phase"}\n')
    (tmp_path / "list.jsonl").write_text("[]\n")
    (tmp_path / "empty.jsonl").write_text("")
    (tmp_path / "folder.jsonl").mkdir()
    (tmp_path / "bytes.jsonl").write_bytes(b"\xff\xfe\n")
    assert find_nights(tmp_path) == [first, second]
