"""File systems of Debian's releases, by mmdebstrap, from the mirror that this machine's apt uses."""

from __future__ import annotations

import os
import platform
import shutil
from collections.abc import Sequence
from pathlib import Path

from rabbitmq_resilience.tools import debian
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, run
from rabbitmq_resilience.tools.steps import Missing, Step, within_root

PLACE = TOOLS / "mmdebstrap"
PROGRAM = "usr/bin/mmdebstrap"

#: What no container needs.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")

_MISSING = """\
mmdebstrap is needed to build images, and could not be had: {why}
How to provide it:
  Debian      the packages mmdebstrap and perl
  elsewhere   nothing has to be built where images can be pulled: the official ones are the default"""


def program() -> Path | None:
    on_path = shutil.which("mmdebstrap")
    candidate = Path(on_path) if on_path else PLACE / PROGRAM
    return candidate if os.access(candidate, os.X_OK) else None


def found() -> str | None:
    there = program()
    return within_root(there) if there else None


def make() -> str:
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
    """Write the file system of ``release`` that mmdebstrap's ``arguments`` ask for to the tar file ``into``.

    What it needs meanwhile lies in the folder of ``into``. Raises ``Failed``.
    """
    there = program()
    if there is None:
        raise Failed("mmdebstrap is not there")
    source = debian.source_of(release)
    options = [f"--dpkgopt=path-exclude={path}" for path in LEFT_OUT]
    if release == "sid":
        options.append('--aptopt=Acquire::Check-Valid-Until "false"')  # a mirror may be behind the few days it is valid
    if os.geteuid() == 0:
        options.append('--aptopt=APT::Sandbox::User "root"')  # apt's own user may not look into the folder
    into.parent.chmod(0o755)
    path = f"{there.parent}{os.pathsep}{os.environ['PATH']}"
    environment = {**os.environ, "TMPDIR": str(into.parent), "PATH": path}
    told = ["--format=tar", *options, *arguments, release, str(into), source]
    run([there, *told], doing=f"installing Debian {release} for the image", env=environment)


STEP = Step("mmdebstrap", found, make)
