"""Slow and failing writes and flushes, their counters, and programs that are left alone."""

from __future__ import annotations

import errno
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.preload.sequences import Built, Disk

BEGIN = ("open 1 wc file", "open 2 wc other")


def test_extra_time_is_waited_and_counted(disk: Disk) -> None:
    disk.call("set", "slow", "--write-ms", "20", "--flush-ms", "40")
    disk.play([*BEGIN, "write 1 0 10 1", "pwrite 2 0 10 1", "fsync 1", "die"])
    counted = disk.shown()
    assert counted["slow"] == {"write_ms": 20, "flush_ms": 40}
    assert (counted["writes"]["calls"], counted["flushes"]["calls"], counted["bytes"]) == (2, 1, 20)
    assert counted["writes"]["ns"] >= 40e6
    assert counted["flushes"]["ns"] >= 40e6
    disk.call("clear")
    disk.play([*BEGIN, "write 1 0 10 1", "die"])
    assert disk.shown()["writes"]["ns"] - counted["writes"]["ns"] < 20e6


@pytest.mark.parametrize("name", ["EIO", "ENOSPC"])
def test_a_failed_write_changes_nothing(disk: Disk, name: str) -> None:
    number = -getattr(errno, name)
    disk.call("set", "errors", "--errno", name, "--on", "write")
    writes = ["write 1 0 10 1", "writev 1 0 10 1", "pwrite 1 5 10 1", "ftruncate 1 7", "fallocate 1 0 9", "fsync 1"]
    results = disk.play([*BEGIN, *writes, "die"])
    assert results[2:] == [number] * 5 + [0]
    assert (disk.root / "file").stat().st_size == 0
    assert disk.shown()["writes"]["errors"] == 5


def test_a_failed_flush_flushes_nothing(disk: Disk) -> None:
    disk.call("set", "errors", "--errno", "EIO", "--on", "flush")
    flushes = ["write 1 0 10 1", "fsync 1", "fdatasync 1", "syncfolder ."]
    results = disk.play([*BEGIN, *flushes, "die"])
    assert results[2:] == [10, -errno.EIO, -errno.EIO, -errno.EIO]
    disk.call("cut")
    assert [*disk.root.iterdir()] == []


def test_a_write_that_flushes_and_fails_is_one_error(disk: Disk) -> None:
    code = "import os; file = os.open('file', os.O_WRONLY | os.O_CREAT | os.O_DSYNC); os.write(file, b'some')"
    for on, counted in (("flush", (0, 1)), ("write", (1, 0))):
        before = disk.shown()
        disk.call("set", "errors", "--errno", "EIO", "--on", on)
        subprocess.run([sys.executable, "-I", "-S", "-c", code], cwd=disk.root, env=disk.environment, check=False)
        after = disk.shown()
        assert tuple(after[kind]["errors"] - before[kind]["errors"] for kind in ("writes", "flushes")) == counted


def test_one_in_n_fails_on_the_files_of_a_glob(disk: Disk) -> None:
    options = ("--errno", "ENOSPC", "--on", "both", "--one-in", "3", "--files", "f*")
    disk.call("set", "errors", *options)
    lines = [f"write {number} 0 1 1" for number in (1, 2, 1, 2, 1, 1, 1, 1)]
    results = disk.play([*BEGIN, *lines, "fsync 2", "die"])
    assert results[2:] == [1, 1, 1, 1, -errno.ENOSPC, 1, 1, -errno.ENOSPC, 0]
    expected = {"errno": "ENOSPC", "on": "both", "one_in": 3, "files": "f*"}
    assert (disk.shown()["errors"], disk.shown()["writes"]["errors"]) == (expected, 2)


@pytest.mark.parametrize("without", ["DISK_FAULTS_ROOTS", "DISK_FAULTS_STATE", "a prepared state"])
def test_without_its_variables_nothing_is_followed(disk: Disk, without: str, tmp_path: Path) -> None:
    given = {name: value for name, value in disk.environment.items() if name != without}
    if without == "a prepared state":
        given["DISK_FAULTS_STATE"] = str(tmp_path)
    text = "open 1 wc file\nwrite 1 0 10 1\nrename file other\n"
    subprocess.run([disk.built.programs / "operations"], input=text, text=True, cwd=disk.root, env=given, check=True)
    assert (disk.root / "other").stat().st_size == 10
    counted = disk.shown()
    assert (counted["writes"]["calls"], counted["names_bytes"], counted["not_followed"]) == (0, 0, {})


