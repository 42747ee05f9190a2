"""The oracle as a table: each row can be checked against the sentence of RabbitMQ's documentation beside it.

``P`` is "Clustering and Network Partitions" of 3.13 (its section after the colon), ``P4.3`` the same page of 4.3, ``Q``
"Quorum Queues", ``M`` "Classic Queue Mirroring", and ``log`` what brokers write to their log.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

import pytest

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_states import ClusterState
from rabbitmq_resilience.checkers.cut_pairs import Pair, pairs
from rabbitmq_resilience.checkers.facts import QueueFacts
from rabbitmq_resilience.checkers.loss_permits import permits_loss
from rabbitmq_resilience.checkers.oracle import predict, writable_from
from rabbitmq_resilience.checkers.splits import sides_apart
from tests.invariants.literal import FIVE, FOUR, THREE, apart

SEVEN = ("a1", "a2", "a3", "b1", "b2", "c1", "c2")

C_OFF = apart(["c1"], ["a1", "b1"])
EVEN = apart(["a1", "a2"], ["b1", "b2"])
ALL_ALONE = [*apart(["a1"], ["b1", "c1"]), *apart(["b1"], ["c1"])]
ONE_PAIR = apart(["a1"], ["c1"])
TWO_OF_FIVE = apart(["a1", "a2"], ["b1", "b2", "c1"])
AROUND_B = apart(["a1", "a2"], ["c1"])


@dataclass(frozen=True)
class Row:
    """What is cut in which mode, what then must be true, and where that is written."""

    source: str
    nodes: Sequence[str]
    mode: str
    cut: Iterable[tuple[str, str]]
    pauses: str = ""
    may_pause: str | None = None
    one_pauses: tuple[str, ...] = ()
    sides: tuple[str, ...] = ()
    aftermath: str = "whole"
    version: tuple[int, ...] = (3, 10, 8)
    down: Collection[str] = ()

    def case(self) -> tuple[ClusterFacts, ClusterState]:
        mode, _, choice = self.mode.partition(" ")
        preferred, _, recover = choice.partition(" then ")
        cluster = ClusterFacts(
            tuple(self.nodes), mode, 5, self.version, preferred=frozenset(preferred.split()), recover=recover
        )
        return cluster, ClusterState(up=frozenset(self.nodes) - frozenset(self.down), cut=pairs(self.cut))


def words(groups: Iterable[Collection[str]]) -> tuple[str, ...]:
    return tuple(sorted(" ".join(sorted(group)) for group in groups))


PREFER_A = "pause_if_all_down a1 then autoheal"
PREFER_A_C = "pause_if_all_down a1 c1 then autoheal"
PREFER_A_C_IGNORE = "pause_if_all_down a1 c1 then ignore"

ROWS = [
    # pause_minority: nodes that see fewer than or as many as half of all nodes pause.
    Row("P:automatic-handling", THREE, "pause_minority", C_OFF, pauses="c1", sides=("a1 b1",)),
    Row("P:automatic-handling", THREE, "pause_minority", ALL_ALONE, pauses="a1 b1 c1"),
    Row("P:automatic-handling", FIVE, "pause_minority", TWO_OF_FIVE, pauses="a1 a2", sides=("b1 b2 c1",)),
    Row("P:automatic-handling", SEVEN, "pause_minority", apart(SEVEN[:3], SEVEN[3:]), pauses="a1 a2 a3",
        sides=("b1 b2 c1 c2",)),
    Row("P:pause-minority, no strict majority", FOUR, "pause_minority", EVEN, pauses="a1 a2 b1 b2"),
    Row("P:pause-minority, any node failure", THREE, "pause_minority", [], pauses="c1", down=("a1", "b1")),
    Row("P:pause-minority", THREE, "pause_minority", [], sides=("a1 b1",), down=("c1",)),
    Row("P:automatic-handling, one way is as good as both", THREE, "pause_minority",
        apart(["c1"], ["a1", "b1"], one_way=True), pauses="c1", sides=("a1 b1",)),
    Row("log: pause until the entire cluster recovers", THREE, "pause_minority", ONE_PAIR, may_pause="a1 b1 c1",
        one_pauses=("a1 c1",)),
    Row("log: pause until the entire cluster recovers", FIVE, "pause_minority", AROUND_B,
        may_pause="a1 a2 b1 b2 c1", one_pauses=("a1 c1", "a2 c1")),
    # pause_if_all_down: nodes that see none of the listed ones pause.
    Row("P:automatic-handling", THREE, PREFER_A, C_OFF, pauses="c1", sides=("a1 b1",)),
    Row("P:automatic-handling, even split", FOUR, PREFER_A, EVEN, pauses="b1 b2", sides=("a1 a2",)),
    Row("P:automatic-handling, a listed minority", THREE, "pause_if_all_down c1 then autoheal", C_OFF, pauses="a1 b1",
        sides=("c1",)),
    Row("P:automatic-handling, listed on both sides", THREE, PREFER_A_C, C_OFF, sides=("a1 b1", "c1"),
        aftermath="restarts"),
    Row("P:automatic-handling, listed on both sides", THREE, PREFER_A_C_IGNORE, C_OFF, sides=("a1 b1", "c1"),
        aftermath="split"),
    Row("P:automatic-handling, all listed are down", THREE, PREFER_A, [], pauses="b1 c1", down=("a1",)),
    Row("log: about to pause", THREE, PREFER_A, ONE_PAIR, pauses="c1", may_pause="a1 b1 c1", aftermath="restarts"),
    # autoheal: nothing while the cut lasts; all sides but one restart after it.
    Row("P:automatic-handling", THREE, "autoheal", C_OFF, sides=("a1 b1", "c1"), aftermath="restarts"),
    Row("P:automatic-handling", FOUR, "autoheal", EVEN, sides=("a1 a2", "b1 b2"), aftermath="restarts"),
    Row("P:automatic-handling", THREE, "autoheal", ALL_ALONE, sides=("a1", "b1", "c1"), aftermath="restarts"),
    Row("log: intentionally disconnect", THREE, "autoheal", ONE_PAIR, aftermath="restarts"),
    # ignore: the split goes on even after the network is whole again.
    Row("P:during", THREE, "ignore", C_OFF, sides=("a1 b1", "c1"), aftermath="split"),
    Row("P:during", THREE, "ignore", [], sides=("a1 b1 c1",)),
    # From 4.3 on no mode has an effect.
    Row("P4.3:deprecated keys", THREE, "pause_minority", C_OFF, sides=("a1 b1", "c1"), version=(4, 3, 0)),
    Row("P4.3:deprecated keys", THREE, "autoheal", C_OFF, sides=("a1 b1", "c1"), version=(4, 3, 0)),
]  # fmt: skip


@pytest.mark.parametrize("row", ROWS, ids=lambda row: f"{row.mode}: {row.source}")
def test_nodes(row: Row) -> None:
    forecast = predict(*row.case())
    assert words([forecast.pauses]) == (row.pauses,)
    may_pause = forecast.pauses | forecast.may_pause
    assert words([may_pause]) == (row.pauses if row.may_pause is None else row.may_pause,)
    assert words(forecast.one_pauses) == row.one_pauses
    assert words(forecast.sides) == row.sides
    assert forecast.aftermath == row.aftermath


@dataclass(frozen=True)
class QueueRow:
    """From which sides a queue of ``kind`` with these ``members`` takes messages, and whether a loss is permitted."""

    source: str
    mode: str
    nodes: Sequence[str]
    cut: Iterable[tuple[str, str]]
    kind: str
    members: str
    writable: tuple[str, ...] = ()
    loss: bool = False


QUEUE_ROWS = [
    # A quorum queue: the majority of its members goes on, in every mode, and nothing is lost.
    QueueRow("Q, P:during", "pause_minority", THREE, C_OFF, "quorum", "a1 b1 c1", writable=("a1 b1",)),
    QueueRow("Q, P:during", "autoheal", THREE, C_OFF, "quorum", "a1 b1 c1", writable=("a1 b1",)),
    QueueRow("Q, P:during", "ignore", THREE, C_OFF, "quorum", "a1 b1 c1", writable=("a1 b1",)),
    QueueRow("Q, P:during", "ignore", THREE, ALL_ALONE, "quorum", "a1 b1 c1"),
    QueueRow("Q: group size 3 on 5", "autoheal", FIVE, TWO_OF_FIVE, "quorum", "a1 a2 c1", writable=("a1 a2",)),
    QueueRow("Q: majority of members that pauses", "pause_minority", FIVE, TWO_OF_FIVE, "quorum", "a1 a2 c1"),
    QueueRow("Q: even split", "pause_minority", FOUR, EVEN, "quorum", "a1 a2 b1"),
    QueueRow("Q: even split", "autoheal", FOUR, EVEN, "quorum", "a1 a2 b1", writable=("a1 a2",)),
    QueueRow("Q: majority of five", "autoheal", FIVE, TWO_OF_FIVE, "quorum", "a1 a2 b1 b2 c1", writable=("b1 b2 c1",)),
    QueueRow("Q, log: intentionally disconnect", "autoheal", THREE, ONE_PAIR, "quorum", "a1 b1 c1"),
    # A mirrored queue: each side that goes on promotes a mirror.
    QueueRow("M, P:automatic-handling", "pause_minority", THREE, C_OFF, "mirrored", "a1 b1 c1", writable=("a1 b1",)),
    QueueRow("P:during", "autoheal", THREE, C_OFF, "mirrored", "a1 b1 c1", writable=("a1 b1", "c1"), loss=True),
    QueueRow("P:during", "ignore", THREE, C_OFF, "mirrored", "a1 b1 c1", writable=("a1 b1", "c1"), loss=True),
    QueueRow("P:during, exactly 2", "ignore", THREE, C_OFF, "mirrored", "a1 b1", writable=("a1 b1",)),
    QueueRow("M: no mirror goes on", "pause_minority", FIVE, TWO_OF_FIVE, "mirrored", "a1 a2"),
    QueueRow("P:automatic-handling", PREFER_A, THREE, C_OFF, "mirrored", "a1 b1 c1", writable=("a1 b1",)),
    QueueRow("P:automatic-handling", PREFER_A_C, THREE, C_OFF, "mirrored", "a1 b1 c1",
        writable=("a1 b1", "c1"), loss=True),
    QueueRow("log: intentionally disconnect", "autoheal", THREE, ONE_PAIR, "mirrored", "a1 b1 c1", loss=True),
    QueueRow("log: pause until the entire cluster recovers", "pause_minority", THREE, ONE_PAIR, "mirrored", "a1 b1 c1"),
    # A classic queue has one copy, which the restart of its node does not harm.
    QueueRow("P:during", "autoheal", THREE, C_OFF, "classic", "c1", writable=("c1",)),
    QueueRow("P:automatic-handling", "pause_minority", THREE, C_OFF, "classic", "c1"),
]  # fmt: skip


@pytest.mark.parametrize("row", QUEUE_ROWS, ids=lambda row: f"{row.kind} {row.mode}: {row.source}")
def test_queues(row: QueueRow) -> None:
    cluster, world = Row(row.source, row.nodes, row.mode, row.cut).case()
    queue = QueueFacts("q1", row.kind, frozenset(row.members.split()))
    assert words(writable_from(queue, cluster, world)) == row.writable
    loss = permits_loss(cluster, queue) and any(sides_apart(cluster, world, queue.members))
    assert bool(loss) is row.loss


def test_pairs_have_no_direction() -> None:
    one_way: frozenset[Pair] = pairs([("a1", "b1")])
    assert one_way == pairs([("b1", "a1")])
