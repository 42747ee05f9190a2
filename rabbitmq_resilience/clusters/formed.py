"""What goes without saying for a cluster that a run forms for itself, and shares with nobody."""

from __future__ import annotations

from typing import Self

from rabbitmq_resilience.clusters.access import Access
from rabbitmq_resilience.tools.closing import Closing


class Formed(Closing):
    """See ``protocol.Cluster``."""

    access = Access()

    def vhost_of(self, run: str) -> str:
        return run

    def lasting(self, for_s: float) -> Self:  # noqa: ARG002 - all of it ends with this process
        return self

    def check(self) -> None:
        """Nobody else is harmed."""
