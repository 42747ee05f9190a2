"""Read and write ``manifest.json``: the version of the record's format and, after the run, what was recorded.

The manifest is written when the run begins, without files. It is written again when the run is over, with the size and
the CRC-32 of every file: so a file that is changed, cut short, removed or exchanged after that is noticed. Files that
judging writes are not among them. Neither is ``fault.yaml``, as its bounds may be changed to judge by others. The parts
of it that say what was played have checksums of their own.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self
from zlib import crc32

import yaml

from rabbitmq_resilience.history.history import HistoryError
from rabbitmq_resilience.history.whole_files import write_whole

MANIFEST_FILE = "manifest.json"
FAULT_FILE = "fault.yaml"
#: The version that this program writes, and the only one that it reads. Runs of version 1 have no manifest.
VERSION = 2

#: The parts of a scenario that say what was played, and not what was demanded.
PLAYED = ("seed", "topology", "workload", "phases", "schedule", "metrics", "rules")
#: Files that judging writes or removes, and files that are checked by their parts.
_NOT_RECORDED = frozenset({MANIFEST_FILE, FAULT_FILE, "verdict.json", "report.html"})
HISTORY = "history/"
_SERVERS_OWN = "prometheus"

_PIECE_BYTES = 1 << 20


@dataclass(frozen=True)
class Manifest:
    """The content of ``manifest.json``. ``files``: by path below the run directory the size in bytes and the CRC-32;
    None while the run is not over. ``played``: the CRC-32 of each part of the scenario."""

    version: int
    files: Mapping[str, tuple[int, int]] | None = None
    played: Mapping[str, int] | None = None

    @classmethod
    def read(cls, run: Path) -> Self:
        """Read the manifest of a run. Raise HistoryError if it cannot be understood."""
        path = run / MANIFEST_FILE
        try:
            data = json.loads(path.read_text(encoding="utf-8"))
            files = None if data["files"] is None else {str(n): (int(s), int(c)) for n, (s, c) in data["files"].items()}
            manifest = cls(int(data["version"]), files, data["played"])
        except FileNotFoundError:
            raise HistoryError(
                f"{path} does not exist: the file was removed, or the record is of version 1, which this program does "
                f"not read. Damage to such a record cannot be noticed, as it has no checksums; play the scenario again"
            ) from None
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise HistoryError(f"{path} cannot be read: {type(error).__name__}: {error}") from None
        if manifest.version != VERSION:
            raise HistoryError(f"{path} is of version {manifest.version}; this program reads version {VERSION}")
        return manifest

    def save(self, run: Path) -> None:
        """Write the manifest into the run directory, whole or not at all."""
        write_whole(run / MANIFEST_FILE, json.dumps(vars(self), indent=1) + "\n")


def seal(run: Path) -> None:
    """Write the manifest of a complete record: later changes to its files will be noticed."""
    files = {name: _checksum(run / name) for name in _recorded(run)}
    Manifest(VERSION, files, _played(run / FAULT_FILE)).save(run)


def changes(run: Path) -> list[str]:
    """Return what has changed since the run was over, as lines for people. There are none for a run that is not
    over. Raise HistoryError if the manifest cannot be understood."""
    manifest = Manifest.read(run)
    if manifest.files is None:
        return []
    found = list(_recorded(run))
    lines = [f"{name} does not exist any more" for name in sorted(manifest.files.keys() - set(found))]
    added = (name for name in found if name not in manifest.files and name.startswith(HISTORY))
    lines += [f"{name} did not exist when the run ended" for name in added]
    for name in (name for name in found if name in manifest.files):
        size_bytes, crc = _checksum(run / name)
        was_bytes, was_crc = manifest.files[name]
        if size_bytes != was_bytes:
            lines.append(f"{name} has {size_bytes} bytes, and had {was_bytes} when the run ended")
        elif crc != was_crc:
            lines.append(f"{name} has changed since the run ended (its checksum differs)")
    played = _played(run / FAULT_FILE)
    changed = [part for part in PLAYED if manifest.played and played.get(part) != manifest.played.get(part)]
    return lines + [f"the {part} in {FAULT_FILE} is not what was played" for part in changed]


def _recorded(run: Path) -> Iterator[str]:
    """Yield the paths of the recorded files, below the run directory. Drafts at its top begin with a dot and are left
    out; after a run there are none below ``history/``."""
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
    """Return the CRC-32 of each played part; empty if the file cannot be read, which its other readers report."""
    try:
        scenario: Any = yaml.safe_load(fault_file.read_text(encoding="utf-8"))
        return {part: crc32(json.dumps(scenario[part], sort_keys=True).encode()) for part in PLAYED if part in scenario}
    except (OSError, ValueError, TypeError, yaml.YAMLError):
        return {}
