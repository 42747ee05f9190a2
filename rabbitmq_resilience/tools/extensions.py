"""What others add by entry points: faults, invariants and topologies of their own."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

#: An entry point's group is this and what it adds: ``rabbitmq_resilience.faults``.
GROUP = "rabbitmq_resilience"


class ExtensionError(Exception):
    """What an entry point names cannot be used; the text says which entry point, of which distribution, and why."""


@cache
def extensions(kind: str) -> Mapping[str, Any]:
    """What the entry points of ``rabbitmq_resilience.<kind>`` name, by their names. Raises ExtensionError."""
    found: dict[str, Any] = {}
    for point in sorted(entry_points(group=f"{GROUP}.{kind}")):
        of = f"the entry point {point.name} of {point.dist.name if point.dist else 'nobody'} ({GROUP}.{kind})"
        if point.name in found:
            raise ExtensionError(f"{of}: there is another of that name")
        try:
            found[point.name] = point.load()
        except Exception as error:  # whatever the module of somebody else does
            told = f"{type(error).__name__}: {error}"
            raise ExtensionError(f"{of} cannot be loaded from {point.value}: {told}") from error
    return found


def merged(ours: Mapping[str, Any], kind: str, *, base: type) -> dict[str, Any]:
    """``ours`` and what others add to it, each a subclass of ``base``. Raises ExtensionError."""
    theirs = extensions(kind)
    for name, added in theirs.items():
        if name in ours:
            raise ExtensionError(f"the entry point {name} ({GROUP}.{kind}): that name is taken, choose another")
        if not (isinstance(added, type) and issubclass(added, base)):
            raise ExtensionError(f"the entry point {name} ({GROUP}.{kind}) is no subclass of {base.__qualname__}")
        lacking = sorted(getattr(added, "__abstractmethods__", ()))
        if lacking:
            told = f"{added.__name__} has no {', '.join(lacking)}"
            raise ExtensionError(f"the entry point {name} ({GROUP}.{kind}): {told}")
    return {**ours, **theirs}
