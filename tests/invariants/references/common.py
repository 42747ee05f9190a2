"""Hold what the references have in common: plain rows, steps and looks, and how a history is made of them."""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import (
    apart,
    cluster,
    deliver,
    event,
    fault,
    history,
    load,
    phases,
    publish,
    queues,
    sample,
)
from tests.verdict_cases.builder import found as finding_of

NODES = ("a1", "b1", "c1")
#: When publishers end, and when the record does.
PUBLISHED_S, END_S = 88.0, 95.0
OUTCOMES = {
    "confirmed": Outcome.CONFIRMED,
    "nacked": Outcome.NACKED,
    "returned": Outcome.RETURNED,
    "unknown": Outcome.UNKNOWN,
    "never_sent": Outcome.NEVER_SENT,
}
#: Steps that act on brokers or on the links between them; the others act on clients alone.
OF_BROKERS = ("kill", "pause", "partition", "rebalance")
OF_CLIENTS = ("kill_client",)
#: A node is killed, and one of its files is damaged.
DAMAGE = "damage_file"
#: A node is killed, and all that it has stored is removed.
LOSE = "lose_disk"


@dataclass(frozen=True)
class Message:
    """A publish."""

    publisher: int
    sequence: int
    queue: int
    sent_s: float
    outcome: str = "confirmed"


@dataclass(frozen=True)
class Receipt:
    """A delivery."""

    publisher: int
    sequence: int
    queue: int
    consumer: int
    at_s: float
    marked: bool = False
    intact: bool = True


@dataclass(frozen=True)
class Step:
    """A step of the schedule; one that was skipped never began."""

    name: str
    start_s: float
    end_s: float
    #: Or the queue that is deleted, "" if that is not recorded.
    node: str = ""
    skipped: bool = False
    #: Of a damaged file: "quorum" or "classic", as its queues are, or "" if that is not known.
    of_type: str = ""

    @property
    def is_fault(self) -> bool:
        """Whether it began and is a fault: rebalancing is "no fault, but a step like one"."""
        return not self.skipped and self.name != "rebalance"

    @property
    def on_brokers(self) -> bool:
        """Whether it began and acts on brokers or on the links between them."""
        return not self.skipped and self.name in (*OF_BROKERS, DAMAGE, LOSE)


@dataclass(frozen=True)
class Away:
    """A node that was seen away (or, "unseen", not looked at) for some time."""

    node: str
    from_s: float
    to_s: float
    state: str = "down"


@dataclass(frozen=True)
class Machine:
    """What others took of the machine in some time, and for what part of it a broker waited."""

    from_s: float
    to_s: float
    others: float
    node: str
    waited: float


def step_events(steps: Sequence[Step]) -> list[Any]:
    """Return the events of steps."""
    events: list[Any] = []
    for number, step in enumerate(steps):
        if step.skipped:
            events.append(fault(step.start_s, step.start_s, step=number, name=step.name, states=("skipped",)))
        elif step.name == "partition":
            cut = apart([step.node], [node for node in NODES if node != step.node])
            events.append(fault(step.start_s, step.end_s, step=number, name=step.name, cut=cut))
        elif step.name in ("kill", "pause"):
            events.append(fault(step.start_s, step.end_s, step=number, name=step.name, down=[step.node]))
        elif step.name == DAMAGE:
            at, node = (step.start_s, step.end_s), [step.node]
            events.append(fault(*at, step=number, name=step.name, down=node, damaged=node, type_damaged=step.of_type))
        elif step.name == LOSE:
            at, node = (step.start_s, step.end_s), [step.node]
            events.append(fault(*at, step=number, name=step.name, down=node, emptied=node))
        elif step.name == "delete_queue":
            events.append(fault(step.start_s, step.end_s, step=number, name=step.name, deleted=step.node))
        elif step.name == "rebalance":
            events.append(fault(step.start_s, step.end_s, step=number, name=step.name, operation=True))
        else:
            events.append(fault(step.start_s, step.end_s, step=number, name=step.name))
    return events


def look_events(aways: Sequence[Away], nodes: Sequence[str] = NODES) -> list[Any]:
    """Return what was seen of the nodes each half second."""
    looks = []
    for half in range(int(2 * END_S)):
        at_s, states = half / 2, {}
        for node in nodes:
            state = "up"
            for away in aways:
                if away.node == node and away.from_s <= at_s < away.to_s:
                    state = away.state
            if state != "unseen":
                states[node] = state
        looks.append(event(at_s, "nodes", states=states))
    return looks


def row_of(message: Message) -> dict[str, Any]:
    """Return the row of a publish."""
    outcome = OUTCOMES[message.outcome]
    return publish(message.sequence, message.sent_s, outcome, publisher=message.publisher, queue=message.queue)


def received_row(receipt: Receipt) -> dict[str, Any]:
    """Return the row of a delivery; one that is not intact names no message."""
    row = deliver(receipt.sequence, receipt.at_s, again=receipt.marked, intact=receipt.intact)
    row |= {"consumer": receipt.consumer, "queue": receipt.queue, "publisher": receipt.publisher}
    return row if receipt.intact else row | {"publisher": 0, "sequence": 0}


def made(
    messages: Sequence[Message],
    receipts: Sequence[Receipt],
    steps: Sequence[Step],
    aways: Sequence[Away],
    *more: Any,
    names: Sequence[str] = ("q1", "q2"),
    declared: Any = None,
    version: str = "3.10.8",
    loaded: Any = None,
    metrics: Sequence[Any] = (),
) -> History:
    """Return a history of a cluster with quorum queues and pause_minority.

    ``loaded``: the event of the load, by default of two messages a second; ``metrics``: lists of rows as of ``told``.
    """
    publishes = sorted(map(row_of, messages), key=lambda row: (row["publisher"], row["sequence"]))
    deliveries = sorted(map(received_row, receipts), key=lambda row: (row["consumer"], row["received_us"]))
    events = [cluster(version=version), declared or queues(*names), phases(), loaded or load(10, 2)]
    every = [*events, *step_events(steps), *look_events(aways), *more]
    return history(publishes, deliveries, every, metrics=metrics)


