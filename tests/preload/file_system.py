"""Say what a cut of power leaves, slowly and from the definitions alone: a second model, for comparison.

A volume remembers every operation since its begin. After a cut, the operations that are durable are done again, in
their order, on what there was at the begin. Which are durable follows from the flushes:

``ordered``: the flush of a folder makes durable the earlier operations on names in it; that of a file, the earlier
operations that touched it (created, linked, moved, removed or replaced it). A flush of data alone does so for those
before the file first got its size, if that is another one than at its last flush. A durable operation needs
the earlier ones on its names, on the files and folders it touched, on the folders that its names lie in, and inside
folders that it removed. A rename that replaces a file, and becomes durable, makes durable the data that its file had at
the rename, if the file was created since the begin, and neither flushed nor given blocks (by such a rename, by
fallocate, or by a cut to nothing).

``ext4``: all operations are durable that came before the last change which a flush made durable. That is: of a folder,
the last operation on a name in it; of a file, the last operation that touched it or change of its size, as above; of a
file's data alone, only the latter. Data is kept as by ``ordered``.

``posix``: a name is durable if its folder was flushed after it changed; data, if its file was.
"""

from __future__ import annotations

import errno
import itertools
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

SECTOR = 512


class RefusedError(Exception):
    """The kernel refuses the operation. ``number``: why, as in errno."""

    def __init__(self, number: int) -> None:
        super().__init__(number)
        self.number = number


class Edit(NamedTuple):
    """A change of a file's content: ``data`` at ``offset``, or, without data, another size."""

    offset: int
    data: bytes | None
    when: int
    is_write: bool = True

    def on(self, content: bytes) -> bytes:
        if self.data is None:
            return content[: self.offset].ljust(self.offset, b"\0")
        padded = content.ljust(self.offset, b"\0")
        return padded[: self.offset] + self.data + padded[self.offset + len(self.data) :]

    def torn(self) -> Iterator[Edit]:
        """Yield what may be left of it if it was torn after some sectors, but for nothing and all of it."""
        if self.is_write and self.data:
            first = SECTOR - self.offset % SECTOR
            for kept in range(first, len(self.data), SECTOR):
                yield self._replace(data=self.data[:kept])


@dataclass(eq=False)
class File:
    """A file or a symbolic link. ``flushed``: how many of the edits its own flushes have made durable.

    ``is_new``: it was created, and neither flushed nor given blocks since."""

    base: bytes = b""
    target: str | None = None
    edits: list[Edit] = field(default_factory=list)
    flushed: int = 0
    is_new: bool = True

    @property
    def content(self) -> bytes:
        return replay(self.base, self.edits)

    def restart(self, content: bytes) -> None:
        """Let this content be durable."""
        self.base, self.edits, self.flushed, self.is_new = content, [], 0, False

    def flush(self) -> None:
        self.flushed, self.is_new = len(self.edits), False

    def resized(self) -> int | None:
        """Return when it first got its size since the last flush; None if it had that then."""
        counts = range(self.flushed, len(self.edits) + 1)
        first = next(count for count in counts if len(replay(self.base, self.edits[:count])) == len(self.content))
        return None if first == self.flushed else self.edits[first - 1].when


@dataclass(eq=False)
class Folder:
    names: dict[str, File | Folder] = field(default_factory=dict)


Node = File | Folder
Name = tuple[Folder, str]


def replay(content: bytes, edits: Iterable[Edit]) -> bytes:
    for edit in edits:
        content = edit.on(content)
    return content


@dataclass(eq=False)
class Operation:
    """One operation on names: what each of its names leads to after it, and which nodes it touched and removed.

    ``replacing``: the new file that was renamed, if it replaced another one.
    """

    when: int
    names: dict[Name, Node | None]
    touched: set[Node]
    removed: set[Folder]
    replacing: File | None = None

    def needs(self, other: Operation) -> bool:
        folders = {folder for folder, _ in self.names}
        return other.when < self.when and bool(
            self.names.keys() & other.names.keys()
            or self.touched & other.touched
            or folders & other.touched
            or self.removed & {folder for folder, _ in other.names}
        )


class Flush(NamedTuple):
    """A flush of a file or a folder, or of all (None). ``last``: the last change that it made durable, 0 if none."""

    when: int
    of: Node | None
    last: int


@dataclass(eq=False)
class Handle:
    """An open file. Duplicates and children share it."""

    file: File
    flags: str
    position: int = 0


