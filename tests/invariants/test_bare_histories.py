"""Every checker has an answer to histories in which nearly everything is missing."""

from __future__ import annotations

import itertools
from typing import Any

import pytest

from rabbitmq_resilience.checkers.checker_catalogue import INVARIANTS
from rabbitmq_resilience.checkers.wholeness import HistoryWhole
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.lettered import Setting
from tests.invariants.literal import (
    Row,
    cluster,
    deliver,
    fault,
    history,
    load,
    node_states,
    phases,
    publish,
    queues,
)

LETTERS = Setting(at_least_once=False, limited=False, faulty=True, reject_one_in=3)
EVENTS: dict[str, list[Any]] = {
    "none": [],
    "a cluster": [cluster()],
    "no load": [cluster(), queues("q1"), phases(), node_states()],
    "mirrored": [cluster(mode="autoheal"), queues("q1", kind="mirrored"), phases(), node_states()],
    "a kill": [cluster(), queues("q1", "q2"), phases(), load(5, 5), fault(20, 28, name="kill", down=["a1"])],
    "rebalanced": [cluster(), queues("q1"), phases(), node_states(), fault(20, 21, name="rebalance", operation=True)],
    "dead letters": LETTERS.events(),
}
PUBLISHES: list[list[Row]] = [
    [],
    [publish(0)],
    [publish(0, outcome=Outcome.NEVER_SENT)],
    [publish(0), publish(0, queue=1, lane=1)],
]
DELIVERIES: list[list[Row]] = [
    [],
    [deliver(0), deliver(0, 2)],
    [deliver(9, publisher=7), deliver(0, intact=False)],
    [deliver(0, queue=9), deliver(0, 3, queue=9)],
]
CHECKERS: list[Any] = [
    HistoryWhole(),
    *(checker.model_validate({"outage_s_max": 5} if name == "uptime" else {}) for name, checker in INVARIANTS.items()),
]


@pytest.mark.parametrize("events", EVENTS)
def test_every_checker_answers(events: str) -> None:
    for publishes, deliveries in itertools.product(PUBLISHES, DELIVERIES):
        bare = history(publishes, deliveries, EVENTS[events])
        for checker in CHECKERS:
            assert checker.check(bare).summary
