"""Writes from many threads of two processes, which are killed in the middle: each flushed write is there, no other."""

from __future__ import annotations

import random
import signal
import struct
import subprocess
import time
from collections.abc import Mapping
from pathlib import Path

import pytest

from tests.preload.sequences import Disk

pytestmark = pytest.mark.core
FILES = 4
RECORD = 64
KNOWN = struct.Struct("6q")


@pytest.mark.parametrize("seed", range(10))
def test_flushed_records_are_kept_and_no_others(disk: Disk, seed: int, tmp_path: Path) -> None:
    random_ = random.Random(seed)  # noqa: S311 - a test
    model = random_.choice(("ordered", "ext4", "posix"))
    folders = [disk.root / "first", disk.root / "second"]
    processes = []
    for folder in folders:
        folder.mkdir()
        shared = tmp_path / f"{folder.name}.shared"
        shared.write_bytes(bytes(65536))
        command = [str(disk.built.programs / "bursts"), "threads", str(folder), str(FILES), str(shared)]
        processes.append(subprocess.Popen(command, env=disk.environment))
    time.sleep(random_.uniform(0.1, 0.6))
    for process in processes:
        assert process.poll() is None
        process.send_signal(signal.SIGKILL)
        process.wait()
    before = {path: path.stat().st_size for folder in folders for path in folder.iterdir()}
    report = disk.cut("--model", model)
    assert report["not_found"] == []
    for folder in folders:
        known = (tmp_path / f"{folder.name}.shared").read_bytes()
        for number in range(FILES):
            check_appended(folder / str(number), KNOWN.unpack_from(known, number * KNOWN.size), before, model)
        begun, _, low, *_ = KNOWN.unpack_from(known, FILES * KNOWN.size)
        target = folder / "target"
        if low and model != "posix":
            assert low <= struct.unpack("q", target.read_bytes())[0] <= begun
        elif target.exists():
            (found,) = struct.unpack("q", target.read_bytes() or bytes(8))
            assert found in (0, *range(max(low, 1), begun + 1))
    left = disk.shown()["not_followed"]
    assert left == {}


def check_appended(path: Path, known: tuple[int, ...], before: Mapping[Path, int], model: str) -> None:
    begun, _, low, high, flushes_begun, flushes_done = known
    if not path.exists():
        assert low == 0 or model == "posix"  # there, no flush of the folder may have kept the name
        return
    content = path.read_bytes()
    count, rest = divmod(len(content), RECORD)
    assert rest == 0
    assert content == b"".join(struct.pack("q", number) * 8 for number in range(count))
    assert low <= count <= (high if flushes_begun == flushes_done else begun)
    assert len(content) <= before[path]
