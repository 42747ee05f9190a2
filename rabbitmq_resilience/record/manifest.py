"""``manifest.json``: by which version of the format a run was recorded, and, once it is over, what was recorded.

It is written when the run begins, without files, and again when the run is over, with the size and the CRC-32 of every
file: a file that was changed, cut short, removed or exchanged since then is noticed. What judging writes is not among
them. ``fault.yaml`` is not either, as its bounds may be changed to judge by others; of it the parts that say what was
played have checksums of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import yaml

from rabbitmq_resilience.record.history import HistoryError
from rabbitmq_resilience.record.whole_files import write_whole

MANIFEST_FILE = "manifest.json"
FAULT_FILE = "fault.yaml"
#: Runs of version 1 have no manifest.
VERSION = 2

#: The parts of a scenario that say what was played, and not what was demanded of it.
PLAYED = ("seed", "topology", "workload", "phases", "schedule", "metrics", "rules")
#: What judging writes or takes away, and what is checked by its parts.
_NOT_RECORDED = frozenset({MANIFEST_FILE, FAULT_FILE, "verdict.json", "report.html"})
HISTORY = "history/"
_SERVERS_OWN = "prometheus"

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """``files``: path below the run directory to its size in bytes and its CRC-32; None as long as the run is not over.
    ``played``: the CRC-32 of each part of the scenario."""

    version: int
    files: Mapping[str, tuple[int, int]] | None = None
    played: Mapping[str, int] | None = None

    @classmethod
    def read(cls, run: Path) -> Self:
        """Raises HistoryError for one that cannot be understood."""
        path = run / MANIFEST_FILE
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            files = None if told["files"] is None else {str(n): (int(s), int(c)) for n, (s, c) in told["files"].items()}
            manifest = cls(int(told["version"]), files, told["played"])
        except FileNotFoundError:
            return cls(1)
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise HistoryError(f"{path} cannot be read: {type(error).__name__}: {error}") from None
        if manifest.version != VERSION:
            raise HistoryError(f"{path} is of version {manifest.version}; this program knows 1 and {VERSION}")
        return manifest

    def save(self, run: Path) -> None:
        write_whole(run / MANIFEST_FILE, json.dumps(vars(self), indent=1) + "\n")


def seal(run: Path) -> None:
    """The record is complete; what is changed from now on will be noticed."""
    files = {name: _checksum(run / name) for name in _recorded(run)}
    Manifest(VERSION, files, _played(run / FAULT_FILE)).save(run)


def changes(run: Path) -> list[str]:
    """What is not as it was when the run was over, as lines for people; none of a run that is not over or is of
    version 1. Raises HistoryError for a manifest that cannot be understood."""
    manifest = Manifest.read(run)
    if manifest.files is None:
        return []
    found = list(_recorded(run))
    told = [f"{name} is not there any more" for name in sorted(manifest.files.keys() - set(found))]
    added = (name for name in found if name not in manifest.files and name.startswith(HISTORY))
    told += [f"{name} was not there when the run ended" for name in added]
    for name in (name for name in found if name in manifest.files):
        size_bytes, crc = _checksum(run / name)
        was_bytes, was_crc = manifest.files[name]
        if size_bytes != was_bytes:
            told.append(f"{name} has {size_bytes} bytes, and had {was_bytes} when the run ended")
        elif crc != was_crc:
            told.append(f"{name} does not hold what it held when the run ended (its checksum is another one)")
    played = _played(run / FAULT_FILE)
    changed = [part for part in PLAYED if manifest.played and played.get(part) != manifest.played.get(part)]
    return told + [f"{FAULT_FILE} says something else of the {part} than what was played" for part in changed]


def _recorded(run: Path) -> Iterator[str]:
    """Yield the paths of what is recorded, below the run directory. Drafts of what lies in it begin with a dot; once
    a run is over there are none below ``history/``."""
    for path in sorted(run.rglob("*")):
        name = path.relative_to(run)
        of_judging = len(name.parts) == 1 and (name.name in _NOT_RECORDED or name.name.startswith("."))
        if path.is_file() and not (of_judging or name.parts[0] == _SERVERS_OWN):
            yield name.as_posix()


def _checksum(path: Path) -> tuple[int, int]:
    size_bytes = crc = 0
    with path.open("rb") as file:
        while piece := file.read(_PIECE_BYTES):
            size_bytes += len(piece)
            crc = crc32(piece, crc)
    return size_bytes, crc


def _played(fault_file: Path) -> dict[str, int]:
    """Nothing where the file cannot be read, which whoever needs it tells."""
    try:
        told: Any = yaml.safe_load(fault_file.read_text(encoding="utf-8"))
        return {part: crc32(json.dumps(told[part], sort_keys=True).encode()) for part in PLAYED if part in told}
    except (OSError, ValueError, TypeError, yaml.YAMLError):
        return {}
