"""Build the library that lets disks fail, by this machine's compiler or by one that is fetched and removed again."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Callable
from pathlib import Path

from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, SetupTask, within_root
from rabbitmq_resilience.sut.preload import library
from rabbitmq_resilience.tools.distributions import ToolMissingError
from rabbitmq_resilience.tools.locations import CHECKOUT
from rabbitmq_resilience.tools.progress import Failed, run

VERSION = "0.17.1"
#: What is fetched, and what it takes unpacked, with its cache, as long as set-up runs.
FETCHED_MB, UNPACKED_MB = 101, 500

_MISSING = """\
The library that lets disks fail could not be built: {why}
How to provide it: Linux on x86_64 or aarch64, and an index of Python packages that has ziglang {version} ({fetched} MB;
unpacked it needs {unpacked} MB until the build ends). pip takes the index from its own configuration."""


def found(target: str | None = None) -> str | None:
    """Return the folder of the builds, or None if that for ``target`` (default: any that processes can use) is
    missing."""
    try:
        library.find_build(target)
    except ToolMissingError:
        return None
    return within_root(library.BUILDS)


def make_portable() -> str:
    """Build for this machine and its containers, by the fetched compiler; return the folder. Raise ``Missing`` if that
    fails."""
    return _made(library.target_of, fetch_compiler)


def make() -> str:
    """Build for processes of this machine, by its own compiler if it has one; return the folder. Raise ``Missing`` if
    that fails."""
    if shutil.which("cc") is None:
        return make_portable()
    return _made(lambda: library.NATIVE, lambda: None)


def _made(target_of: Callable[[], str], fetch: Callable[[], None]) -> str:
    try:
        target = target_of()
        fetch()
        library.build(target)
        remove_old_builds()
    except (Failed, ToolMissingError, OSError) as error:
        why = str(error).replace("\n", "\n    ")
        text = _MISSING.format(why=why, version=VERSION, fetched=FETCHED_MB, unpacked=UNPACKED_MB)
        raise Missing(text) from error
    finally:
        shutil.rmtree(library.COMPILER, ignore_errors=True)
    return within_root(library.BUILDS)


def fetch_compiler() -> None:
    """Unpack the compiler into ``library.COMPILER``. Raise ``Failed`` if it cannot be fetched."""
    pip = [str(_python()), "-m", "pip", "install", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    options = ["--quiet", "--no-deps", "--no-compile", "--upgrade", "--target", str(library.COMPILER)]
    run([*pip, *options, f"ziglang=={VERSION}"], doing=f"fetching a compiler ({FETCHED_MB} MB)")
    (library.COMPILER / "ziglang" / "zig").chmod(0o755)


def _python() -> Path:
    """Return a Python that has pip: the checkout's environment, because a distribution's Python may have none."""
    environment = Path() if CHECKOUT is None else CHECKOUT / ".venv" / "bin" / "python"
    return environment if os.access(environment, os.X_OK) and environment.is_file() else Path(sys.executable)


def remove_old_builds() -> None:
    """Remove the builds of former versions of the sources."""
    kept = {library.folder_of(target) for target in (library.target_of(), library.NATIVE)}
    for folder in library.BUILDS.iterdir():
        if folder not in kept:
            shutil.rmtree(folder, ignore_errors=True)


#: Set-up goes on without it; faults of disks then say what is missing.
STEP = SetupTask("Failing disks", found, make, optional=True)
PORTABLE_STEP = SetupTask("Failing disks in containers", lambda: found(library.target_of()), make_portable)
