"""A folder as one archive with a checksum, packed in one place and unpacked whole in another, or not at all.

It comes piece by piece: what is run in a pod may lose the end of what it prints, and nobody is told.
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

from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError

PIECE_BYTES = 4_000_000
TRIES = 3
#: Histories are compressed well already: fast rather than small.
_LEVEL = 1
_PIECE = 'tail -c +"$2" "$1" | head -c "$3" | base64'
_PIECE_TIMEOUT_S = 120.0
_PACKED_WITHIN_S = 1800.0


class ParcelError(Exception):
    """What was packed did not come whole; the text says what is known of it."""


@dataclass(frozen=True)
class Label:
    """What an archive must be found to be: ``files`` in it, its ``size_bytes``, and its checksum (SHA-256)."""

    files: int
    size_bytes: int
    sha256: str

    @property
    def text(self) -> str:
        return json.dumps(asdict(self))

    @classmethod
    def read(cls, text: str) -> Self:
        """Raises ParcelError."""
        try:
            return cls(**json.loads(text))
        except (ValueError, TypeError) as error:
            raise ParcelError(f"what was packed is not told: {text.strip()[:200] or 'nothing came'}") from error


def pack(folder: Path, archive: Path) -> Label:
    """All files below the folder; of what else there is there, nothing."""
    files = [path for path in sorted(folder.rglob("*")) if path.is_file() and not path.is_symlink()]
    with tarfile.open(archive, "w:gz", compresslevel=_LEVEL) as tar:
        for path in files:
            tar.add(path, str(path.relative_to(folder)), recursive=False)
    return Label(len(files), archive.stat().st_size, _sha256(archive))


def fetch(machine: Machine, label: Label, *, at: str, to: Path, told: Callable[[str], None]) -> None:
    """Write the archive ``at`` the machine to the file ``to``. What was lost on the way is asked for again, and
    ``told``. Raises ParcelError where it does not come whole, and leaves no file then."""
    for n in range(1, TRIES + 1):
        try:
            with to.open("wb") as file:
                while (done := file.tell()) < label.size_bytes:
                    size = min(PIECE_BYTES, label.size_bytes - done)
                    file.write(_piece(machine, at, offset=done, size_bytes=size, told=told))
            found = _sha256(to)
        except BaseException:
            to.unlink(missing_ok=True)
            raise
        if found == label.sha256:
            return
        to.unlink()
        told(f"what came is not what was packed (SHA-256 {found[:12]}, not {label.sha256[:12]}), try {n} of {TRIES}")
    raise ParcelError("what came is not what was packed, each time")


def _piece(machine: Machine, at: str, *, offset: int, size_bytes: int, told: Callable[[str], None]) -> bytes:
    for n in range(1, TRIES + 1):
        try:
            printed = machine.run(_PIECE, at, str(offset + 1), str(size_bytes), timeout_s=_PIECE_TIMEOUT_S)
            data = base64.b64decode(printed)
            why = f"{size_bytes - len(data)} of {size_bytes} bytes were lost on the way"
        except MachineError as error:
            data, why = b"", str(error)
        except binascii.Error:
            data, why = b"", "the end of it was lost on the way"
        if len(data) == size_bytes:
            return data
        told(f"bytes from {offset} on: {why}, try {n} of {TRIES}")
    raise ParcelError(f"bytes from {offset} on do not come: {why}")


def packed(machine: Machine, command: str) -> Label:
    """Of what the command packs there. Raises ParcelError."""
    try:
        return Label.read(machine.run(command, timeout_s=_PACKED_WITHIN_S))
    except MachineError as error:
        raise ParcelError(str(error)) from error


def unpack(archive: Path, label: Label, to: Path) -> None:
    """Into the folder ``to``, which is made, or empty. Raises ParcelError for what is no archive of files below one
    folder, and leaves nothing then."""
    draft = to.with_name(f".{to.name}.unpacked")
    shutil.rmtree(draft, ignore_errors=True)
    draft.mkdir(parents=True)
    try:
        count = _unpack(archive, draft)
        if count != label.files:
            raise ParcelError(f"the archive has {count} files, and {label.files} were packed")
        if to.exists():
            to.rmdir()
        draft.replace(to)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise ParcelError(f"what came cannot be unpacked: {error}") from error
    finally:
        shutil.rmtree(draft, ignore_errors=True)


def _unpack(archive: Path, to: Path) -> int:
    """Files alone, below the folder: it comes from elsewhere."""
    count = 0
    with tarfile.open(archive, "r:gz") as tar:
        for member in tar:
            name = PurePosixPath(member.name)
            content = tar.extractfile(member) if member.isfile() else None
            if content is None or name.is_absolute() or ".." in name.parts:
                raise ParcelError(f"the archive has {member.name!r}, which is no file below its folder")
            path = to / name
            path.parent.mkdir(parents=True, exist_ok=True)
            with content, path.open("xb") as file:
                shutil.copyfileobj(content, file)
            count += 1
    return count


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
