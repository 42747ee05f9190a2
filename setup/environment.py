"""Install the Python packages of the project, pinned, in ``.venv/``."""

from __future__ import annotations

import hashlib
import shutil
import sys
import tomllib
from pathlib import Path

from rabbitmq_resilience.extensions.setup import debian
from rabbitmq_resilience.extensions.setup.setup_tasks import Missing, SetupTask, within_root
from rabbitmq_resilience.tools.locations import TOOLS
from rabbitmq_resilience.tools.progress import Failed, run

ROOT = Path(__file__).resolve().parent.parent
VENV = ROOT / ".venv"
PYTHON = VENV / "bin" / "python"
STAMP = VENV / "set-up-for"
CONSTRAINTS = ROOT / "constraints.txt"

_MISSING_VENV = """\
{python} cannot make a virtual environment: {why}
How to provide it:
  Debian, Ubuntu   the package python3-venv
  elsewhere        a Python that has the modules venv and ensurepip: make partitions PYTHON=/path/to/python3"""

_MISSING_PACKAGES = """\
The Python packages could not be installed: {why}
How to provide them: pip takes its package index from its own configuration (PIP_INDEX_URL, PIP_FIND_LINKS, a proxy
in HTTPS_PROXY). The needed versions are in constraints.txt."""


def requirements(pyproject: Path) -> list[str]:
    """Return the requirements of the project to run and to be developed."""
    project = tomllib.loads(pyproject.read_text(encoding="utf-8"))["project"]
    return [*project["dependencies"], *project["optional-dependencies"]["dev"]]


def key() -> str:
    """Return a key that changes with all that the content of ``.venv/`` depends on, with its own path."""
    files = (ROOT / "pyproject.toml", CONSTRAINTS)  # pyproject.toml names commands and plugins too
    parts = [sys.version, str(VENV), *(file.read_text(encoding="utf-8") for file in files)]
    return hashlib.sha256("\0".join(parts).encode()).hexdigest()


def found() -> str | None:
    """Return the path of ``.venv/`` if it is up to date, else None."""
    if PYTHON.exists() and STAMP.exists() and STAMP.read_text(encoding="utf-8") == key():
        return within_root(VENV)
    return None


def make() -> str:
    """Install the packages in ``.venv/``, which is made if necessary; return its path. Raise ``Missing`` on failure."""
    pip = [str(PYTHON), "-m", "pip"] if _belongs_here() else _new_environment()
    names = requirements(ROOT / "pyproject.toml")
    install = [*pip, "install", "--no-input", "--disable-pip-version-check", "--progress-bar=off"]
    try:
        run([*install, "-c", CONSTRAINTS, *names], doing=f"installing {len(names)} packages and their dependencies")
        # The project itself, editable: its command, and its plugin for fault files outside of the checkout.
        run([*install, "--no-deps", "--no-build-isolation", "--editable", ROOT], doing="installing the project itself")
    except Failed as error:
        raise Missing(_MISSING_PACKAGES.format(why=error)) from error
    STAMP.write_text(key(), encoding="utf-8")
    return within_root(VENV)


def _belongs_here() -> bool:
    """Return whether ``.venv/`` was made in this folder by this version of Python; otherwise it must be made again."""
    config = VENV / "pyvenv.cfg"
    if not (PYTHON.exists() and config.exists()):
        return False
    text = config.read_text(encoding="utf-8")
    version = ".".join(str(part) for part in sys.version_info[:2])
    return text.rstrip().endswith(str(VENV)) and f"version = {version}." in text and any(VENV.glob("lib/*/*/pip"))


def _new_environment() -> list[str]:
    """Make ``.venv/``; return the command that runs pip in it. Raise ``Missing`` if that fails."""
    shutil.rmtree(VENV, ignore_errors=True)
    try:
        run([sys.executable, "-m", "venv", VENV], doing="making the environment")
        return [str(PYTHON), "-m", "pip"]
    except Failed as error:
        try:
            return _environment_with_borrowed_pip()
        except Failed:
            raise Missing(_MISSING_VENV.format(python=sys.executable, why=error)) from error


def _environment_with_borrowed_pip() -> list[str]:
    """Make ``.venv/`` without pip; return the command that runs pip from the wheel of Debian's package.

    Debian's Python does not contain pip's wheel. The wheel runs without being installed. Raise ``Failed``."""
    if not debian.available():
        raise Failed("no apt-get")
    run([sys.executable, "-m", "venv", "--clear", "--without-pip", VENV], doing="making the environment")
    place = TOOLS / "pip"
    debian.unpack("python3-pip-whl", wanted="python3-pip-whl", into=place)
    wheels = sorted(place.glob("usr/share/python-wheels/pip-*.whl"))
    if not wheels:
        raise Failed("the package python3-pip-whl holds no wheel of pip")
    return [str(PYTHON), str(wheels[-1] / "pip")]


STEP = SetupTask("Python packages", found, make)
