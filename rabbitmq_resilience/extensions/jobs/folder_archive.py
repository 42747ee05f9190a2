"""Carry a folder from a pod as one archive with a checksum; it is unpacked completely or not at all.

The archive is fetched in pieces, because the end of the output of a command in a pod may be lost without an error.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import json
import shutil
import tarfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path, PurePosixPath
from typing import Self

from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError

PIECE_BYTES = 4_000_000
TRIES = 3
#: Histories are compressed already, so compress fast rather than well.
_LEVEL = 1
_PIECE = 'tail -c +"$2" "$1" | head -c "$3" | base64'
_PIECE_TIMEOUT_S = 120.0
_PACKED_WITHIN_S = 1800.0


class ParcelError(Exception):
    """The archive was not fetched or unpacked completely; the text says why."""


@dataclass(frozen=True)
class Label:
    """What an archive must be checked against: its number of ``files``, its ``size_bytes``, and its SHA-256."""

    files: int
    size_bytes: int
    sha256: str

    @property
    def text(self) -> str:
        """Return the label as one line of JSON; ``read`` takes it."""
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Return the label that ``text`` holds. Raise ParcelError if it is no label."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ParcelError(f"the label of the archive is not readable: {text.strip()[:200] or 'empty'}") from error


def pack(folder: Path, archive: Path) -> Label:
    """Pack all files below the folder into an archive, but no links or other things; return its label."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    with tarfile.open(archive, "w:gz", compresslevel=_LEVEL) as tar:
        for path in files:
            tar.add(path, str(path.relative_to(folder)), recursive=False)
    return Label(len(files), archive.stat().st_size, _sha256(archive))


def fetch(machine: Machine, label: Label, *, at: str, to: Path, say: Callable[[str], None]) -> None:
    """Write the archive at the path ``at`` of the machine to the file ``to``.

    Lost pieces are fetched again, and each loss is passed to ``say`` as a text. Raise ParcelError, and leave no file,
    if the archive does not come completely."""
    for n in range(1, TRIES + 1):
        try:
            with to.open("wb") as file:
                while (done := file.tell()) < label.size_bytes:
                    size = min(PIECE_BYTES, label.size_bytes - done)
                    file.write(_piece(machine, at, offset=done, size_bytes=size, say=say))
            found = _sha256(to)
        except BaseException:
            to.unlink(missing_ok=True)
            raise
        if found == label.sha256:
            return
        to.unlink()
        say(f"the fetched archive has SHA-256 {found[:12]}, the packed one {label.sha256[:12]}; try {n} of {TRIES}")
    raise ParcelError(f"the fetched archive differed from the packed one in each of {TRIES} tries")


def _piece(machine: Machine, at: str, *, offset: int, size_bytes: int, say: Callable[[str], None]) -> bytes:
    """Return one piece of the archive. Raise ParcelError if it does not come completely in ``TRIES`` tries."""
    for n in range(1, TRIES + 1):
        try:
            printed = machine.run(_PIECE, at, str(offset + 1), str(size_bytes), timeout_s=_PIECE_TIMEOUT_S)
            data = base64.b64decode(printed)
            why = f"{size_bytes - len(data)} of {size_bytes} bytes were lost on the way"
        except MachineError as error:
            data, why = b"", str(error)
        except binascii.Error:
            data, why = b"", "the end was lost on the way"
        if len(data) == size_bytes:
            return data
        say(f"bytes from {offset} on: {why}, try {n} of {TRIES}")
    raise ParcelError(f"bytes from {offset} on could not be fetched: {why}")


def packed(machine: Machine, command: str) -> Label:
    """Run the command that packs the archive on the machine; return the label. Raise ParcelError if that fails."""
    try:
        return Label.read(machine.run(command, timeout_s=_PACKED_WITHIN_S))
    except MachineError as error:
        raise ParcelError(str(error)) from error


def unpack(archive: Path, label: Label, to: Path) -> None:
    """Unpack the archive into the folder ``to``, which must be missing or empty.

    Raise ParcelError, and leave nothing, if the archive is damaged, has another number of files than the label says, or
    has anything other than files below its folder."""
    draft = to.with_name(f".{to.name}.unpacked")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        count = _unpack(archive, draft)
        if count != label.files:
            raise ParcelError(f"the archive has {count} files, but {label.files} were packed")
        if to.exists():
            to.rmdir()
        draft.replace(to)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ParcelError(f"the archive cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _unpack(archive: Path, to: Path) -> int:
    """Unpack the archive and return the number of files. The archive is not trusted: only files below ``to`` pass."""
    count = 0
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            content = tar.extractfile(member) if member.isfile() else None
            if content is None or name.is_absolute() or ".." in name.parts:
                raise ParcelError(f"the archive has {member.name!r}, which is not a file below its folder")
            path = to / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("xb") as file:
                shutil.copyfileobj(content, file)
            count += 1
    return count


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
