"""The losses that the suite of power cuts takes for known: each only where its cause was played."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.nemesis.slow_disk import SlowDisk
from suites.test_power import MNESIA_NOT_FLUSHED, NOT_FLUSHED, known_losses, lost_power


def test_only_a_power_cut_takes_away_what_was_not_flushed() -> None:
    slow = SlowDisk(at_s=1, for_s=1, node="all", flush_ms=20)
    assert list(known_losses("classic", [slow])) == []
    assert list(known_losses("classic", [slow, lost_power("b1")])) == [NOT_FLUSHED]


@pytest.mark.parametrize("queue_type", ["quorum", "mirrored"])
def test_metadata_may_be_lost_only_if_every_node_loses_power(queue_type: str) -> None:
    assert list(known_losses(queue_type, [lost_power("minority")])) == []
    assert list(known_losses(queue_type, [lost_power("all")])) == [MNESIA_NOT_FLUSHED]
