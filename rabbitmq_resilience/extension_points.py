"""Name what extensions provide, so that the core reaches an extension without importing it.

The core works without any extension. Where somebody asks for what an extension provides, ``provided`` imports it then.
A new extension is one line here, and one in ``command.COMMANDS`` for each command that it adds.
"""

from __future__ import annotations

from collections.abc import Mapping
from importlib import import_module
from importlib.util import find_spec
from typing import Any

_HERE = "rabbitmq_resilience.extensions"

#: What is provided, and the module or the object of a module that provides it.
EXTENSIONS: Mapping[str, str] = {
    "attached clusters": f"{_HERE}.attached.driver",
    "nights": f"{_HERE}.nights.recording:NightPlugin",
    "sweep files": f"{_HERE}.sweeps.sweep_items:SweepFile",
}


class ExtensionMissingError(Exception):
    """An extension is not installed; the text names it."""


def provided(point: str) -> Any:
    """Return what an extension provides at ``point``, a key of ``EXTENSIONS``. Raise ExtensionMissingError."""
    return load(EXTENSIONS[point], what=point)


def load(target: str, *, what: str) -> Any:
    """Import ``module`` or ``module:name``. Raise ExtensionMissingError if its extension is not installed."""
    module, _, name = target.partition(":")
    if not is_installed(target):
        extension = ".".join(module.split(".")[:3])
        raise ExtensionMissingError(f"{what}: this installation has no {extension}; install the whole package")
    found = import_module(module)
    return getattr(found, name) if name else found


def is_installed(target: str) -> bool:
    """Return whether the module of ``target`` can be found, without running it."""
    module = target.partition(":")[0]
    try:
        return find_spec(module) is not None
    except ModuleNotFoundError:  # its package is missing
        return False
