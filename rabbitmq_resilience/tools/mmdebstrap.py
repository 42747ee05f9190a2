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

#: Belongs to every Debian, and holds the keys of its releases.
KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")

#: What no container needs.
LEFT_OUT = ("/usr/share/doc/*", "/usr/share/man/*", "/usr/share/locale/*", "/usr/share/info/*")

_FIELDS = "$(ORIGIN)|$(RELEASE)|$(COMPONENT)|$(REPO_URI)"

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


def mirror(targets: str, *, own_release: str | None) -> str:
    """The address of Debian's archive in apt's list of targets: lines of origin, release, component and address.

    Before the first ``apt-get update`` apt knows no origin; then it is where ``own_release``, the release that this
    Debian is of, comes from. Raises ``Failed`` if there is none.
    """
    unknown_origin = _FIELDS.partition("|")[0]
    by_origin: dict[str, str] = {}
    for line in targets.splitlines():
        origin, release, component, address = line.split("|")
        if component != "main" or "-" in release:
            continue
        if origin == "Debian" or (origin == unknown_origin and release == own_release):
            by_origin.setdefault(origin, address)
    if not by_origin:
        raise Failed("apt knows no mirror of Debian: /etc/apt/sources.list(.d) names none for a release's main")
    return by_origin.get("Debian") or by_origin[unknown_origin]


def _own_release() -> str | None:
    told = platform.freedesktop_os_release()
    return told.get("VERSION_CODENAME") if told.get("ID") == "debian" else None


def bootstrap(release: str, arguments: Sequence[str], *, into: Path) -> None:
    """Write the file system of ``release`` that mmdebstrap's ``arguments`` ask for to the tar file ``into``.

    What it needs meanwhile lies in the folder of ``into``. Raises ``Failed``.
    """
    there = program()
    if there is None:
        raise Failed("mmdebstrap is not there")
    if not KEYRING.exists():
        raise Failed(f"{KEYRING} is not there (package debian-archive-keyring), so that nothing could be verified")
    targets = run(["apt-get", "indextargets", "--format", _FIELDS, "Created-By: Packages"], doing="asking for mirrors")
    source = f"deb [signed-by={KEYRING}] {mirror(targets, own_release=_own_release())} {release} main"
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
