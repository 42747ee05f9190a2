"""Cuts of power by the library, compared with the second model, and what a cut needs."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import pytest

from rabbitmq_resilience.sut.preload.preloaded_disk import PreloadedDisk
from tests.preload.program_model import content
from tests.preload.sequences import EXT4_FROM, MORE_CALLS_FROM, Built, Disk, compare

#: Cases that have shown a fault of the library.
FOUND = [1728, 1827, 30801]


@pytest.mark.parametrize("case", FOUND)
def test_cases_that_have_shown_a_fault(built: Built, case: int, tmp_path: Path) -> None:
    assert compare(built, case, tmp_path) == []


@pytest.mark.parametrize(
    "first", [begin + case for begin in (0, MORE_CALLS_FROM, EXT4_FROM) for case in range(0, 20, 4)]
)
def test_drawn_sequences_leave_what_the_model_says(built: Built, first: int, tmp_path: Path) -> None:
    assert [wrong for case in range(first, first + 4) for wrong in compare(built, case, tmp_path)] == []


@pytest.mark.parametrize("case", [7, 34, *FOUND])
def test_a_cut_that_is_interrupted_at_each_step_comes_to_the_same_end(built: Built, case: int, tmp_path: Path) -> None:
    assert compare(built, case, tmp_path, interrupted=True) == []


def test_an_example(disk: Disk) -> None:
    (disk.root / "old").write_bytes(b"old content")
    lines = ("open 1 wc kept", "write 1 0 100 1", "fsync 1", "write 1 0 50 2", "open 2 wct old", "open 3 wc lost")
    disk.play([*lines, "rename old gone", "die"])
    assert {path.name for path in disk.root.iterdir()} == {"kept", "gone", "lost"}
    report = disk.cut()
    assert {path.name: path.stat().st_size for path in disk.root.iterdir()} == {"kept": 100, "old": 11}
    assert (disk.root / "old").read_bytes() == b"old content"
    expected: dict[str, object] = {
        "model": "ordered",
        "torn": None,
        "files": 4,
        "bytes": 50,
        "names": 3,
        "not_found": [],
    }
    assert {key: value for key, value in report.items() if key != "paths"} == expected
    assert {Path(one["path"]).name: (one["bytes"], one["names"]) for one in report["paths"]} == {
        "kept": (50, 0),
        "old": (0, 1),
        "gone": (0, 1),
        "lost": (0, 1),
    }
    assert disk.cut()["files"] == 0


@pytest.mark.parametrize(
    ("model", "left"), [("ordered", {"flushed": 100}), ("ext4", {"created": 0, "flushed": 100}), ("posix", {})]
)
def test_a_flush_of_one_file_keeps_earlier_names_on_ext4_only(disk: Disk, model: str, left: dict[str, int]) -> None:
    create = ("open 1 wc created", "write 1 0 50 1", "open 2 wc flushed", "write 2 0 100 2", "fsync 2")
    disk.play([*create, "open 3 wc later", "fsync 2", "die"])
    disk.cut("--model", model)
    assert {path.name: path.stat().st_size for path in disk.root.iterdir()} == left


FAILED = ("open 1 + a", "mkdir new", "rename a folder", "fsync 1")
BACK_TO_A_SIZE = (
    *("open 1 + a", "open 2 + b", "ftruncate 1 4096", "ftruncate 2 50", "fsync 2", "rename a moved"),
    *("pwrite 1 4096 904 1", "ftruncate 1 4096", "fdatasync 1"),
)
WRITTEN_AFTER_A_RENAME = (
    *("open 1 wc new", "write 1 0 50 1", "rename new a", "pwrite 1 0 50 2", "rename a b", "syncfolder ."),
)


@pytest.mark.parametrize("model", ["ordered", "ext4"])
@pytest.mark.parametrize(
    ("lines", "left"),
    [
        (FAILED, {"a": content(3, 100), "b": content(4, 100)}),
        (BACK_TO_A_SIZE, {"a": content(3, 100).ljust(4096, b"\0"), "b": content(4, 50)}),
        (WRITTEN_AFTER_A_RENAME, {"b": content(1, 50)}),
    ],
    ids=["failed", "back_to_a_size", "written_after_a_rename"],
)
def test_ext4_itself_keeps_no_more(disk: Disk, lines: Sequence[str], left: Mapping[str, bytes], model: str) -> None:
    """Sequences in which ext4 of Linux 6.18 lost what a model once kept."""
    (disk.root / "folder").mkdir()
    for name, seed in (("a", 3), ("b", 4)):
        (disk.root / name).write_bytes(content(seed, 100))
    disk.play([*lines, "die"])
    disk.cut("--model", model)
    assert {path.name: path.read_bytes() for path in disk.root.iterdir() if path.is_file()} == left
    assert not (disk.root / "new").exists()


def test_no_lock_of_a_killed_process_is_waited_for_although_its_number_is_in_use(disk: Disk) -> None:
    """As in a container, where the threads of each process have the same numbers again."""
    disk.play(["open 1 wc kept", "write 1 0 10 1", "fsync 1", "die"])
    subprocess.run([disk.built.programs / "marks", disk.state, "held", str(os.getpid())], check=True)
    disk.call("prepare")
    disk.play(["open 1 wc lost", "write 1 0 10 1", "die"])
    assert disk.shown()["not_followed"] == {}
    disk.cut()
    assert {path.name for path in disk.root.iterdir()} == {"kept"}


def test_what_is_reported_is_what_is_taken(disk: Disk) -> None:
    """A file whose size goes back is one, and a copy that finds no more to read has written nothing."""
    (disk.root / "cut").write_bytes(b"some")
    (disk.root / "empty").touch()
    disk.play(["truncate cut 1", "open 1 wc copy", "fsync 1", "open 2 + empty", "copy 1 2 5000 0", "sendfile 1 2 5000"])
    report = disk.cut()
    assert (report["files"], report["bytes"], report["names"]) == (1, 0, 0)
    assert (disk.root / "cut").read_bytes() == b"some"


def test_only_a_rename_that_replaces_a_file_keeps_what_the_file_had(disk: Disk) -> None:
    """ext4 writes data before such a rename alone (auto_da_alloc)."""
    (disk.root / "old").write_bytes(b"old content")
    made = ["open 1 wc moved", "write 1 0 100 1", "rename moved new", "open 2 wc next", "write 2 0 100 1"]
    later = ["rename next old", "write 2 0 50 2", "syncfolder .", "die"]
    disk.play([*made, *later])
    disk.cut()
    assert {path.name: path.stat().st_size for path in disk.root.iterdir()} == {"new": 0, "old": 100}


@pytest.mark.parametrize("before", [["fsync 1"], ["fallocate 1 0 4000"]])
def test_a_rename_keeps_nothing_of_a_file_that_has_its_blocks(disk: Disk, before: list[str]) -> None:
    """ext4 writes data before a rename only if a block of it is still to be allocated."""
    (disk.root / "old").write_bytes(b"old content")
    made = ["open 1 wc moved", "pwrite 1 0 100 1", *before, "pwrite 1 0 50 2", "rename moved old", "syncfolder ."]
    disk.play([*made, "die"])
    flushed = content(1, 100) if before == ["fsync 1"] else b""
    disk.cut()
    assert {path.name: path.read_bytes() for path in disk.root.iterdir()} == {"old": flushed}


@pytest.mark.parametrize(
    ("written", "kept"),
    [
        ("pwrite 1 0 100 2; fdatasync 1", "old"),
        ("pwrite 1 0 101 2; fdatasync 1", "new"),
        ("pwrite 1 0 100 2; fsync 1", "new"),
        ("open 2 wd new; pwrite 2 0 100 2", "old"),
        ("open 2 ws new; pwrite 2 0 100 2", "new"),
    ],
)
def test_a_flush_of_data_alone_keeps_a_name_only_with_a_new_size(disk: Disk, written: str, kept: str) -> None:
    disk.play(["open 1 wc old", "pwrite 1 0 100 1", "fsync 1", "rename old new", *written.split("; "), "die"])
    disk.cut()
    assert {path.name: path.read_bytes()[:100] for path in disk.root.iterdir()} == {kept: content(2, 100)}


def test_a_restart_without_a_cut_goes_on_with_the_log(disk: Disk) -> None:
    disk.play(["open 1 wca file", "fsync 1", "write 1 0 10 1", "die"])
    disk.play(["open 1 wca file", "write 1 0 10 2", "die"])
    disk.call("cut")
    assert (disk.root / "file").read_bytes() == b""


def test_a_file_that_another_program_took_away_is_named(disk: Disk) -> None:
    """A move by a program without the library is not in the log, so a cut does not find the file where it looks."""
    node = PreloadedDisk(
        "a1", disk.root, disk.state, disk.built.library, disk.built.control, disk.state / "power.jsonl"
    )
    written = [f"open {number} wc {name}" for number, name in enumerate(("moved", "kept"), start=1)]
    disk.play([*written, "fsync 1", "fsync 2", "write 1 0 10 1", "write 2 0 10 1", "die"])
    (disk.root / "moved").rename(disk.root / "elsewhere")
    taken = node.cut_power("ordered")
    assert taken.not_found == ["moved"]
    assert (disk.root / "kept").stat().st_size == 0
    assert node.cut_power("ordered").not_found == []


def test_a_cut_after_all_was_removed_and_settled_takes_only_what_is_new(disk: Disk) -> None:
    """New files may have the numbers of those that were removed by another program."""
    node = PreloadedDisk(
        "a1", disk.root, disk.state, disk.built.library, disk.built.control, disk.state / "power.jsonl"
    )
    names = [f"file{number}" for number in range(20)]
    written = [line for name in names for line in (f"open 1 wc {name}", "write 1 0 10 1", "close 1")]
    disk.play([*written, *(f"unlink {name}" for name in names[:10]), "die"])
    shutil.rmtree(disk.root)
    node.settle()
    node.prepare()
    disk.play([*written, "open 1 wc kept", "fsync 1", "die"])
    taken = node.cut_power("ordered")
    assert (taken.not_found, taken.names) == ([], len(names))
    assert {path.name for path in disk.root.iterdir()} == {"kept"}


def test_settled_is_durable(disk: Disk) -> None:
    disk.play(["open 1 wc file", "write 1 0 10 1", "die"])
    disk.call("settle")
    assert disk.cut()["names"] == 0
    assert (disk.root / "file").stat().st_size == 10


def test_a_torn_cut_is_the_same_for_the_same_seed(built: Built, tmp_path: Path) -> None:
    sizes = []
    for number, seed in enumerate((1, 1, 2, 3, 4)):
        disk = Disk(built, tmp_path / str(number) / "root", tmp_path / str(number) / "state")
        disk.root.mkdir(parents=True)
        disk.call("prepare")
        writes = [f"write 1 0 5000 {written}" for written in range(9)]
        disk.play(["open 1 wct file", "fsync 1", *writes, "die"])
        report = disk.cut("--torn", str(seed))
        sizes.append((disk.root / "file").stat().st_size)
        assert report["bytes"] == 45_000 - sizes[-1]
        assert sizes[-1] % 512 == 0 or sizes[-1] % 5000 == 0
    assert sizes[0] == sizes[1]
    assert len({*sizes}) > 2


@contextmanager
def living(disk: Disk) -> Iterator[subprocess.Popen[bytes]]:
    """Give a process that has made a file, and lives until it is killed or the block ends."""
    program = disk.built.programs / "operations"
    with subprocess.Popen(
        [program], cwd=disk.root, env=disk.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as process:
        assert process.stdin is not None and process.stdout is not None
        process.stdin.write(b"open 1 wc file\n")
        process.stdin.flush()
        process.stdout.readline()
        yield process


def test_a_cut_under_a_living_process_is_refused(disk: Disk) -> None:
    with living(disk) as process:
        assert disk.shown()["pids"] == [process.pid]
        expected = f"disk-faults: a process that writes to this disk is alive: {process.pid}; kill it before the cut\n"
        assert disk.refused("cut", status=3) == expected
    assert disk.shown()["pids"] == []
    disk.call("cut")


@pytest.mark.core
def test_programs_that_a_killed_broker_had_started_are_waited_for(disk: Disk, tmp_path: Path) -> None:
    """They end a moment after it; here, as soon as a cut was refused."""
    with living(disk) as child:
        refusing = tmp_path / "disk-faults"
        kills = f"status=$?; kill -9 {child.pid}; exit $status"
        refusing.write_text(f'#!/bin/sh\n"{disk.built.control}" "$@" && exit\n{kills}\n')
        refusing.chmod(0o700)
        node = PreloadedDisk("a1", disk.root, disk.state, disk.built.library, refusing, disk.state / "power.jsonl")
        assert node.cut_power("ordered").names == 1
        assert child.wait() == -9


@pytest.mark.parametrize("first", ["early", "late"])
def test_a_flush_covers_what_was_written_before_it_began(disk: Disk, first: str) -> None:
    command = [str(disk.built.programs / "marks"), str(disk.state), first]
    marks = subprocess.run(command, capture_output=True, text=True, check=True)
    after = {"early": "3 5 left\n5 6 left\nleft\n", "late": "5 left\n5 6 left\nleft\n"}
    assert marks.stdout == after[first]


def test_a_folder_that_is_no_state_is_refused(built: Built, tmp_path: Path) -> None:
    assert "not a prepared state" in Disk(built, tmp_path, tmp_path).refused("cut")
    assert "not a prepared state" in Disk(built, tmp_path, tmp_path / "none").refused("show")
    assert "cannot be made" in Disk(built, tmp_path, tmp_path / "none" / "state").refused("prepare")


@pytest.mark.parametrize(
    "words",
    [
        ["cut", "--model", "none"],
        ["cut", "--torn", "x"],
        ["cut", "--wrong", "1"],
        ["set", "slow"],
        ["set", "slow", "--write-ms", "-1"],
        ["set", "errors", "--errno", "EPERM", "--on", "write"],
        ["set", "errors", "--errno", "EIO", "--on", "read"],
        ["set", "other"],
    ],
)
def test_wrong_options_are_refused_by_one_sentence(disk: Disk, words: list[str]) -> None:
    disk.refused(*words)
