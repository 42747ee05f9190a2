"""Define the base class of clusters that a run forms for itself and does not share."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Mapping
from typing import Self

from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.model.broker_changes import BrokerChange
from rabbitmq_resilience.tools.closing import Closing


class Formed(Closing):
    """The base of clusters that a run has for itself; see ``protocol.Cluster``."""

    access = Access()
    #: All nodes have ``broker_version`` at first; the history records upgrades.
    versions: Mapping[str, str] = {}

    def vhost_of(self, run: str) -> str:
        return run

    def lasting(self, for_s: float) -> Self:  # noqa: ARG002 - all of it ends with this process
        return self

    def check(self) -> None:
        """Do nothing: the cluster has no other users who could be harmed."""

    def change(self, node: str, change: BrokerChange) -> None:
        self.run_tool(node, *change.do)

    def change_back(self, node: str, change: BrokerChange) -> None:
        self.run_tool(node, *change.undo)

    @abstractmethod
    def run_tool(self, node: str, tool: str, *arguments: str, timeout_s: float = 60.0) -> str: ...
