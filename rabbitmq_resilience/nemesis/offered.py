"""Use what only some drivers offer to faults."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar, cast

Ability = TypeVar("Ability")


def offered(cluster: object, ability: Callable[..., Ability]) -> Ability:
    """Return the cluster as one of ``ability``, a small protocol that can be checked at run time.

    Drivers that lack it are refused before the start, by ``ScheduledFault.acts_on``.
    """
    protocol = cast(type, ability)  # mypy takes no protocol for a type[...]
    assert isinstance(cluster, protocol), f"what a driver does not offer is refused before: {protocol.__name__}"
    return cast(Ability, cluster)
