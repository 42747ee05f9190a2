"""The known defects of RabbitMQ that more than one suite expects."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Any

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.workload.workload_model import Workload

#: The invariants that also break if a node does not come back.
_WITHOUT_A_NODE = ("availability", "throughput")


def _defect(invariant: str, *, broker: str, reference: str, **fields: Any) -> Expectation:
    """Return an expectation for a defect that shows in some runs, and not in all."""
    return Expectation(
        verdict=Verdict.INVALID, intermittent=True, invariant=invariant, broker=broker, reference=reference, **fields
    )


#: A node that has just lost its peers may wait 7 s for a connection before it pauses (kernel(6), net_setuptime).
#: Meanwhile its mirrors are promoted, and the messages that they confirm are gone when the node comes back. The broker
#: is not meant to confirm there, as the reference says of its channels.
CONFIRMED_IN_A_MINORITY = _defect(
    "no_loss",
    broker="<4",
    reference="rabbitmq/rabbitmq-server#9523",
    queue_types=("mirrored",),
    trace="pauses_late",
)

#: A node that pauses takes a second or more to stop, and leads and confirms until then. If a cut is shorter, clients
#: come back to the node meanwhile. The messages that it confirms are gone after it has started again from the others.
#: Random schedules found it (3.10.8); the reference says what the broker is meant to promise.
CONFIRMED_WHILE_PAUSING = _defect(
    "no_loss",
    broker="<4",
    reference="rabbitmq/rabbitmq-server#9523",
    queue_types=("mirrored",),
    trace="leads_while_pausing",
)

#: Brokers that decide before each has seen the whole split decide again and again, and restart the sides in turn.
DECIDES_TOO_SOON = _defect(
    "partition_mode",
    broker="<4.3",
    invariants_also=("recovery", "availability", "throughput"),
    reference="rabbitmq/rabbitmq-server#928",
    trace="decides_anew",
)

#: A node that goes away while a split is healed, such as one that paused, aborts the healing. The sides stay separated
#: for a minute or longer, until the winner decides again. The reference shows this in addition to its own case.
BREAKS_OFF_HEALING = DECIDES_TOO_SOON.model_copy(update={"trace": None, "log": r"Autoheal: aborting"})

#: Messages that the mirrors of a needlessly restarted side had confirmed are gone. A quorum queue loses nothing.
DISCARDS_TOO_MUCH = DECIDES_TOO_SOON.model_copy(
    update={
        "broker": "<4",
        "invariants_also": ("recovery", "availability", "throughput", "no_loss", "order"),
        "queue_types": ("mirrored",),
    }
)

#: A node loses a peer while it starts, after a pause or after a stop. It does not pause again but serves by itself, and
#: stays separated when the others are back (the reference); or its mirrors are not started any more.
PARTED_WHILE_STARTING = _defect(
    "recovery",
    broker="<4.3",
    invariants_also=("availability", "throughput", "partition_mode"),
    reference="rabbitmq/rabbitmq-server#2175",
    log=r"(RabbitMQ is asked to start|Starting RabbitMQ \d)((?!Server startup complete).)*not responding",
)

#: The same on 4.0, whose log does not name the lost peer (4.0.5: 1 of 1 node that was cut off again 2 s after it had
#: come back).
STARTS_APART = _defect(
    "recovery",
    broker=">=4.0,<4.1",
    invariants_also=("availability", "throughput", "partition_mode"),
    reference="rabbitmq/rabbitmq-server#2175",
    trace="starts_apart",
)

#: The same, if the node has just started: the process that started it still runs, and no other pause begins while it
#: does (4.0.5: 1 of 3 nodes that were cut off again 2 s after they had come back).
DROPS_A_PAUSE = STARTS_APART.model_copy(
    update={
        "broker": ">=4.0,<4.3",
        "trace": None,
        "log": r"RabbitMQ is asked to start((?!Time to start RabbitMQ).)*Cluster minority/secondary status detected",
    }
)

#: What may happen to a node that loses its peers while it starts, or just after that.
CUT_OFF_AS_IT_STARTS = (PARTED_WHILE_STARTING, STARTS_APART, DROPS_A_PAUSE)

#: A node that was frozen for longer than net_ticktime counts its peers only when they are back, and does not pause. All
#: nodes stay separated (4.0.5: 3 of 3 random schedules that froze a node for 7 s). So does a node whose connections
#: were broken for milliseconds (4.0.5: 2 of 4 blips of 4 ms on all links, and 1 of 7 of 50 ms).
RESUMES_APART = STARTS_APART.model_copy(
    update={"reference": "rabbitmq/rabbitmq-server#17319", "trace": "resumes_apart"}
)

#: After a cut of less than a second, a node pauses although it sees its peers again by then. A peer that hears of the
#: node's end only when the node is back already does not forget the partition, and reports it for ever.
STAYS_PARTED_AFTER_A_BLIP = _defect(
    "recovery",
    broker="<4.3",
    reference="rabbitmq/rabbitmq-server#17319",
    log=r"_partitioned_network,\s*'?([\w@.-]+?)'?\}.*Keeping \1 listeners: the node is already back",
)

#: A node that is cut off from all others waits for one after another, up to 12 s for each, before it knows that it is
#: in a minority. If the cut is over by then, the node never pauses, and the database stays separated on all nodes for a
#: minute or longer (4.0.5: 3 of 61 cuts of 26 s).
NEVER_PAUSES = _defect(
    "partition_mode",
    broker=">=4.0,<4.1",
    invariants_also=("recovery", "availability", "throughput"),
    reference="rabbitmq/rabbitmq-server#17319",
    trace="never_pauses",
)

#: The same, if the node notices its minority just as the cut is over, and pauses then (4.0.5: 1 of 61 cuts of 26 s).
WAITS_TO_PAUSE = _defect(
    "partition_mode",
    broker=">=4.0,<4.1",
    invariants_also=("recovery", "availability", "throughput"),
    reference="rabbitmq/rabbitmq-server#17319",
    trace="waits_to_pause",
)

#: The same, if the cut was shorter than the time after which a node must have paused (4.0.5: 1 of 1 second cuts of 19 s
#: while a node recovers from the first one).
STAYS_APART_UNPAUSED = _defect(
    "recovery",
    broker=">=4.0,<4.1",
    invariants_also=("availability", "throughput"),
    reference="rabbitmq/rabbitmq-server#17319",
    trace="never_pauses",
)

#: What any cut may cause with ``pause_minority``.
DOES_NOT_PAUSE = (NEVER_PAUSES, STAYS_APART_UNPAUSED, WAITS_TO_PAUSE, RESUMES_APART)

#: If a queue's leader dies, the new leader delivers the unacknowledged messages again. A channel that survives this
#: acknowledges by the numbers of the old leader, and the new one goes on counting some messages as unacknowledged. The
#: channel then reports that it has none. These messages stay until the consumer goes.
COUNTED_AS_UNACKED = _defect(
    "unacked",
    broker="<4",
    reference="rabbitmq/rabbitmq-server#4004",
)

#: A node that comes back may wait for ever for Erlang's global names, and logs nothing after the lines of peer
#: discovery (rabbit_mnesia:init/0 ends in global:sync/0).
HANGS_IN_GLOBAL_SYNC = _defect(
    "recovery",
    broker="<3.11",
    invariants_also=_WITHOUT_A_NODE,
    reference="rabbitmq/rabbitmq-server#5438",
    log=r"skipping registration\.(?!.*Running boot step)",
)


#: A mirror that is just starting waits for the supervisor that waits for it, and the node never finishes its stop.
HANGS_WHILE_STOPPING = _defect(
    "recovery",
    broker="<4",
    invariants_also=_WITHOUT_A_NODE,
    reference="rabbitmq/rabbitmq-server#4241",
    log=r"RabbitMQ is asked to stop(?!.*Successfully stopped RabbitMQ)",
)


#: A node starts while a peer cannot be reached, or is only starting too. It takes that for an incompatible feature flag
#: and gives up. ``badrpc`` means only that a call failed: the log names flags that are really incompatible.
GIVES_UP_STARTING = _defect(
    "recovery",
    broker="<3.12",
    invariants_also=(*_WITHOUT_A_NODE, "no_crash"),
    reference="rabbitmq/rabbitmq-server#8114",
    log=r"incompatible_feature_flags,\s*\{badrpc,(?!.*Server startup complete)",
)


#: The same, if a peer is just stopping, as one does that pauses: it is asked once for the protocol of its Mnesia
#: (rabbit_mnesia:check_mnesia_consistency/2), and without an answer the start fails (4.0.5: 1 of 2 power cuts during an
#: election). The reference proposed to try again.
GIVES_UP_AS_A_PEER_STOPS = _defect(
    "recovery",
    broker="<4.3",
    invariants_also=(*_WITHOUT_A_NODE, "no_crash"),
    reference="rabbitmq/rabbitmq-server#15502",
    log=r"Mnesia protocol negotiation failed(?!.*Server startup complete)",
)


#: All three nodes of a mirrored queue were away at one moment, and the one that had been cut off came back first with
#: its older copy (3.10.8: 2 of 2 runs).
OLDER_COPY_LEADS = Expectation(
    broker="<4",
    verdict=Verdict.INVALID,
    invariant="no_loss",
    intermittent=True,
    queue_types=("mirrored",),
    trace="all_mirrors_were_away",
    documentation="A mirror that rejoins throws away what it has (RabbitMQ 3.13, Classic Queue Mirroring).",
)


def known_hangs(workload: Workload, *, demanded: Collection[str]) -> tuple[Expectation, ...]:
    """Return the expectations of defects by which a restarted node may not come back.

    They keep only the consequences for demanded invariants.
    """
    known = (
        HANGS_IN_GLOBAL_SYNC,
        GIVES_UP_STARTING,
        GIVES_UP_AS_A_PEER_STOPS,
        *([HANGS_WHILE_STOPPING] if workload.queue_type == "mirrored" else []),
    )
    return tuple(as_demanded(known, demanded))


def as_demanded(known: Iterable[Expectation], demanded: Collection[str]) -> Iterable[Expectation]:
    """Return the expectations without consequences for invariants that are not demanded."""
    return (
        k.model_copy(update={"invariants_also": tuple(name for name in k.invariants_also if name in demanded)})
        for k in known
    )
