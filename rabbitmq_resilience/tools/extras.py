"""Return the command that installs an optional part of this package, from the place of the package itself.

The package is on no index, so anybody could take its name there. Therefore no message says to install it by name.
"""

from __future__ import annotations

import json
import shlex
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path
from urllib.parse import urlsplit
from urllib.request import url2pathname

PACKAGE = "rabbitmq-resilience"


def install_command(extra: str) -> str:
    """Return the command that installs the package with ``extra``, by the path of its checkout or wheel.

    If pip did not record a path (PEP 610), the reader must fill in the path.
    """
    path, editable = installed_from()
    option, place = "-e " if editable else "", path or "path/to/the/checkout"
    return f"pip install {option}{shlex.quote(f'{place}[{extra}]')}"


def installed_from() -> tuple[Path | None, bool]:
    """Return (path, editable): the folder or wheel from which the package was installed, or None if it is not known,
    and whether the package runs from that folder."""
    try:
        origin = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return None, False
    url = urlsplit(origin.get("url", ""))
    if url.scheme != "file":
        return None, False
    return Path(url2pathname(url.path)), bool(origin.get("dir_info", {}).get("editable"))
