from __future__ import annotations

from dataclasses import fields
from typing import Any

import pytest

from rabbitmq_resilience.workload.load import Address, Load

SIX = tuple(Address(f"{zone}{i}", "127.0.0.1", 1, zone) for zone in "ab" for i in (1, 2, 3))


def load(reconnect: str) -> Load:
    unset: dict[str, Any] = {field.name: 1 for field in fields(Load)}
    return Load(**{**unset, "addresses": SIX, "queues": ("q1",), "reconnect": reconnect})


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
    assert load(reconnect).places(home) == places