def leader_samples(changes: Sequence[tuple[float, str]], names: Sequence[str] = ("q1", "q2")) -> list[Any]:
    """Return samples each second: who leads all queues; ``changes``: from when on it is which node."""
    samples = []
    for at_s in range(int(END_S)):
        leader = "a1"
        for from_s, node in changes:
            if from_s <= at_s:
                leader = node
        samples.append(sample(at_s, leader=leader, names=names))
    return samples


def drawn_steps(
    source: random.Random, names: Sequence[str], most: int = 3
) -> tuple[tuple[Step, ...], tuple[Away, ...]]:
    """Draw steps within the phase of faults, one after another, and who was seen away for them."""
    steps, aways, at_s = [], [], 12.0
    for _ in range(source.choice([0, 1, 1, 2, most])):
        start_s = at_s + source.randrange(0, 10)
        end_s = start_s + source.choice([1, 2, 5, 10])
        if end_s > 68:
            break
        name, node = source.choice(names), source.choice(NODES)
        skipped = source.random() < 0.1
        of_type = source.choice(["", "quorum", "classic"]) if name == DAMAGE else ""
        steps.append(Step(name, start_s, end_s, node, skipped, of_type))
        if not skipped and name in ("kill", "pause", DAMAGE, LOSE):
            aways.append(Away(node, start_s, end_s + 2, "suspended" if name == "pause" else "down"))
        if not skipped and name == "partition" and end_s - start_s >= 10:
            aways.append(Away(node, start_s + 5.5, end_s + 2, "paused"))
        at_s = end_s + source.choice([1, 8, 22])
    return tuple(steps), tuple(aways)


def checked(name: str, history: History, **bounds: Any) -> Any:
    """Return the finding of a checker."""
    finding: Callable[..., Any] = finding_of
    return finding(name, history, **bounds)


def received_after_each(begun_s: Sequence[float], received_s: Sequence[float]) -> bool:
    """Whether a message was received after each fault had begun."""
    return all(any(at_s > start_s for at_s in received_s) for start_s in begun_s)


def machine_events(parts: Sequence[Machine]) -> list[Any]:
    """Return what was seen of the machine each 5 s."""
    events, at_s = [], 5.0
    while at_s <= END_S:
        others = 0.0
        waited: dict[str, float] = {}
        for part in parts:
            if part.from_s < at_s <= part.to_s:
                others = max(others, part.others)
                waited |= {part.node: 5 * part.waited} if part.waited else {}
        if parts:
            events.append(event(at_s, "machine", busy=0.9, others=others, over_s=5.0, waited_s=waited))
        at_s += 5
    return events


@dataclass(frozen=True)
class Alarm:
    """A step that raises an alarm of a node."""

    node: str
    resource: str
    start_s: float
    end_s: float


def alarm_events(alarms: Sequence[Alarm]) -> list[Any]:
    """Return the events of steps that raise alarms; their numbers come after those of other steps."""
    events: list[Any] = []
    for number, one in enumerate(alarms):
        times, nodes = (one.start_s, one.end_s), [one.node]
        events += fault(*times, step=10 + number, name="alarm", alarm=one.resource, alarmed=nodes)
    return events


def drawn_alarms(source: random.Random) -> tuple[Alarm, ...]:
    """Draw up to two steps that raise alarms, within the phase of faults."""
    alarms, at_s = [], 12.0
    for _ in range(source.choice([0, 1, 1, 2])):
        start_s = at_s + source.randrange(0, 12)
        end_s = start_s + source.choice([5, 10, 20])
        resource = source.choice(["memory", "memory", "disk"])
        alarms.append(Alarm(source.choice(NODES), resource, start_s, min(end_s, 69.0)))
        at_s = end_s + source.choice([1, 10])
    return tuple(alarms)


def said(values: Sequence[float | None]) -> Callable[[float], float | None]:
    """Return what gives the value of a second."""
    return lambda at_s: values[int(at_s)]


def is_seen_away(aways: Sequence[Away], node: str, at_s: float) -> bool:
    """Whether a node was seen to do something other than to serve; one that was not looked at was not."""
    if is_unseen(aways, node, at_s):
        return False
    return any(away.node == node and away.from_s <= at_s < away.to_s for away in aways)


def is_silent(aways: Sequence[Away], node: str, words: Sequence[object], silent_s: float) -> bool:
    """Whether a node said nothing (None, second by second) for too long while it was not seen away, or since then."""
    silent, back_s = 0, 0
    for at_s, word in enumerate(words):
        if is_seen_away(aways, node, at_s):
            silent, back_s = 0, at_s + 1
        else:
            silent = silent + 1 if word is None else 0
        if silent > silent_s:
            return True
    return back_s < END_S and all(word is None for word in words[back_s:])


def drawn_unseen(source: random.Random) -> tuple[Away, ...]:
    """Draw, seldom, a node that was not looked at for some time."""
    if source.random() < 0.9:
        return ()
    from_s = float(source.randrange(0, 80))
    return (Away(source.choice(NODES), from_s, from_s + source.choice([5, 25, 100]), "unseen"),)


def is_unseen(aways: Sequence[Away], node: str, at_s: float) -> bool:
    """Whether a node was not looked at."""
    return any(away.node == node and away.state == "unseen" and away.from_s <= at_s < away.to_s for away in aways)
