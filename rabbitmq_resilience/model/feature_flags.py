"""Define the names of RabbitMQ's feature flags that topologies and faults enable."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from pydantic import StringConstraints

#: The name of a feature flag.
FeatureFlag = Annotated[str, StringConstraints(pattern=r"^[a-z][a-z0-9_.]*$", max_length=100)]
#: The flag that moves metadata from Mnesia to Khepri.
KHEPRI = "khepri_db"


def flag_needs(flags: Iterable[str]) -> frozenset[str]:
    """Return the broker features that ``flags`` require, for the flags whose versions are known."""
    return frozenset({f"the feature flag {KHEPRI}"} if KHEPRI in flags else ())
