"""Find the folders of the project's content, and of what set-up has fetched.

In a checkout, content is next to the package; in an installed package, it is inside.
"""

from __future__ import annotations

import os
from pathlib import Path

PACKAGE = Path(__file__).resolve().parent.parent

#: The folder in which the package's processes are started, so that they find the package.
IMPORTED_FROM = PACKAGE.parent

#: The checkout of the package; None if the package was installed from a wheel.
CHECKOUT = IMPORTED_FROM if (IMPORTED_FROM / "setup" / "start").is_file() else None

#: The beginning of the plugin's options: their short names exist only in a checkout.
OPTION = "--resilience-" if CHECKOUT is None else "--"


def _user_cache() -> Path:
    """Return the user's cache folder of this project, by the XDG Base Directory Specification."""
    named = os.environ.get("XDG_CACHE_HOME", "")
    return (Path(named) if Path(named).is_absolute() else Path.home() / ".cache") / "rabbitmq-resilience"


def _tools() -> Path:
    named = os.environ.get("RABBITMQ_RESILIENCE_TOOLS")
    if named:
        return Path(named).absolute()
    return _user_cache() if CHECKOUT is None else CHECKOUT / ".tools"


def content(name: str) -> Path:
    """Return the project's folder of that name: ``topologies``, ``faults`` or ``reports``."""
    return PACKAGE / name if CHECKOUT is None else CHECKOUT / name


#: The folder with what set-up has fetched or built. RABBITMQ_RESILIENCE_TOOLS names another folder.
TOOLS = _tools()
