"""Compare what ext4 itself keeps after a cut with what the second model says of ``ext4``, on drawn sequences.

python -m tests.preload.on_ext4 --cases 1000 [--first 0] [--folder /dev/shm]

Each case is played on a new ext4 in a file, without the library. Then a copy of that file is mounted, as after a cut:
its journal is played back. ext4 must keep all operations on names that the model keeps, and it may keep later ones: a
commit of its journal also holds those between the change that is flushed and the flush. It needs root, loop devices
and ``mkfs.ext4``, so it is no test. Sources: the kernel's documentation of ext4 (``data=ordered``, ``auto_da_alloc``)
and of its journal.
"""

from __future__ import annotations

import argparse
import platform
import random
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import NamedTuple

from rabbitmq_resilience.sut.preload.library import BUILDS
from tests.preload.file_system import File, Folder, Name, Node, Volume, folders_in, replay
from tests.preload.program_model import Program
from tests.preload.programs import built_for_tests
from tests.preload.sequences import Seen, drawn, on_disk, play_and_foretell, with_files

_IMAGE_BYTES = 16 * 1024 * 1024
#: No commit of the journal but those that the case asks for. By default (``dioread_nolock``) a rename that replaces a
#: file may be committed some milliseconds before its data, which is zeros after a cut then.
_OPTIONS = "loop,noatime,data=ordered,dioread_lock,commit=300"


@contextmanager
def mounted(image: Path, at: Path) -> Iterator[Path]:
    at.mkdir()
    subprocess.run(["mount", "-t", "ext4", "-o", _OPTIONS, image, at], check=True)
    try:
        yield at
    finally:
        subprocess.run(["umount", at], check=True)
        at.rmdir()


def play(operations: Path, root: Path, lines: Sequence[str]) -> list[int]:
    """Let a process do the lines, without the library; return their results."""
    given = "".join(f"{line}\n" for line in lines)
    done = subprocess.run([operations], input=given, cwd=root, capture_output=True, text=True, check=False)
    return [int(result) for result in done.stdout.split()]


def names_after(volume: Volume, base: Mapping[Name, Node], last: int) -> dict[str, Node]:
    """Return what each path leads to after all operations on names up to that moment."""
    final: dict[Name, Node | None] = dict(base)
    for operation in volume.operations:
        if operation.when <= last:
            final |= operation.names
    found: dict[str, Node] = {}
    left: list[tuple[Folder, str]] = [(volume.root, "")]
    while left:
        folder, above = left.pop()
        for (within, name), node in final.items():
            if within is folder and node is not None:
                found[above + name] = node
                if isinstance(node, Folder):
                    left.append((node, f"{above}{name}/"))
    return found


def may_hold(file: File, kept: int, held: bytes) -> bool:
    """Return whether the file may hold that, if the first ``kept`` edits are on the disk and any of the others."""
    content = replay(file.base, file.edits[:kept])
    sizes = {len(content)}
    bytes_at = [{byte} for byte in content.ljust(len(held), b"\0")]
    for edit in file.edits[kept:]:
        if edit.data is None:
            sizes.add(edit.offset)
            for may in bytes_at[edit.offset :]:
                may.add(0)
        else:
            sizes |= {max(size, edit.offset + len(edit.data)) for size in sizes}
            for may, byte in zip(bytes_at[edit.offset :], edit.data, strict=False):
                may.add(byte)
    return min(sizes) <= len(held) <= max(sizes) and all(byte in may for byte, may in zip(held, bytes_at, strict=False))


def is_shown(node: Node, held: str | bytes | None, kept: Mapping[File, int]) -> bool:
    if isinstance(node, Folder):
        return held is None
    if node.target is not None:
        return held == node.target
    return isinstance(held, bytes) and may_hold(node, kept.get(node, node.flushed), held)


def fits(names: Mapping[str, Node], seen: Seen, kept: Mapping[File, int]) -> bool:
    """Return whether these names, with what must be kept of their files, may be what was seen."""
    return names.keys() == seen.keys() and all(is_shown(node, seen[path], kept) for path, node in names.items())


class Compared(NamedTuple):
    """What ext4 has not kept, and whether it has kept later operations than the model; or the model does not say."""

    wrong: list[str]
    kept_more: bool = False
    left_out: bool = False


def compared(operations: Path, case: int, folder: Path, *, fresh: Path) -> Compared:
    """Play a case on a copy of the new file system, and compare it with the model."""
    random_ = random.Random(case)  # noqa: S311 - cases must be the same again
    image, copy = folder / "image", folder / "copy"
    image.write_bytes(fresh.read_bytes())
    with mounted(image, folder / "mounted") as root:
        (root / "lost+found").rmdir()
        volume = with_files(random_, root, seed=case)
        subprocess.run(["sync", "-f", root], check=True)
        base = {(at, name): node for at in folders_in(volume.root) for name, node in at.names.items()}
        asked = drawn(random_, volume, case=case)
        lines = ["syncfs" if line == "sync" else line for line in asked]  # not of the whole machine
        if wrong := play_and_foretell(partial(play, operations, root), Program(volume), lines):
            return Compared(wrong)
        if volume.flushed_in_part:
            return Compared([], left_out=True)
        copy.write_bytes(image.read_bytes())
    with mounted(copy, folder / "mounted") as root:
        seen, _ = on_disk(root)
    durable, kept = volume.ext4()
    needed = max((operation.when for operation in durable), default=0)
    times = [0, *(operation.when for operation in volume.operations)]
    may = [last for last in times if last >= needed and fits(names_after(volume, base, last), seen, kept)]
    if may:
        return Compared([], kept_more=min(may) > needed)
    alike = [last for last in times if names_after(volume, base, last).keys() == seen.keys()]
    wrong = [
        "; ".join(lines),
        f"the model keeps operations up to {needed}; ext4 has the names after one of {alike}",
        *(f"{path}: {held!r:.60}" for path, held in seen.items()),
    ]
    return Compared(wrong)


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--folder", type=Path, help="where the file systems lie (the system's temporary folder)")
    asked = parser.parse_args(arguments)
    operations = built_for_tests(BUILDS).programs / "operations"
    began_s, failed, kept_more, left_out = time.monotonic(), 0, 0, 0
    with tempfile.TemporaryDirectory(dir=asked.folder) as name:
        folder = Path(name)
        fresh = folder / "fresh"
        fresh.write_bytes(bytes(_IMAGE_BYTES))
        subprocess.run(["mkfs.ext4", "-q", "-F", fresh], check=True)
        for case in range(asked.first, asked.first + asked.cases):
            done = compared(operations, case, folder, fresh=fresh)
            kept_more += done.kept_more
            left_out += done.left_out
            if done.wrong:
                failed += 1
                print(f"case {case}:", *done.wrong, sep="\n  ", flush=True)
    print(f"{asked.cases} sequences on ext4 of Linux {platform.release()} in {time.monotonic() - began_s:.0f} s")
    passed = asked.cases - failed - left_out
    print(f"{passed} passed, {failed} failed, {left_out} were left out, as a file was flushed in part")
    print(f"in {kept_more} ext4 kept later operations than the model")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
