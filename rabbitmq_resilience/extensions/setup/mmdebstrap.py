"""Make file systems of Debian's releases by mmdebstrap, from the mirror that this machine's apt uses."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from rabbitmq_resilience.extensions.setup import debian
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, SetupTask, within_root
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, run

PLACE = TOOLS / "mmdebstrap"
PROGRAM = "usr/bin/mmdebstrap"

#: Files that no container needs.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")

_MISSING = """\
mmdebstrap is needed to build images, and could not be provided: {why}
How to provide it:
  Debian      the packages mmdebstrap and perl
  elsewhere   a machine that can pull images needs no built ones: the official images are the default"""


def program() -> Path | None:
    """Return mmdebstrap on PATH, else the unpacked one, else None."""
    on_path = shutil.which("mmdebstrap")
    candidate = Path(on_path) if on_path else PLACE / PROGRAM
    return candidate if os.access(candidate, os.X_OK) else None


def found() -> str | None:
    there = program()
    return within_root(there) if there else None


def make() -> str:
    """Unpack mmdebstrap; return where it is. Raise ``Missing`` if that fails."""
    if platform.system() != "Linux" or not debian.available():
        raise Missing(_MISSING.format(why="there is no apt-get here"))
    try:
        debian.provide("mmdebstrap", wanted="mmdebstrap", place=PLACE, prove=_starts)
    except Failed as error:
        raise Missing(_MISSING.format(why=str(error).replace("\n", "\n    "))) from error
    return within_root(PLACE / PROGRAM)


def _starts(unpacked: Path) -> None:
    run([unpacked / PROGRAM, "--version"], doing="starting the unpacked mmdebstrap")


def bootstrap(release: str, arguments: Sequence[str], *, into: Path) -> None:
    """Write a file system of ``release``, made by mmdebstrap with ``arguments``, to the tar file ``into``.

    Temporary files go to the folder of ``into``. Raise ``Failed`` if that fails.
    """
    there = program()
    if there is None:
        raise Failed("mmdebstrap is missing")
    source = debian.source_of(release)
    options = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
    if release == "sid":
        options.append('--aptopt=Acquire::Check-Valid-Until "false"')  # a mirror may lag behind for longer
    if os.geteuid() == 0:
        options.append('--aptopt=APT::Sandbox::User "root"')  # apt's own user may not look into the folder
    into.parent.chmod(0o755)
    path = f"{there.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "TMPDIR": str(into.parent), "PATH": path}
    given = ["--format=tar", *options, *arguments, release, str(into), source]
    run([there, *given], doing=f"installing Debian {release} for the image", env=environment)


STEP = SetupTask("mmdebstrap", found, make)
