"""Lines that programs write of their work: sound ones, and all that may stand in such a file otherwise."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from rabbitmq_resilience.workload.work_lines import WorkLine, WorkOfProcess, read_work, work_path

SOUND = b'{"event": "committed", "message_id": "m1", "at": 1790000000.25}\n'
READ = WorkLine("committed", "m1", 1_790_000_000.25)


def read(folder: Path, content: bytes) -> WorkOfProcess:
    work_path(folder, "worker-0", 0).write_bytes(content)
    return read_work(folder, "worker-0", [0])


def test_lines_of_all_lives_are_read(tmp_path: Path) -> None:
    """A life without a file wrote nothing. What a line says in addition is its program's own matter."""
    first = b'{"event": "worked_on", "message_id": "m1", "order": 7}\n\n' + SOUND
    work_path(tmp_path, "worker-0", 0).write_bytes(first)
    work_path(tmp_path, "worker-0", 2).write_bytes(SOUND.rstrip())  # a last line may lack its end
    work_path(tmp_path, "worker-1", 0).write_bytes(SOUND)
    found = read_work(tmp_path, "worker-0", range(3))
    assert found.lines == [WorkLine("worked_on", "m1", None), READ, READ]
    assert (found.unread, found.first_unread) == (0, "")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (SOUND[:40], "is no JSON"),  # its writer was killed
        (SOUND[:40] + SOUND.rstrip(), "is no JSON"),
        (b"order 7 is done", "is no JSON"),
        (b"\xff\x00", "is no JSON"),
        (b"[" * 60_000, "is no JSON"),
        (b'{"at": ' + b"1" * 60_000 + b"}", "is no JSON"),
        (b"7", "is no object of JSON"),
        (b'{"event": "started"}', "has no event worked_on or committed"),
        (b'{"event": ["committed"], "message_id": "m1"}', "has no event worked_on or committed"),
        (b'{"event": "committed", "message_id": 7}', "has no message_id that is a text"),
        *(
            (b'{"event": "committed", "message_id": "m1", "at": %s}' % at, 'has an "at" that is no number of seconds')
            for at in (b"NaN", b"-1", b"true", b'"now"', b"1790000000250", b"1" + b"0" * 400)
        ),
        (b"x" * 70_000, "is longer than 64 KiB"),
    ],
)
def test_a_line_that_says_nothing_is_named_and_passed_over(line: bytes, reason: str, tmp_path: Path) -> None:
    found = read(tmp_path, SOUND + line + b"\n" + SOUND + line)
    assert found.lines == [READ, READ]
    assert found.unread == 2
    named = f"{tmp_path.name}/worker-0.0.work.jsonl, line 2, {reason}"
    assert found.first_unread.startswith(named)


def test_something_else_in_the_place_of_the_file_is_named(tmp_path: Path) -> None:
    """A program may do anything with a path that it is given; a pipe must not be waited for."""
    work_path(tmp_path, "worker-0", 0).mkdir()
    os.mkfifo(work_path(tmp_path, "worker-0", 1))
    work_path(tmp_path, "worker-0", 2).symlink_to("/dev/zero")
    found = read_work(tmp_path, "worker-0", range(3))
    assert found.unread == 3
    assert found.first_unread == f"{tmp_path.name}/worker-0.0.work.jsonl cannot be read: it is no plain file"
