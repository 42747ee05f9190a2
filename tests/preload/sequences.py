"""Draw sequences of operations on files, and play them on the library and on the model."""

from __future__ import annotations

import copy
import itertools
import json
import random
import shutil
import signal
import subprocess
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from rabbitmq_resilience.sut.preload.library import DiskFaultsBuild
from tests.preload.file_system import File, Folder, Volume, replay
from tests.preload.program_model import Program, content

FOLDERS = ("d", "e", "d/s", "e/s")
FILES = ("a", "b", "d/a", "d/b", "d/s/a", "e/a", "e/s/b")
NAMES = (*FILES, *FOLDERS)
FLAGS = ("w", "wc", "wc", "+c", "wct", "+ct", "wca", "+", "wcx", "wcs", "+cd", "wa")
LENGTHS = (1, 7, 100, 511, 512, 513, 1500, 5000)
FLUSHED_IN_PART = "a write with O_SYNC or O_DSYNC to a file with others that are not flushed"
KILLED = -signal.SIGKILL
_PLAYED_WITHIN_S = 120
#: Cases with this number or a higher one draw from all calls; the others are those that found the first faults.
MORE_CALLS_FROM = 100_000
#: Cases from here on also draw the model ``ext4``, and places at the border of a block.
EXT4_FROM = 300_000
OFFSETS, BLOCK = (0, 3, 512, 700, 2000), 4096
#: What ``operations.c`` can also do by the number of the call.
BY_NUMBER = {"open", "truncate", "rename", "link", "symlink", "unlink", "rmdir", "mkdir", "fsync"}