def test_files_outside_of_the_roots_are_not_followed(disk: Disk, tmp_path: Path) -> None:
    lines = (f"open 1 wc {tmp_path}/out", "write 1 0 10 1", f"rename {tmp_path}/out {tmp_path}/o", "die")
    disk.play(lines)
    counted = disk.shown()
    assert (counted["writes"]["calls"], counted["names_bytes"], counted["not_followed"]) == (0, 0, {})


@pytest.mark.parametrize(
    ("code", "name"),
    [
        ("import mmap; mmap.mmap(file, 4)", "mmap"),
        ("os.mkfifo('fifo')", "mknod"),
        ("libc.fopen(b'file', b'w')", "fopen"),
        ("os.open('.', os.O_TMPFILE | os.O_RDWR)", "open O_TMPFILE"),
        ("os.rename('file', '../moved')", "rename or link across the roots"),
        ("libc.syscall(425, 1, 0)", "io_uring_setup"),
        ("import mmap; mmap.mmap(file, 4, prot=mmap.PROT_READ)", "mmap"),
        ("libc.mkostemps(ctypes.create_string_buffer(b'aXXXXXX.b'), 2, 0)", "mkstemp"),
        ("libc.dprintf(file, b'text')", "dprintf"),
        ("os.dup2(file, 1); libc.puts(b'text')", "a standard stream (stdout or stderr)"),
        ("libc.aio_fsync(os.O_SYNC, (ctypes.c_int * 42)(file))", "aio_write, aio_fsync or lio_listio"),
        ("libc.syscall(437, -100, b'file', (ctypes.c_uint64 * 3)(os.O_WRONLY), 24)", "openat2 or open_by_handle_at"),
        ("os.pwritev(file, [b'text'], 0, os.RWF_DSYNC)", "pwritev2 RWF_DSYNC or RWF_SYNC"),
        ("os.link('file', '../linked')", "rename or link across the roots"),
        ("libc.chroot(b'.')", "chroot"),
        (
            "os.pwrite(file, b'x', 0); os.pwrite(os.open('file', os.O_WRONLY | os.O_DSYNC), b'x', 2)",
            "a write with O_SYNC or O_DSYNC to a file with others that are not flushed",
        ),
        (
            "os.posix_spawn('/bin/true', ['true'], {}, file_actions=[(os.POSIX_SPAWN_OPEN, 1, 'file', os.O_RDWR, 0)])",
            "posix_spawn with a file to open",
        ),
    ],
)
def test_calls_that_cannot_be_followed_are_counted(disk: Disk, code: str, name: str) -> None:
    (disk.root / "file").write_bytes(b"some")
    given = "import ctypes, os; libc, file = ctypes.CDLL(None), os.open('file', os.O_RDWR);"
    command = [sys.executable, "-I", "-S", "-c", given + code]
    subprocess.run(command, cwd=disk.root, env=disk.environment, check=False)
    assert disk.shown()["not_followed"] == {name: 1}


def test_another_file_system_is_not_mixed_up_with_the_one_of_the_log(built: Built, disk: Disk) -> None:
    """Files of two file systems may have the same inode number, by which the log knows them."""
    elsewhere = Path("/dev/shm")  # noqa: S108 - a file system of its own
    if not elsewhere.is_dir() or elsewhere.stat().st_dev == disk.state.stat().st_dev:
        pytest.skip("needs two file systems")
    with tempfile.TemporaryDirectory(dir=elsewhere) as folder:
        other = Disk(built, Path(folder), disk.state)
        other.play([*BEGIN, "write 1 0 10 1", "die"])
        assert list(other.shown()["not_followed"]) == ["files on another file system than the log"]
        assert [*(disk.state / "files").iterdir()] == []
        assert other.cut()["bytes"] == 0


def test_a_shell_and_its_children_are_followed(disk: Disk) -> None:
    script = "mkdir d && echo one > d/a && (echo two >> d/a; mv d/a b) && sh -c 'echo three > c' && rm -r d && sync c"
    subprocess.run(
        ["/bin/sh", "-c", script], cwd=disk.root, env={**disk.environment, "PATH": "/usr/bin:/bin"}, check=True
    )
    assert {path.name for path in disk.root.iterdir()} == {"b", "c"}
    assert disk.shown()["not_followed"] == {}
    disk.call("cut")
    assert {path.name: path.read_text() for path in disk.root.iterdir()} == {"c": "three\n"}
