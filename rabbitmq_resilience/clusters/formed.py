"""What goes without saying for a cluster that a run forms for itself, and shares with nobody."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Self

from rabbitmq_resilience.clusters.access import Access
from rabbitmq_resilience.clusters.changes import Change
from rabbitmq_resilience.tools.closing import Closing


class Formed(Closing):
    """See ``protocol.Cluster``."""

    access = Access()
    #: All are of ``broker_version`` at first; upgrades tell of themselves.
    versions: Mapping[str, str] = {}

    def vhost_of(self, run: str) -> str:
        return run

    def lasting(self, for_s: float) -> Self:  # noqa: ARG002 - all of it ends with this process
        return self

    def check(self) -> None:
        """Nobody else is harmed."""

    def change(self, node: str, change: Change) -> None:
        self.run_tool(node, *change.do)

    def change_back(self, node: str, change: Change) -> None:
        self.run_tool(node, *change.undo)

    @abstractmethod
    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float = 60.0) -> str: ...