class Volume:
    """A folder with all that was done to it."""

    def __init__(self) -> None:
        self.root = Folder()
        self.operations: list[Operation] = []
        self.flushes: list[Flush] = []
        #: The file whose edits were flushed in part, which the library cannot follow.
        self.flushed_in_part: File | None = None
        self._clock = itertools.count(1)
        self._base: dict[Name, Node] = {}

    def begin(self) -> None:
        """Let all that there is be durable, and forget what was done."""
        self.operations, self.flushes, self._base = [], [], {}
        for folder in folders_in(self.root):
            for name, node in folder.names.items():
                self._base[folder, name] = node
                if isinstance(node, File):
                    node.restart(node.content)

    def parent(self, path: str) -> Name:
        *above, name = path.split("/")
        folder = self.root
        for part in above:
            node = folder.names.get(part)
            if node is None:
                raise RefusedError(errno.ENOENT)
            if not isinstance(node, Folder):
                raise RefusedError(errno.ENOTDIR)
            folder = node
        return folder, name

    def at(self, path: str) -> Node:
        folder, name = self.parent(path)
        if name not in folder.names:
            raise RefusedError(errno.ENOENT)
        return folder.names[name]

    def change(
        self,
        names: dict[Name, Node | None],
        *touched: Node,
        removed: Folder | None = None,
        replacing: File | None = None,
    ) -> None:
        """Do an operation on names, and remember it."""
        gone = set() if removed is None else {removed}
        self.operations.append(Operation(next(self._clock), dict(names), {*touched}, gone, replacing))
        set_names(names)

    def edit(self, file: File, offset: int, data: bytes | None, *, is_write: bool = True) -> None:
        file.edits.append(Edit(offset, data, next(self._clock), is_write))

    def flush(self, node: Node | None) -> None:
        changes = [operation.when for operation in self.operations if makes_durable(node, operation)]
        if isinstance(node, File):
            changes.append(node.resized() or 0)
        self.flushes.append(Flush(next(self._clock), node, max(changes, default=0)))
        files = {node} if isinstance(node, File) else set() if node else files_in(self._all_nodes())
        for file in files:
            file.flush()

    def flush_data(self, file: File) -> None:
        """Flush a file as fdatasync does."""
        if (resized := file.resized()) is not None:
            self.flushes.append(Flush(resized, file, resized))
        file.flush()

    def flush_write(self, file: File, *, data_only: bool) -> None:
        """Flush the last edit of a file, as a write with O_SYNC or O_DSYNC does."""
        last = file.edits[-1]
        assert last.data is not None
        end = last.offset + len(last.data)
        for edit in file.edits[file.flushed : -1]:
            if edit.is_write and edit.data and not last.offset <= edit.offset <= edit.offset + len(edit.data) <= end:
                self.flushed_in_part = file
        if data_only:
            self.flush_data(file)
        else:
            self.flush(file)

    def _all_nodes(self) -> set[Node]:
        touched = (node for operation in self.operations for node in operation.touched)
        return {self.root, *self._base.values(), *touched}

    def after(self, model: str) -> tuple[Folder, dict[File, int]]:
        """Return the root after a cut, and for each file how many of its edits are durable."""
        if model == "posix":
            kept, changes = self._flushed(), self._kept_by_posix()
        else:
            operations, kept = self.ordered() if model == "ordered" else self.ext4()
            changes = [(done.when, name, node) for done in operations for name, node in done.names.items()]
        for folder in {name[0] for name in self._base} | {n[0] for o in self.operations for n in o.names}:
            folder.names = {}
        final: dict[Name, tuple[int, Node | None]] = {name: (0, node) for name, node in self._base.items()}
        final |= {name: (when, node) for when, name, node in changes}
        newest: dict[Node, int] = {}
        for when, node in final.values():
            if isinstance(node, Folder):
                newest[node] = max(when, newest.get(node, 0))
        for (folder, name), (when, node) in final.items():
            if node is not None and (isinstance(node, File) or newest[node] == when):
                folder.names[name] = node
        return self.root, kept

    def _kept_by_posix(self) -> list[tuple[int, Name, Node | None]]:
        return [
            (operation.when, name, node)
            for operation in self.operations
            for name, node in operation.names.items()
            if any(flush.of in (None, name[0]) and flush.when > operation.when for flush in self.flushes)
        ]

    def _flushed(self) -> dict[File, int]:
        return {file: file.flushed for file in files_in(self._all_nodes())}

    def ordered(self) -> tuple[list[Operation], dict[File, int]]:
        """Return the operations that ``ordered`` makes durable, and for each file how many of its edits."""
        durable: set[Operation] = set()
        kept = self._flushed()
        for flush in self.flushes:
            earlier = [operation for operation in self.operations if operation.when < flush.when]
            before = set(durable)
            durable |= {operation for operation in earlier if makes_durable(flush.of, operation)}
            while True:
                needed = {other for other in earlier if any(operation.needs(other) for operation in durable)}
                if needed <= durable:
                    break
                durable |= needed
            keep_data(durable - before, kept)
        return sorted(durable, key=lambda operation: operation.when), kept

    def ext4(self) -> tuple[list[Operation], dict[File, int]]:
        """Return the operations that ``ext4`` makes durable, and for each file how many of its edits."""
        last = max((flush.last for flush in self.flushes), default=0)
        durable, kept = [operation for operation in self.operations if operation.when <= last], self._flushed()
        keep_data(durable, kept)
        return durable, kept


def keep_data(durable: Iterable[Operation], kept: dict[File, int]) -> None:
    """Raise the number of durable edits of each file that replaced another one, to those before that operation."""
    for operation in durable:
        if operation.replacing is not None:
            had = sum(edit.when < operation.when for edit in operation.replacing.edits)
            kept[operation.replacing] = max(had, kept.get(operation.replacing, 0))


def makes_durable(flushed: Node | None, operation: Operation) -> bool:
    """Return whether a flush makes an earlier operation durable by itself."""
    if isinstance(flushed, Folder):
        return any(folder is flushed for folder, _ in operation.names)
    return flushed is None or flushed in operation.touched


def set_names(names: dict[Name, Node | None]) -> None:
    for (folder, name), node in names.items():
        if node is None:
            folder.names.pop(name, None)
        else:
            folder.names[name] = node


def folders_in(root: Folder) -> Iterator[Folder]:
    yield root
    for node in root.names.values():
        if isinstance(node, Folder):
            yield from folders_in(node)


def files_in(nodes: Iterable[Node]) -> set[File]:
    return {node for node in nodes if isinstance(node, File)}
