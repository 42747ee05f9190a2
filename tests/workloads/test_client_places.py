from __future__ import annotations

import pytest

from rabbitmq_resilience.workload.load import Address
from tests.workloads.test_settlement import load

SIX = tuple(Address(f"{zone}{i}", "127.0.0.1", 1, zone) for zone in "ab" for i in (1, 2, 3))


@pytest.mark.parametrize(
    ("reconnect", "home", "places"),
    [
        ("anywhere", 0, (0, 1, 2, 3, 4, 5)),
        ("anywhere", 4, (4, 5, 0, 1, 2, 3)),
        ("anywhere", 7, (1, 2, 3, 4, 5, 0)),
        ("own_zone", 0, (0, 1, 2)),
        ("own_zone", 2, (2, 0, 1)),
        ("own_zone", 10, (4, 5, 3)),
    ],
)
def test_places_in_turn(reconnect: str, home: int, places: tuple[int, ...]) -> None:
    assert load(addresses=SIX, reconnect=reconnect).places(home) == places
