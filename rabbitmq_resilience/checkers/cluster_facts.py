"""State the facts about a cluster that checkers ask for."""

from __future__ import annotations

from dataclasses import dataclass

#: RabbitMQ's default of ``raft.adaptive_failure_detector.poll_interval`` (RabbitMQ, "Clustering", wide area networks).
DETECTOR_POLL_S = 5.0


@dataclass(frozen=True)
class ClusterFacts:
    nodes: tuple[str, ...]
    partition_handling: str
    net_ticktime_s: float
    broker_version: tuple[int, ...]
    preferred: frozenset[str] = frozenset()
    recover: str = ""
    khepri: bool = False
    #: How often Raft's failure detector is read.
    detector_poll_s: float = DETECTOR_POLL_S

    @property
    def handles_partitions(self) -> bool:
        """Return whether partition handling has an effect. It has none with Khepri, as always from 4.3 on."""
        return not self.khepri and self.broker_version < (4, 3)

    @property
    def pauses_minorities(self) -> bool:
        return self.handles_partitions and self.partition_handling == "pause_minority"

    @property
    def pauses_without_preferred(self) -> bool:
        """Return whether a node pauses while it reaches none of the ``preferred`` nodes."""
        return self.handles_partitions and self.partition_handling == "pause_if_all_down"

    @property
    def pauses(self) -> bool:
        return self.pauses_minorities or self.pauses_without_preferred

    @property
    def heals_splits(self) -> bool:
        """Return whether nodes restart by themselves after a split that their mode allows."""
        return self.handles_partitions and "autoheal" in (self.partition_handling, self.recover)

    @property
    def splits(self) -> bool:
        """Return whether sides of a cut may go on, each with a preferred node with ``pause_if_all_down``."""
        return self.handles_partitions and self.partition_handling != "pause_minority"
