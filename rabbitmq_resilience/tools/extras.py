"""How to install an optional part of this package: from where the package itself came.

The package is on no index, and its name there is free for anybody to take: so nobody is told to install it by name.
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

    Where pip did not record a path (PEP 610), the path is left to the reader.
    """
    path, editable = installed_from()
    option, place = "-e " if editable else "", path or "path/to/the/checkout"
    return f"pip install {option}{shlex.quote(f'{place}[{extra}]')}"


def installed_from() -> tuple[Path | None, bool]:
    """Return the folder or wheel that the package was installed from, if that is known, and whether it is run there."""
    try:
        told = json.loads(distribution(PACKAGE).read_text("direct_url.json") or "{}")
    except PackageNotFoundError:
        return None, False
    url = urlsplit(told.get("url", ""))
    if url.scheme != "file":
        return None, False
    return Path(url2pathname(url.path)), bool(told.get("dir_info", {}).get("editable"))