@dataclass(frozen=True)
class Built:
    """The library and the control program under test, and the folder of the programs that test them."""

    library: Path
    control: Path
    programs: Path

    def call(self, *words: str | Path) -> str:
        """Run the control program; return what it prints."""
        command = [str(word) for word in (self.control, *words)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def interrupted(self, *words: str | Path) -> str:
        """Run the control program, kill it at its first change of the disk, then at its second, until it ends."""
        command = [str(word) for word in (self.control, *words)]
        for at in itertools.count(1):
            dying = {"LD_PRELOAD": str(self.programs / "dying.so"), "DIE_AT": str(at)}
            done = subprocess.run(command, env=dying, capture_output=True, text=True, check=False)
            if done.returncode != KILLED:
                break
        assert done.returncode == 0, done
        return done.stdout


@dataclass(frozen=True)
class Disk:
    """A folder whose files are followed, and its state."""

    built: Built
    root: Path
    state: Path

    @property
    def environment(self) -> Mapping[str, str]:
        build = DiskFaultsBuild(self.built.library, self.built.control)
        return build.environment(self.root, state=self.state)

    def play(self, lines: Sequence[str]) -> list[int]:
        """Let a process do the lines; return their results."""
        done = subprocess.run(
            [self.built.programs / "operations"],
            input="".join(f"{line}\n" for line in lines),
            cwd=self.root,
            env=self.environment,
            capture_output=True,
            text=True,
            check=False,
            timeout=_PLAYED_WITHIN_S,
        )
        assert done.returncode in (0, KILLED) and not done.stderr, done
        return [int(result) for result in done.stdout.split()]

    def call(self, command: str, *options: str) -> str:
        """Run the control program on the state; return what it prints."""
        return self.built.call(command, self.state, *options)

    def refused(self, command: str, *options: str, status: int = 1) -> str:
        """Run the control program, which must refuse with that exit status; return its sentence."""
        words = [str(self.built.control), command, str(self.state), *options]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert (done.returncode, done.stdout, done.stderr.count("\n")) == (status, "", 1), done
        return done.stderr

    def shown(self) -> Any:
        return json.loads(self.call("show"))

    def cut(self, *options: str) -> Any:
        return json.loads(self.call("cut", *options))


def drawn(random_: random.Random, volume: Volume, *, case: int) -> list[str]:
    """Draw the lines of a case for a volume, few of which fail. Those of one process end with ``die``.

    Few have a file that is flushed in part; it is the last then."""
    lines: list[str] = []
    forked = 0
    scratch = Program(copy.deepcopy(volume))
    for _ in range(random_.randint(5, 90)):
        line = _line(random_, case)
        if line == "join" and not forked:
            continue
        if line == "die":
            lines += ["join"] * forked
            forked = 0
        done = scratch.do(line)
        in_part = scratch.volume.flushed_in_part is not None
        if (in_part or not done) and random_.random() < 0.9:
            if in_part:
                break
            continue
        forked += (line == "fork") - (line == "join")
        lines.append(line)
        if in_part:
            break
    return [*lines, *["join"] * forked, "die"]


def _line(random_: random.Random, case: int) -> str:
    more_calls, offsets = case >= MORE_CALLS_FROM, (*OFFSETS, *[BLOCK] * (case >= EXT4_FROM))
    number, other = random_.randint(1, 3), random_.randint(1, 3)
    offset, length, seed = random_.choice(offsets), random_.choice(LENGTHS), random_.randint(1, 200)
    file, name, to, folder = (random_.choice(names) for names in (FILES, NAMES, NAMES, FOLDERS))
    weighed = {
        f"open {number} {random_.choice(FLAGS)} {file}": 14,
        f"{random_.choice(('write', 'write', 'writev'))} {number} 0 {length} {seed}": 14,
        f"{random_.choice(('pwrite', 'pwritev'))} {number} {offset} {length} {seed}": 8,
        f"ftruncate {number} {offset}": 3,
        f"truncate {file} {offset}": 2,
        f"fallocate {number} {offset} {length}": 2,
        f"punch {number} {offset} {length}": 2,
        f"{random_.choice(('fsync', 'fdatasync'))} {number}": 9,
        f"syncfolder {random_.choice(('.', *FOLDERS))}": 7,
        "sync": 0.1,
        f"close {number}": 2,
        f"dup {number} {other}": 2,
        f"rename {file} {random_.choice(FILES)}": 9,
        f"rename {name} {to}": 5,
        f"link {file} {random_.choice(FILES)}": 4,
        f"symlink no/where {file}": 1,
        f"unlink {file}": 6,
        f"remove {name}": 2,
        f"mkdir {folder}": 7,
        f"rmdir {folder}": 4,
        "fork": 1,
        "join": 2,
        "exec": 1,
        "die": 2,
    }
    if more_calls:
        weighed |= {
            f"openat {number} {random_.choice(FLAGS)} {folder} a": 2,
            f"pappend {number} {offset} {length} {seed}": 2,
            f"sendfile {number} {other} {length}": 2,
            f"copy {number} {other} {length} {offset}": 3,
            f"syncfile {name}": 3,
            "syncfs": 0.1,
            f"dup2 {number} {other}": 1,
            f"noreplace {name} {to}": 2,
        }
    line = random_.choices([*weighed], weights=[*weighed.values()])[0]
    by_number = more_calls and line.split()[0] in BY_NUMBER and random_.random() < 0.2
    return f"#{line}" if by_number else line


Seen = dict[str, str | bytes | None]


def on_disk(root: Path) -> tuple[Seen, set[frozenset[str]]]:
    """Return what each path holds (None for a folder, a text for a link), and which paths are one file."""
    seen: Seen = {}
    same: dict[int, set[str]] = {}
    for path in sorted(root.rglob("*")):
        name = str(path.relative_to(root))
        if path.is_symlink():
            seen[name] = str(path.readlink())
        else:
            seen[name] = None if path.is_dir() else path.read_bytes()
        if seen[name] is not None:
            same.setdefault(path.lstat().st_ino, set()).add(name)
    return seen, {frozenset(names) for names in same.values()}


def in_model(root: Folder, *, above: str = "") -> dict[str, File | Folder]:
    found: dict[str, File | Folder] = {}
    for name, node in root.names.items():
        found[above + name] = node
        if isinstance(node, Folder):
            found |= in_model(node, above=f"{above}{name}/")
    return found


def expected(
    volume: Volume, kept: Mapping[File, int], *, torn: bool
) -> tuple[dict[str, set[object]], set[frozenset[str]]]:
    """Return what each path may hold after the cut, and which paths are one file."""
    may: dict[str, set[object]] = {}
    same: dict[File, set[str]] = {}
    for path, node in in_model(volume.root).items():
        if isinstance(node, Folder):
            may[path] = {None}
            continue
        same.setdefault(node, set()).add(path)
        durable = kept.get(node, node.flushed)
        may[path] = {node.target if node.target is not None else replay(node.base, node.edits[:durable])}
        for point in range(durable, len(node.edits) if torn else durable):
            before = replay(node.base, node.edits[:point])
            may[path] |= {edit.on(before) for edit in node.edits[point].torn()}
            may[path].add(node.edits[point].on(before))
    return may, {frozenset(paths) for paths in same.values()}


def with_files(random_: random.Random, root: Path, *, seed: int) -> Volume:
    """Make some files and folders that there are before a case, and return the volume with them."""
    volume = Volume()
    for name in [name for name in (*FOLDERS, *FILES) if random_.random() < 0.6]:
        path, program = root / name, Program(volume)
        if not path.parent.is_dir():
            continue
        if name in FOLDERS:
            path.mkdir()
            program.do_mkdir(name)
        else:
            path.write_bytes(content(seed, 3000))
            program.do_open("1", "wc", name)
            program.do_write("1", "", "3000", str(seed))
    volume.begin()
    return volume


def compare(built: Built, case: int, folder: Path, *, interrupted: bool = False) -> list[str]:
    """Play a case twice, each time with a cut, and return what differs from the model.

    ``interrupted``: kill the cut at each of its steps, and repeat it."""
    random_ = random.Random(case)  # noqa: S311 - cases must be the same again
    root, state = folder / "root", folder / "state"
    for place in (root, state):
        shutil.rmtree(place, ignore_errors=True)
    root.mkdir(parents=True)
    built.call("prepare", state)
    volume = with_files(random_, root, seed=case)
    models = ("ordered", "ext4", "posix") if case >= EXT4_FROM else ("ordered", "posix")
    wrong: list[str] = []
    for _ in range(2):
        model, torn = random_.choice(models), random_.random() < 0.3
        disk = Disk(built, root, state)
        wrong += _round(disk, random_, volume, options=Cut(model, torn, interrupted, case))
        if wrong or volume.flushed_in_part:
            break
    return wrong


class Cut(NamedTuple):
    """How a cut is made, and what is done before it."""

    model: str
    torn: bool
    interrupted: bool
    case: int


def play_and_foretell(play: Callable[[Sequence[str]], list[int]], program: Program, lines: Sequence[str]) -> list[str]:
    """Let each process do its lines, on a disk and in the model. Return what differs between their results."""
    process: list[str] = []
    for line in lines:
        process.append(line)
        if line != "die":
            continue
        results = play(process)
        foretold = [program.do(done) for done in process]
        succeeded = [result >= 0 for result in results]  # that of a join is the parent's of the fork; die has none
        if succeeded != foretold[:-1]:
            return [f"the model foretells other results: {[*zip(process, results, foretold, strict=False)]}"]
        process = []
    return []


def _round(disk: Disk, random_: random.Random, volume: Volume, *, options: Cut) -> list[str]:
    model, torn, interrupted, case = options
    lines, program = drawn(random_, volume, case=case), Program(volume)
    if wrong := play_and_foretell(disk.play, program, lines):
        return wrong
    seed = ["--torn", str(random_.randrange(1 << 32))] if torn else []
    cut = disk.built.interrupted if interrupted else disk.built.call
    report = json.loads(cut("cut", disk.state, "--model", model, *seed))
    _, kept = volume.after(model)
    may, same = expected(volume, kept, torn=torn)
    seen, together = on_disk(disk.root)
    wrong = [f"{path}: {seen.get(path, 'missing')!r:.60}" for path in {*may, *seen} if not _fits(may, seen, path)]
    if together != same:
        wrong.append(f"other hard links: {together} instead of {same}")
    if report["not_found"]:
        wrong.append(f"not found: {report['not_found']}")
    left = [*disk.shown()["not_followed"]]
    if volume.flushed_in_part:
        wrong = []  # the model does not say what stays
    if left != [FLUSHED_IN_PART] * bool(volume.flushed_in_part):
        wrong.append(f"not followed: {left}")
    if wrong:
        return [f"{model}{' torn' if torn else ''}: {'; '.join(lines)}", *wrong]
    for path, node in in_model(volume.root).items():
        if isinstance(node, File) and node.target is None:
            node.restart((disk.root / path).read_bytes())
    volume.begin()
    return []


def _fits(may: Mapping[str, set[object]], seen: Seen, path: str) -> bool:
    return path in may and path in seen and seen[path] in may[path]
