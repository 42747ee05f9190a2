"""Loads with dead letters, made up row by row: what their histories say, and what is true of them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from random import Random
from typing import Any

from rabbitmq_resilience.checkers.dead_letters import SETTLED_WITHIN_S
from rabbitmq_resilience.checkers.lost_dead_letters import FELT_FOR_S
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.workload.dead_lettering import Rejected
from tests.invariants.literal import (
    THREE,
    Row,
    cluster,
    deliver,
    event,
    fault,
    history,
    node_states,
    phases,
    publish,
)

#: The dead letters of q1 and q3 go to d1 and those of q2 to d2, unless a layout says otherwise.
QUEUES = ("q1", "d1", "q2", "q3", "d2")
FAULT_S, HEALED_S = 20, 50
#: How long after it what it did may still make messages come again, at a net_ticktime of 4 s.
AGAIN_S = 15
#: When consumer 0 is killed, and when it is connected again.
GONE_S, BACK_S = 30, 31
#: How long after its sending a dead letter comes.
LETTER_AFTER_S = 0.2
PUBLISHED = (0, 2, 3)
TAKING: Mapping[int, tuple[int, ...]] = {0: (1,), 2: (4,), 3: (1,)}


@dataclass(frozen=True)
class Layout:
    """The queues of each route, and who takes the dead letters of each queue, by their indexes."""

    routes: Sequence[tuple[int, ...]] = ((0,), (2,), (3,))
    taking: Mapping[int, tuple[int, ...]] = field(default_factory=lambda: TAKING)

    @property
    def table(self) -> Routes:
        return Routes.of([list(route) for route in self.routes])


EACH = Layout()
FANNED_OUT = Layout(routes=((0, 2), (3,), (2, 3)))
#: Those of q1 go to both.
DOUBLED = Layout(taking={**TAKING, 0: (1, 4)})
BOTH = Layout(routes=((0, 3), (2,)), taking={0: (1,), 2: (1, 4), 3: (4,)})


@dataclass(frozen=True)
class Setting:
    at_least_once: bool
    limited: bool
    faulty: bool
    reject_one_in: int | None
    kind: str = "quorum"
    version: str = "3.10.8"
    held_s: float = 0
    layout: Layout = EACH
    acks: str = "manual"
    delivery_limit: int | None = None

    def events(self) -> list[Any]:
        places = {name: {"type": self.kind, "members": list(THREE), "leader": "a1"} for name in QUEUES}
        letters = {
            "queues": {QUEUES[queue]: [QUEUES[to] for to in taking] for queue, taking in self.layout.taking.items()},
            "strategy": "at_least_once" if self.at_least_once else "at_most_once",
            "reject_one_in": self.reject_one_in,
            "limited": self.limited,
            "held_s": self.held_s,
            "acks": self.acks,
            "delivery_limit": self.delivery_limit,
        }
        killed = [fault(FAULT_S, HEALED_S, down=["c1"], name="kill")] if self.faulty else []
        declared = event(0, "queues", queues=places, dead_letters=letters)
        lost = [(0, "connected"), (GONE_S, "killed"), (BACK_S, "connected")]
        consumer = [event(at_s, "worker", worker="consumer-0", event=what, node="a1") for at_s, what in lost]
        return [cluster(version=self.version), declared, phases(), node_states(), *killed, *consumer]


@dataclass(frozen=True)
class Copy:
    """A message in one of its queues, and what became of it; times in seconds. ``letters``: the queues from which it
    came as a dead letter."""

    publisher: int
    sequence: int
    queue: int
    confirmed: bool
    came: bool
    letters: frozenset[int]
    rejectable: bool
    sent_s: float
    first_s: float
    last_s: float

    @property
    def turned_down(self) -> bool:
        return self.came and self.rejectable

    def left_s(self, others: Sequence[Copy]) -> float:
        """When it had left its queue at the latest."""
        if self.came:
            return self.last_s
        behind = [m for m in others if m.came and m.sequence > self.sequence]
        return min((m.first_s for m in behind if (m.publisher, m.queue) == (self.publisher, self.queue)), default=inf)


@dataclass(frozen=True)
class Told:
    """What a history says, and what is true of it. ``repeated_s``: when letters came twice, unmarked."""

    setting: Setting
    publishes: Sequence[Row]
    deliveries: Sequence[Row]
    copies: Sequence[Copy]
    repeated_s: Sequence[float]

    def history(self) -> History:
        return history(self.publishes, self.deliveries, self.setting.events())

    def forbidden(self) -> int:
        """Return how many letters came twice though nothing disturbed the brokers of their queues."""
        if self.setting.at_least_once:
            return 0
        return sum(not (self.setting.faulty and FAULT_S <= at_s < HEALED_S + AGAIN_S) for at_s in self.repeated_s)

    def letters(self) -> Iterator[tuple[Copy, int]]:
        """Each copy with each queue that would take its dead letter."""
        return ((m, taking) for m in self.copies for taking in self.setting.layout.taking[m.queue])

    def asked(self, m: Copy) -> bool:
        return m.turned_down or (self.setting.limited and m.confirmed and not m.came)

    def disturbed(self, m: Copy) -> bool:
        """Whether at_most_once may have lost its letter: all were sent before what the fault did was over."""
        disturbed = self.setting.faulty and not self.setting.at_least_once
        return disturbed and m.left_s(self.copies) + SETTLED_WITHIN_S >= FAULT_S

    def in_hand(self, m: Copy) -> bool:
        """Whether the consumer may have held it when it was killed, though it told nobody."""
        unheard = self.setting.acks != "manual" and not m.came
        return unheard and m.sent_s < BACK_S + FELT_FOR_S and m.left_s(self.copies) + SETTLED_WITHIN_S >= GONE_S

    def gave_up(self, m: Copy) -> bool:
        """Whether its queue may have given it up: so many things happened after its sending, before its letter came."""
        happened_s = [GONE_S, *([FAULT_S, HEALED_S] if self.setting.faulty else [])]
        came_back = sum(m.sent_s <= at_s <= m.sent_s + LETTER_AFTER_S for at_s in happened_s)
        limits = self.setting.kind == "quorum" and self.setting.version.startswith("4")
        return limits and came_back >= (self.setting.delivery_limit or 20)

    def unasked(self, m: Copy) -> bool:
        known = m.turned_down or (m.came and self.gave_up(m)) or (m.rejectable and self.in_hand(m))
        return not known and not self.setting.limited


def told(setting: Setting, random: Random, *, messages: int, losses: int) -> Told:
    """Row by row: each message is sent, maybe confirmed, and in each of its queues maybe received (again), maybe a dead
    letter (again)."""
    rejected = Rejected(setting.reject_one_in) if setting.reject_one_in else lambda *_: False
    publishes, deliveries, found, repeated = [], [], [], []
    lanes = setting.layout.table.lanes
    for publisher, sequence in ((p, s) for p in range(2) for s in range(messages)):
        route, at_s = random.choice(setting.layout.routes), 1 + 75 * sequence / messages
        outcome = random.choice([*[Outcome.CONFIRMED] * 6, Outcome.UNKNOWN, Outcome.NACKED])
        confirmed = outcome is Outcome.CONFIRMED
        fields: dict[str, Any] = {"publisher": publisher, "sequence": sequence}
        for queue in route:
            publishes.append(publish(sequence, at_s, outcome, publisher=publisher, queue=queue, lane=int(lanes[queue])))
            taking = setting.layout.taking[queue]
            came = (confirmed or random.random() < 0.3) and not (setting.limited and random.random() < 0.3)
            letter = (came and rejected(publisher, sequence)) or (confirmed and not came)
            letters = {*taking} if letter else set()
            if losses and random.random() < 0.2:
                losses -= 1
                came = random.random() < 0.5
                letters = {one for one in taking if random.random() < 0.5}
            again_s = random.choice([None, 0.5])
            if came:
                deliveries.append(deliver(at_s=at_s + 0.1, queue=queue, **fields))
                if again_s is not None:
                    deliveries.append(deliver(at_s=at_s + again_s, queue=queue, again=True, **fields))
            for one in sorted(letters):
                as_letter = deliver(at_s=at_s + LETTER_AFTER_S, queue=one, consumer=1, **fields)
                marked = deliver(at_s=at_s + 0.3, queue=one, consumer=1, again=True, **fields)
                deliveries += random.choice([[as_letter], [as_letter, marked], [as_letter, as_letter]])
                repeated += [at_s + LETTER_AFTER_S] if deliveries[-2:] == [as_letter, as_letter] else []
            last_s, turned = at_s + max(0.1, again_s or 0), rejected(publisher, sequence)
            whole = (publisher, sequence, queue, confirmed, came, frozenset(letters), turned, at_s, at_s + 0.1, last_s)
            found.append(Copy(*whole))
    deliveries.sort(key=lambda row: row["received_us"])
    return Told(setting, publishes, deliveries, found, repeated)
