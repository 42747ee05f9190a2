"""When a publisher sends what confirms have made room for."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.workloads.rig import Rig
from tests.workloads.test_publisher import make, rig

__all__ = ["make", "rig"]


@pytest.mark.parametrize(("rate_per_s", "at_once"), [(None, [5, 5, 8]), (1_000_000, [6, 7, 8])])
def test_without_a_rate_messages_are_sent_together(
    make: Callable[..., Rig], rate_per_s: int | None, at_once: list[int]
) -> None:
    rig = make(rate_per_s=rate_per_s)
    rig.publisher.tick()
    written = []
    for tag in (1, 2, 3):
        rig.confirm(tag, False)
        rig.wire.on_data()
        written.append(rig.wire.written)
    assert written == at_once


def test_what_is_confirmed_is_made_up_for_when_the_process_looks(rig: Rig) -> None:
    """More than half may wait for a queue that has no leader."""
    rig.confirm(1, False)
    rig.wire.on_data()
    assert rig.wire.written == 5
    rig.publisher.tick()
    assert rig.wire.written == 6
