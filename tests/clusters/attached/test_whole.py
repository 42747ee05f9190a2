"""A cluster that is not whole: what its owner is told, and that nothing more is played on it."""

from __future__ import annotations

import itertools
import random
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached.whole import not_whole, to_restart
from rabbitmq_resilience.model.errors import NotWholeError
from rabbitmq_resilience.plugin import sessions
from tests.messages import Messages

NODES = ("rabbit@1", "rabbit@2", "rabbit@3")


def told(parted: dict[str, list[str]], *, away: str = "") -> list[dict[str, Any]]:
    rows = []
    for number, node in enumerate(NODES, 1):
        peers = [f"rabbit@{peer}" for peer in parted.get(f"n{number}", [])]
        rows.append({"name": node, "running": node != away, "partitions": peers})
    return rows


def test_a_whole_cluster() -> None:
    assert not_whole(told({})) == ""


def test_a_node_that_does_not_run(message: Messages) -> None:
    message(not_whole(told({}, away="rabbit@2")))


@pytest.mark.parametrize(
    "parted",
    [
        {"n1": ["2", "3"], "n2": ["1"], "n3": ["1"]},
        {"n1": ["2", "3"]},
        {"n2": ["1"], "n3": ["1"]},
    ],
    ids=["both say so", "one says so", "the others say so"],
)
def test_the_smaller_side_is_to_restart(parted: dict[str, list[str]], message: Messages) -> None:
    text = not_whole(told(parted))
    assert "restart RabbitMQ on rabbit@1 (" in text
    message(text)


def test_after_the_restarts_no_one_is_apart_by_brute_force() -> None:
    """Of all splits in sides: the nodes that go on are a side of the largest size, and all others restart."""
    source = random.Random(4711)  # noqa: S311 - it draws cases
    for _ in range(300):
        nodes = [f"n{number}" for number in range(source.randint(2, 7))]
        side = {node: source.randrange(3) for node in nodes}
        parted: dict[str, set[str]] = {}
        for one, other in itertools.combinations(nodes, 2):
            if side[one] != side[other]:
                parted.setdefault(*source.choice([(one, set()), (other, set())])).add("")
                teller, peer = source.choice([(one, other), (other, one)])
                parted.setdefault(teller, set()).add(peer)
        parted = {node: peers - {""} for node, peers in parted.items()}
        kept = set(nodes) - set(to_restart(parted, set(nodes)))
        sizes = [sum(side[node] == number for node in nodes) for number in range(3)]
        assert len({side[node] for node in kept}) == 1
        assert len(kept) == max(sizes)


class Config:
    def __init__(self) -> None:
        self.stash = pytest.Stash()


def test_what_follows_is_not_played() -> None:
    config: Any = Config()
    with pytest.raises(NotWholeError), sessions.on_whole_cluster(config):
        raise NotWholeError("the cluster mine is not whole: rabbit@2 does not run")
    skipped = pytest.raises(pytest.skip.Exception, match="not played: the cluster mine is not whole")
    with skipped, sessions.on_whole_cluster(config):
        pytest.fail("it was played")


def test_another_failure_stops_nothing() -> None:
    config: Any = Config()
    with pytest.raises(ValueError, match="other"), sessions.on_whole_cluster(config):
        raise ValueError("other")
    with sessions.on_whole_cluster(config):
        pass
