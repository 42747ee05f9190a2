"""Where things are: beside the package in a checkout, inside it when it was installed, and what was fetched."""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent

#: What the package's processes are started from, so that they find the package.
IMPORTED_FROM = PACKAGE.parent

#: The checkout that the package is part of; None where it was installed from a wheel.
CHECKOUT = IMPORTED_FROM if (IMPORTED_FROM / "setup" / "start").is_file() else None

#: How options of the plugin begin: their short names are there in a checkout only.
OPTION = "--resilience-" if CHECKOUT is None else "--"


def _user_cache() -> Path:
    """By the XDG Base Directory Specification."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "rabbitmq-resilience"


def _tools() -> Path:
    named = os.environ.get("RABBITMQ_RESILIENCE_TOOLS")
    if named:
        return Path(named).absolute()
    return _user_cache() if CHECKOUT is None else CHECKOUT / ".tools"


def content(name: str) -> Path:
    """The folder of that name that comes with the project: ``topologies``, ``faults``, ``reports``."""
    return PACKAGE / name if CHECKOUT is None else CHECKOUT / name


#: What set-up has fetched or built. RABBITMQ_RESILIENCE_TOOLS names another folder.
TOOLS = _tools()
