"""Load what other distributions add by entry points: faults, invariants and topologies."""

from __future__ import annotations

from collections.abc import Mapping
from functools import cache
from importlib.metadata import entry_points
from typing import Any

#: The name of an entry point's group is this and the kind that it adds: ``rabbitmq_resilience.faults``.
GROUP = "rabbitmq_resilience"


class ExtensionError(Exception):
    """An entry point cannot be used; the text names the entry point and its distribution, and says why."""


@cache
def extensions(kind: str) -> Mapping[str, Any]:
    """Load the entry points of ``rabbitmq_resilience.<kind>``; return the loaded objects by name.

    Raise ExtensionError if one cannot be loaded, or if a name occurs twice."""
    found: dict[str, Any] = {}
    for point in sorted(entry_points(group=f"{GROUP}.{kind}")):
        owner = point.dist.name if point.dist else "an unknown package"
        of = f"the entry point {point.name} of {owner} ({GROUP}.{kind})"
        if point.name in found:
            raise ExtensionError(f"{of}: there is another of that name")
        try:
            found[point.name] = point.load()
        except Exception as error:  # a foreign module may raise anything
            why = f"{type(error).__name__}: {error}"
            raise ExtensionError(f"{of} cannot be loaded from {point.value}: {why}") from error
    return found


def merged(ours: Mapping[str, Any], kind: str, *, base: type) -> dict[str, Any]:
    """Return ``ours`` together with what other distributions add.

    Raise ExtensionError if an added object has a taken name, is no subclass of ``base``, or is abstract."""
    theirs = extensions(kind)
    for name, added in theirs.items():
        if name in ours:
            raise ExtensionError(f"the entry point {name} ({GROUP}.{kind}): that name is taken, choose another")
        if not (isinstance(added, type) and issubclass(added, base)):
            raise ExtensionError(f"the entry point {name} ({GROUP}.{kind}) is no subclass of {base.__qualname__}")
        lacking = sorted(getattr(added, "__abstractmethods__", ()))
        if lacking:
            why = f"{added.__name__} has no {', '.join(lacking)}"
            raise ExtensionError(f"the entry point {name} ({GROUP}.{kind}): {why}")
    return {**ours, **theirs}
