"""Prepare the programs of ``examples/applications/``, each in a folder of its own in the tools folder.

    python -m suites.prepared_applications            prepares all, and lists the seconds that each took
    python -m suites.prepared_applications lapin      prepares one

A program is prepared again if a file of its folder, or its entry in ``applications.yaml``, has changed.
"""

from __future__ import annotations

import hashlib
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import yaml
from pydantic import Field

from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, run

ROOT = Path(__file__).resolve().parents[1]
EXAMPLES = ROOT / "examples" / "applications"
TABLE = EXAMPLES / "applications.yaml"
CACHE = TOOLS / "applications"

Role = Literal["producer", "worker"]
ROLES: tuple[Role, ...] = ("producer", "worker")

#: Written last, with the digest of what was prepared.
_STAMP = "prepared"


class PreparationError(Exception):
    """A program cannot be prepared; the text says which names there are, or what its tool wrote last."""


class NotPreparedError(Exception):
    """A program has not been prepared, or has changed since; the text says how to prepare it."""


class Application(Spec):
    """One program with a producer and a worker, as ``applications.yaml`` describes it."""

    title: str
    client: str
    client_version: str
    registry: Literal["PyPI", "Maven Central", "Go modules", "npm", "crates"]
    #: The folder of its sources; None if it has the application's name.
    folder: str | None = None
    #: The application whose files it shares; those of its own folder replace them.
    shares: str | None = None
    #: The issue that it shows, or whose repair it shows.
    shows: str | None = None
    several_hosts: bool
    #: The longest pause between two attempts of its client to connect.
    pauses_s_max: float = Field(20.0, gt=0)
    confirms: bool = True
    acknowledges: Literal["after_work", "before_work", "automatically"] = "after_work"
    needs: tuple[str, ...] = Field(min_length=1)
    prepare: tuple[tuple[str, ...], ...]
    producer: tuple[str, ...] = Field(min_length=2)
    worker: tuple[str, ...] = Field(min_length=2)


class _Table(Spec):
    version: Literal[1]
    applications: dict[str, Application]


@dataclass(frozen=True)
class Prepared:
    """A program that can be started. ``took_s``: the seconds of its preparation, 0 if it was prepared before."""

    name: str
    application: Application
    folder: Path
    took_s: float

    def command(self, role: Role) -> list[str]:
        """Return the command of a role, to be run in ``folder``. The program's own files get their full path."""
        program, *arguments = self.application.producer if role == "producer" else self.application.worker
        return [str(self.folder / program) if "/" in program else program, *arguments]


def applications() -> Mapping[str, Application]:
    """Return the programs by name. Raise pydantic's ValidationError if the table is wrong."""
    return _Table.model_validate(yaml.safe_load(TABLE.read_text(encoding="utf-8"))).applications


def sources(name: str, application: Application) -> Path:
    return EXAMPLES / (application.folder or name)


def prepared(name: str, *, cache: Path = CACHE) -> Prepared:
    """Prepare the program ``name`` in ``cache``, unless that was done before. Programs that share their sources and
    steps share the result.

    Raise PreparationError if there is no such program or a step fails, ToolMissingError if a tool is missing."""
    table = applications()
    if name not in table:
        raise PreparationError(f"no application {name}; there are {', '.join(table)}")
    application = table[name]
    folder = cache / sources(name, application).name
    stamp, digest = folder / _STAMP, _digest(name, application)
    if stamp.is_file() and stamp.read_text(encoding="utf-8") == digest:
        return Prepared(name, application, folder, took_s=0)
    if missing := [tool for tool in application.needs if shutil.which(tool) is None]:
        raise ToolMissingError(f"{name} needs {' and '.join(missing)} on PATH, which is not there: install it first")
    began_s = time.monotonic()
    stamp.unlink(missing_ok=True)
    for source in _folders(name, application):
        shutil.copytree(source, folder, dirs_exist_ok=True, ignore=_made_by_hand)
    for step in application.prepare:
        try:
            run(_found(step, folder), doing=f"preparing {name}: {' '.join(step[:3])}", cwd=folder)
        except Failed as error:
            raise PreparationError(f"{name} cannot be prepared in {folder}: {error}") from error
    stamp.write_text(digest, encoding="utf-8")
    return Prepared(name, application, folder, took_s=time.monotonic() - began_s)


def found(name: str, *, cache: Path = CACHE) -> Prepared:
    """Return the program ``name`` if it is prepared. Raise NotPreparedError if not."""
    application = applications()[name]
    folder = cache / sources(name, application).name
    stamp = folder / _STAMP
    if not stamp.is_file() or stamp.read_text(encoding="utf-8") != _digest(name, application):
        raise NotPreparedError(f"{name} is not prepared: python -m suites.prepared_applications {name}")
    return Prepared(name, application, folder, took_s=0)


def _found(step: Sequence[str], folder: Path) -> list[str]:
    """Return a step that finds its program: in the program's folder, or on PATH."""
    program, *arguments = step
    return [str(folder / program) if "/" in program else program, *arguments]


_MADE = ("node_modules", "target", ".venv", "__pycache__", "Cargo.lock")


def _made_by_hand(_: str, names: list[str]) -> list[str]:
    """Return the names that somebody's own build leaves in the sources."""
    return [name for name in names if name in _MADE]


def _digest(name: str, application: Application) -> str:
    """Return a digest of the sources of a program and of how it is prepared."""
    digest = hashlib.sha256(repr(application.prepare).encode())
    for path in source_files(name, application):
        digest.update(str(path.relative_to(EXAMPLES)).encode() + b"\0" + path.read_bytes() + b"\0")
    return digest.hexdigest()


def source_files(name: str, application: Application) -> Iterator[Path]:
    """Yield the files of a program, without what a build by hand has left there."""
    files = {
        path.relative_to(folder): path
        for folder in _folders(name, application)
        for path in folder.rglob("*")
        if path.is_file() and not set(path.relative_to(folder).parts) & set(_MADE)
    }
    yield from sorted(files.values())


def _folders(name: str, application: Application) -> Iterator[Path]:
    """Yield the folders of its files; those of a later one replace those of an earlier one."""
    if application.shares is not None:
        yield sources(application.shares, applications()[application.shares])
    yield sources(name, application)


def main(names: Sequence[str]) -> int:
    """Prepare the programs named, or all; print what each took. Return 1 if one cannot be prepared."""
    failed = False
    for name in names or applications():
        try:
            print(f"{name}: {prepared(name).took_s:.0f} s", flush=True)
        except (PreparationError, ToolMissingError) as error:
            print(error, file=sys.stderr, flush=True)
            failed = True
    return int(failed)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
