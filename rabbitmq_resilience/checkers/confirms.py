"""Find confirms of messages that no broker could write, and queues that confirmed on both sides of a split."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.cluster_states import ClusterSide
from rabbitmq_resilience.checkers.columns import Array, grouped, pieces
from rabbitmq_resilience.checkers.cut_pairs import Pair
from rabbitmq_resilience.checkers.facts import Facts, QueueFacts
from rabbitmq_resilience.checkers.fan_out import Shards
from rabbitmq_resilience.checkers.fault_timeline import FaultTimeline
from rabbitmq_resilience.checkers.loss_permits import copies_move_us
from rabbitmq_resilience.checkers.message_ledger import Ledger, ledger_of
from rabbitmq_resilience.checkers.oracle import members_needed
from rabbitmq_resilience.checkers.pauses import Pauses
from rabbitmq_resilience.checkers.times import Period, Times, periods
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.unrouted import sharing
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.history import Outcome

Flags = npt.NDArray[np.bool_]


@dataclass
class _Confirmed:
    """The confirms of one queue through one node: their number, and the first and last moment."""

    count: int = 0
    first_us: float = np.inf
    last_us: float = -np.inf

    def add(self, outcome_us: Array) -> None:
        """Add confirms at these moments."""
        if len(outcome_us):
            self.count += len(outcome_us)
            self.first_us = min(self.first_us, int(outcome_us.min()))
            self.last_us = max(self.last_us, int(outcome_us.max()))

    def describe(self, facts: Facts, queue: QueueFacts, node: str) -> str:
        """Return the confirms as a text for the examples of a finding."""
        return (
            f"{counted(self.count, 'message')} of {queue.name} had a confirm through {node}, which could write "
            f"nothing to it, from {facts.at(self.first_us)} to {facts.at(self.last_us)}, "
            f"{facts.faults_during(self.first_us, self.last_us)}"
        )


def confirmed_in_vain(history: History, pauses: Pauses) -> Iterator[str]:
    """Yield a text for each queue and node with confirms that the node could not give.

    From the sending to the confirm of such a message, the node surely reached too few of the queue's members, even if
    all that it reached in turn are counted, or it had to stand paused. A message that brokers routed without the queue
    (``unrouted``) counts as no confirm of it. Messages of publishers that await no confirms do not count either.
    """
    facts, reach = history.facts, _Reach.of(pauses)
    if not facts.heeds_confirms:
        return
    ledger = ledger_of(history)
    without = sharing(facts, ledger)
    found: dict[tuple[int, int], _Confirmed] = defaultdict(_Confirmed)
    shards = Shards.of(facts)
    for (queue, node), message, sent_us, outcome_us in _confirms(history):
        name = pauses.truth.cluster.nodes[node]
        any_shard = [facts.queues[shard] for shard in shards.group_of(queue)]
        vain = np.logical_and.reduce([reach.too_few(shard, name, sent_us, outcome_us) for shard in any_shard])
        if queue in without and vain.any():
            vain &= ~_goes_to_several(ledger, *message)
        for start, end in periods(pauses.must[name]):
            vain |= (sent_us >= start) & (outcome_us < end)
        found[queue, node].add(outcome_us[vain])
    for (queue, node), confirmed in sorted(found.items()):
        if confirmed.count:
            yield confirmed.describe(facts, facts.queues[queue], pauses.truth.cluster.nodes[node])


def _goes_to_several(ledger: Ledger, publisher: Array, sequence: Array) -> Flags:
    """Return a flag for each message: whether it goes to more than one queue."""
    found = np.zeros(len(sequence), np.bool_)
    for (name,), rows in grouped(publisher):
        lanes = sum(lane.there[sequence[rows]].astype(int) for lane in ledger.messages[name].lanes)
        found[rows] = lanes > 1
    return found


def _confirms(history: History) -> Iterator[tuple[tuple[int, int], tuple[Array, Array], Array, Array]]:
    """Yield ((queue, node), (publisher, sequence), sent_us, outcome_us) with arrays of the confirmed messages."""
    facts = history.facts
    nodes = len(facts.cluster.nodes) if facts.cluster else 0
    columns = ("queue", "node", "outcome", "publisher", "sequence", "sent_us", "outcome_us")
    for queue, node, outcome, *rest in pieces(history.publishes(), *columns):
        kept = (outcome == Outcome.CONFIRMED) & (queue < len(facts.queues)) & (node < nodes)
        if kept.any():
            publisher, sequence, sent_us, outcome_us = (column[kept] for column in rest)
            for key, rows in grouped(queue[kept], node[kept]):
                yield (key[0], key[1]), (publisher[rows], sequence[rows]), sent_us[rows], outcome_us[rows]


@dataclass(frozen=True, eq=False)
class _Reach:
    """The nodes that each node could reach. ``starts_us``: when each moment begins; the last goes on. ``reached``: for
    each node and moment, the nodes that it possibly reached, directly or through others."""

    truth: FaultTimeline
    starts_us: npt.NDArray[np.float64]
    reached: Mapping[str, tuple[ClusterSide, ...]]
    _known: dict[tuple[ClusterSide, int, str], Flags] = field(default_factory=dict)

    @classmethod
    def of(cls, pauses: Pauses) -> _Reach:
        return cls(
            pauses.truth,
            np.array([moment.start_us for moment in pauses.moments]),
            {
                node: tuple(
                    frozenset().union(*(c for world in m.worlds for c in world.components if node in c))
                    for m in pauses.moments
                )
                for node in pauses.truth.cluster.nodes
            },
        )

    def too_few(self, queue: QueueFacts, node: str, sent_us: Array, outcome_us: Array) -> Flags:
        """Return a flag for each message: whether it could not be written to the queue between those moments.

        Copies lie where they were declared until they may have moved.
        """
        moved = outcome_us >= copies_move_us(self.truth, queue)
        first, last = self._moment(sent_us), self._moment(outcome_us)
        vain = np.zeros(len(sent_us), np.bool_)
        for having, rows in ((queue.members, np.flatnonzero(~moved)), (queue.holders, np.flatnonzero(moved))):
            lacking = self._lacking(having, members_needed(queue), node)
            vain[rows] = lacking[first[rows]] & lacking[last[rows]]
            for row in rows[vain[rows] & (first[rows] != last[rows])].tolist():
                reached = self.reached[node][first[row] : last[row] + 1]
                vain[row] = len(having & frozenset().union(*reached)) < members_needed(queue)
        return vain

    def _lacking(self, having: ClusterSide, needed: int, node: str) -> Flags:
        key = having, needed, node
        if key not in self._known:
            few = [len(having & those) < needed for those in self.reached[node]]
            self._known[key] = np.array(few, np.bool_)
        return self._known[key]

    def _moment(self, t_us: Array) -> npt.NDArray[np.intp]:
        return np.maximum(np.searchsorted(self.starts_us, t_us, side="right") - 1, 0)


def confirmed_on_both_sides(history: History, parted: Mapping[Pair, Times]) -> int:
    """Return the number of queues that confirmed messages through two nodes that were parted at that time."""
    nodes = history.facts.cluster.nodes if history.facts.cluster else ()
    heeded = history.facts.heeds_confirms
    spans = [(pair, span) for pair, when in parted.items() for span in periods(when)] if heeded else []
    seen: dict[tuple[int, Pair, Period], set[str]] = defaultdict(set)
    for (queue, node), _, _, outcome_us in _confirms(history) if spans else ():
        for pair, (start, end) in spans:
            if nodes[node] in pair and ((outcome_us >= start) & (outcome_us < end)).any():
                seen[queue, pair, (start, end)].add(nodes[node])
    return len({queue for (queue, pair, _), confirming in seen.items() if confirming == pair})
