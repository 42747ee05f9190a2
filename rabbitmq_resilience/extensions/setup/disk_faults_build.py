"""Build the library that lets disks fail. The compiler is a package of the Python index, and is removed afterwards."""

from __future__ import annotations

import os
import shutil
import sys
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


def found() -> str | None:
    """Return the folder of the builds for this machine, or None if one is missing."""
    try:
        library.find_build()
    except ToolMissingError:
        return None
    return within_root(library.BUILDS)


def make() -> str:
    """Build for this machine; return the folder. Raise ``Missing`` if that fails."""
    try:
        target = library.target_of()
        fetch_compiler()
        library.build(target)
        remove_old_builds(target)
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


def remove_old_builds(target: str) -> None:
    """Remove the builds of former versions of the sources."""
    for folder in library.BUILDS.iterdir():
        if folder != library.folder_of(target):
            shutil.rmtree(folder, ignore_errors=True)


STEP = SetupTask("Failing disks", found, make)
