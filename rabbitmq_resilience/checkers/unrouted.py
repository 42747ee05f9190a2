"""Find messages to several queues that brokers did not route to one of them.

If one of the queues is a classic queue on a node that is away, a broker does not know that queue. The broker routes to
the other queues alone and confirms. Nothing is returned, as another queue took the message (seen on 3.10.8). Queues
with copies remain known.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.columns import Array, grouped, messages, pieces
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fault_timeline import truth_of
from rabbitmq_resilience.checkers.message_ledger import Ledger
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.times import Period, Times, periods, times
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.history import Outcome

Flags = npt.NDArray[np.bool_]

#: How long a node takes at least to be missed and to start again; its queue is known again after that.
SILENT_S_MIN = 3.0

#: Why such a message may be lost.
REASON = "while the node of {queue} is away, brokers route messages to their other queues alone"


def sharing(facts: Facts, ledger: Ledger) -> frozenset[int]:
    """Return the queues, by index, that share messages with others and that brokers may pass over."""
    shared = ledger.sharing_queues()
    return frozenset(
        i for i, queue in enumerate(facts.queues) if queue.kind == "classic" and len(queue.members) == 1 and i in shared
    )


def skipped_bindings(
    history: History, ledger: Ledger, rows: Mapping[str, Array], excused: Flags | None = None
) -> Iterator[tuple[str, Flags]]:
    """Yield for each queue the reason, and which lost messages may never have been routed to it.

    Three things must hold for such a message. Another queue took it. The node that confirmed it may have missed the
    node of this queue meanwhile. And around that time, for as long as a node takes to be missed and to start again, no
    message that this node confirmed came from the queue.

    ``rows`` has ``publisher``, ``sequence``, ``queue``, ``node``, ``sent_us`` and ``outcome_us``. ``excused`` are the
    messages that another queue may have taken and lost.
    """
    facts = history.facts
    cluster, queues = facts.cluster, sharing(facts, ledger)
    if cluster is None or not queues:
        return
    taken = _taken_elsewhere(ledger, rows)
    if excused is not None and excused.any():
        message = messages(rows["publisher"], rows["sequence"])
        taken |= np.isin(message, message[excused])
    known_us = _came_us(history, ledger, queues)
    for index in sorted(queues):
        queue, mine = facts.queues[index], (rows["queue"] == index) & taken
        (member,) = queue.members
        for node, name in enumerate(cluster.nodes):
            of_node = mine & (rows["node"] == node)
            if not of_node.any() or name == member:
                continue
            over = np.zeros(len(taken), np.bool_)
            for start, end in periods(_missed(facts, cluster, member, name)):
                over |= of_node & (rows["sent_us"] < end) & (rows["outcome_us"] >= start)
            over &= _silence_us(rows["sent_us"], known_us.get((index, node))) >= SILENT_S_MIN * 1e6
            if over.any():
                yield REASON.format(queue=queue.name), over


def _came_us(history: History, ledger: Ledger, queues: frozenset[int]) -> Mapping[tuple[int, int], Array]:
    """Return for each queue and node, in order, when the messages were sent that the node confirmed and that came from
    the queue."""
    found: dict[tuple[int, int], list[Array]] = {}
    columns = ("publisher", "queue", "lane", "node", "sequence", "sent_us", "outcome")
    for piece in pieces(history.publishes(), *columns):
        kept = np.isin(piece[1], sorted(queues)) & (piece[-1] == Outcome.CONFIRMED)
        publisher, queue, lane, node, sequence, sent_us, _ = (column[kept] for column in piece)
        for key, rows in grouped(publisher, queue, lane, node) if kept.any() else ():
            received = ledger.messages[key[0]].lanes[key[2]].received[sequence[rows]]
            found.setdefault((key[1], key[3]), []).append(sent_us[rows][received])
    return {key: np.sort(np.concatenate(parts)) for key, parts in found.items()}


def _silence_us(sent_us: Array, known_us: Array | None) -> Array:
    """Return, around each moment, the time between the neighbouring messages that came, in us."""
    if known_us is None or not len(known_us):
        return np.full(len(sent_us), np.inf)
    after = np.searchsorted(known_us, sent_us, "right")
    ends = np.append(known_us.astype(np.float64), np.inf)[after]
    starts = np.concatenate(([-np.inf], known_us.astype(np.float64)))[after]
    silence: Array = ends - starts
    return silence


def _taken_elsewhere(ledger: Ledger, rows: Mapping[str, Array]) -> Flags:
    """Return for each row whether another queue gave its copy of the message."""
    taken = np.zeros(len(rows["sequence"]), np.bool_)
    for (publisher,), mine in grouped(rows["publisher"]) if len(taken) else ():
        taken[mine] = ledger.messages[publisher].received[rows["sequence"][mine]]
    return taken


def _missed(facts: Facts, cluster: ClusterFacts, node: str, by: str) -> Times:
    """Return when ``by`` may have missed ``node``.

    This is while ``node`` was away, until it was seen up again. It is also from when a cut between them may be noticed
    until one of them was seen back from a restart after it, as the queues of ``node`` are not declared again before
    that.
    """
    truth = truth_of(facts, cluster)
    cut = truth.cut[frozenset({node, by})].possibly
    noticed = [
        (from_us, _restarted_us(facts, (node, by), noticed_us=from_us, healed_us=period[1]))
        for period, from_us in truth.noticeable(cut, sudden=truth.sudden)
    ]
    return truth.away[node].possibly | _not_seen(facts, cluster, node) | times(noticed)


def _not_seen(facts: Facts, cluster: ClusterFacts, node: str) -> Times:
    """Return when the node was seen away, from one ``net_ticktime`` before: a sighting shows what had begun before
    it."""
    tick_us = cluster.net_ticktime_s * 1e6
    seen: list[Period] = []
    for t_us, states in facts.node_states:
        if states.get(node, "up") != "up":
            seen.append((t_us - tick_us, facts.first_up_us(node, after_us=t_us)))
    return times(seen)


def _restarted_us(facts: Facts, nodes: tuple[str, ...], *, noticed_us: float, healed_us: float) -> float:
    """Return when the first of the nodes was up again that had been seen away since ``noticed_us``, and not before the
    cut was healed."""
    backs = [
        facts.first_up_us(node, after_us=max(t_us, healed_us))
        for t_us, states in facts.sightings(noticed_us, NEVER_US)
        for node in nodes
        if states.get(node, "up") != "up"
    ]
    return min(backs, default=NEVER_US)
