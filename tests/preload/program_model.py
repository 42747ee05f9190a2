"""Foretell what ``operations.c`` does to a volume, line by line."""

from __future__ import annotations

import errno
from collections.abc import Callable

from tests.preload.file_system import File, Folder, Handle, RefusedError, Volume


def content(seed: int, length: int) -> bytes:
    return bytes((seed * 31 + at * 7 + (at >> 8) + 1) & 255 for at in range(length))


class Program:
    """The open files of the process that does the operations."""

    def __init__(self, volume: Volume) -> None:
        self.volume = volume
        self.handles: dict[int, Handle] = {}
        self._parents: list[dict[int, Handle]] = []

    def do(self, line: str) -> bool:
        """Do a line. Return whether it succeeds."""
        word, *rest = line.removeprefix("#").split()
        work: Callable[..., None] = getattr(self, f"do_{word}")
        try:
            work(*rest)
        except RefusedError:
            return False
        return True

    def _handle(self, number: str) -> Handle:
        if int(number) not in self.handles:
            raise RefusedError(errno.EBADF)
        return self.handles[int(number)]

    def do_open(self, number: str, flags: str, path: str) -> None:
        self.handles.pop(int(number), None)  # an open that fails leaves no file under its number
        folder, name = self.volume.parent(path)
        node, created = folder.names.get(name), None
        if node is None:
            if "c" not in flags:
                raise RefusedError(errno.ENOENT)
            node = created = File()
            self.volume.change({(folder, name): node}, node)
        elif "x" in flags and "c" in flags:
            raise RefusedError(errno.EEXIST)
        elif isinstance(node, Folder):
            raise RefusedError(errno.EISDIR)
        if node.target is not None:
            raise RefusedError(errno.ENOENT)  # links of these programs lead nowhere
        if "t" in flags and node is not created:
            node.is_new = False
        if "t" in flags and node.content:
            self.volume.edit(node, 0, None)
        self.handles[int(number)] = Handle(node, flags)

    def _put(self, handle: Handle, offset: int, data: bytes) -> int:
        if "a" in handle.flags:
            offset = len(handle.file.content)
        if data:
            self.volume.edit(handle.file, offset, data)
            if "s" in handle.flags or "d" in handle.flags:
                self.volume.flush_write(handle.file, data_only="s" not in handle.flags)
        return offset + len(data)

    def do_write(self, number: str, _: str, length: str, seed: str) -> None:
        handle = self._handle(number)
        handle.position = self._put(handle, handle.position, content(int(seed), int(length)))

    do_writev = do_write

    def do_pwrite(self, number: str, offset: str, length: str, seed: str) -> None:
        self._put(self._handle(number), int(offset), content(int(seed), int(length)))

    do_pwritev = do_pwrite

    def do_pappend(self, number: str, _: str, length: str, seed: str) -> None:
        handle = self._handle(number)
        self._put(Handle(handle.file, handle.flags + "a"), 0, content(int(seed), int(length)))

    def _copied(self, number: str, source: str, length: str) -> bytes:
        """Return what a call copies from the begin of one file to another."""
        to, from_ = self._handle(number), self._handle(source)
        if "a" in to.flags or "+" not in from_.flags or to.file is from_.file:
            raise RefusedError(errno.EINVAL)
        return from_.file.content[: int(length)]

    def do_sendfile(self, number: str, source: str, length: str) -> None:
        data, handle = self._copied(number, source, length), self._handle(number)
        handle.position = self._put(handle, handle.position, data)

    def do_copy(self, number: str, source: str, length: str, offset: str) -> None:
        data = self._copied(number, source, length)
        self._put(self._handle(number), int(offset), data)

    def _resize(self, file: File, size: int) -> None:
        file.is_new = file.is_new and size > 0
        if size != len(file.content):
            self.volume.edit(file, size, None, is_write=False)

    def do_ftruncate(self, number: str, size: str) -> None:
        self._resize(self._handle(number).file, int(size))

    def do_truncate(self, path: str, size: str) -> None:
        node = self.volume.at(path)
        if isinstance(node, Folder) or node.target is not None:
            raise RefusedError(errno.EISDIR)
        self._resize(node, int(size))

    def do_fallocate(self, number: str, offset: str, length: str) -> None:
        file = self._handle(number).file
        file.is_new = False
        self._resize(file, max(len(file.content), int(offset) + int(length)))

    def do_punch(self, number: str, offset: str, length: str) -> None:
        file = self._handle(number).file
        within = max(0, min(int(length), len(file.content) - int(offset)))
        file.is_new = False
        if within:
            self.volume.edit(file, int(offset), bytes(within), is_write=False)

    def do_fsync(self, number: str) -> None:
        self.volume.flush(self._handle(number).file)

    def do_fdatasync(self, number: str) -> None:
        self.volume.flush_data(self._handle(number).file)

    def do_sync(self) -> None:
        self.volume.flush(None)

    do_syncfs = do_sync

    def do_syncfile(self, path: str) -> None:
        node = self.volume.at(path)
        if isinstance(node, File) and node.target is not None:
            raise RefusedError(errno.ELOOP)
        self.volume.flush(node)

    def do_syncfolder(self, path: str) -> None:
        node = self.volume.root if path == "." else self.volume.at(path)
        if isinstance(node, File):
            raise RefusedError(errno.ENOTDIR)
        self.volume.flush(node)

    def do_openat(self, number: str, flags: str, folder: str, name: str) -> None:
        self.do_open(number, flags, f"{folder}/{name}")

    def do_close(self, number: str) -> None:
        self._handle(number)
        del self.handles[int(number)]

    def do_dup(self, number: str, other: str) -> None:
        self.handles.pop(int(other), None) if int(number) not in self.handles else None
        self.handles[int(other)] = self._handle(number)

    def do_dup2(self, number: str, other: str) -> None:
        handle, _ = self._handle(number), self._handle(other)
        self.handles[int(other)] = handle

    def do_noreplace(self, old: str, new: str) -> None:
        self.volume.at(old)
        folder, name = self.volume.parent(new)
        if name in folder.names:
            raise RefusedError(errno.EEXIST)
        self.do_rename(old, new)

    def do_rename(self, old: str, new: str) -> None:
        moved, (folder, name) = self.volume.at(old), self.volume.parent(new)
        replaced = folder.names.get(name)
        if isinstance(moved, Folder):
            if self._inside(moved, folder):
                raise RefusedError(errno.EINVAL)
            if isinstance(replaced, File):
                raise RefusedError(errno.ENOTDIR)
            if replaced is not None and replaced is not moved and replaced.names:
                raise RefusedError(errno.ENOTEMPTY)
        elif isinstance(replaced, Folder):
            raise RefusedError(errno.EISDIR)
        if replaced is moved:
            return
        touched = [moved] if replaced is None else [moved, replaced]
        self.volume.change(
            {self.volume.parent(old): None, (folder, name): moved},
            *touched,
            removed=replaced if isinstance(replaced, Folder) else None,
            replacing=moved if isinstance(moved, File) and moved.is_new and replaced is not None else None,
        )
        if isinstance(moved, File) and replaced is not None:
            moved.is_new = False

    @staticmethod
    def _inside(above: Folder, folder: Folder) -> bool:
        return folder is above or any(
            Program._inside(inner, folder) for inner in above.names.values() if isinstance(inner, Folder)
        )

    def do_link(self, old: str, new: str) -> None:
        node, (folder, name) = self.volume.at(old), self.volume.parent(new)
        if name in folder.names or isinstance(node, Folder):
            raise RefusedError(errno.EEXIST)
        self.volume.change({(folder, name): node}, node)

    def do_symlink(self, target: str, path: str) -> None:
        folder, name = self.volume.parent(path)
        if name in folder.names:
            raise RefusedError(errno.EEXIST)
        node = File(target=target)
        self.volume.change({(folder, name): node}, node)

    def do_unlink(self, path: str) -> None:
        node = self.volume.at(path)
        if isinstance(node, Folder):
            raise RefusedError(errno.EISDIR)
        self.volume.change({self.volume.parent(path): None}, node)

    def do_rmdir(self, path: str) -> None:
        node = self.volume.at(path)
        if isinstance(node, File):
            raise RefusedError(errno.ENOTDIR)
        if node.names:
            raise RefusedError(errno.ENOTEMPTY)
        self.volume.change({self.volume.parent(path): None}, node, removed=node)

    def do_remove(self, path: str) -> None:
        (self.do_rmdir if isinstance(self.volume.at(path), Folder) else self.do_unlink)(path)

    def do_mkdir(self, path: str) -> None:
        folder, name = self.volume.parent(path)
        if name in folder.names:
            raise RefusedError(errno.EEXIST)
        node = Folder()
        self.volume.change({(folder, name): node}, node)

    def do_fork(self) -> None:
        self._parents.append(dict(self.handles))

    def do_join(self) -> None:
        self.handles = self._parents.pop()

    def do_exec(self) -> None:
        pass

    def do_die(self) -> None:
        self.handles, self._parents = {}, []
