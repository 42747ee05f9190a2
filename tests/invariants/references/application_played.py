"""Play an application in front of a small broker that loses, repeats and delays messages, as a tap would record it."""

from __future__ import annotations

import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from rabbitmq_resilience.tap.wire_history import Kind, Mode, Row
from tests.invariants.literal import us

NODES = ("a1", "b1", "c1")
PROCESSES = ("app-0", "app-1", "app-2")
#: The broker listed the queues; the drain began, and was last seen to go on; the processes were asked to end.
ASKED_S, KNOWN_S, DRAIN_S, DRAINED_S, ENDED_S = 4.0, 5.0, 90.0, 91.0, 93.0
FAULT_S, HEALED_S, WITHIN_S = 20.0, 40.0, 20.0
#: By exchange and key, the queues.
BOUND = (("all", "", "q1"), ("all", "", "q2"), ("by_key", "one", "q1"), ("by_key", "passing", "q3"))
ROUTES = (("", "q1"), ("", "q1"), ("", "q2"), ("all", "x"), ("by_key", "one"), ("by_key", "none"), ("", "q3"))
PLACES, SKIPPED = ("q1", "q2"), {"q3": "its messages expire"}


@dataclass(frozen=True)
class Case:
    """What the tap recorded: ``rows`` and ``wire`` (second, connection, what, channel, fields), and ``own`` events of
    processes (second, process, what, life). ``work``: what they committed (process, identity, second or None), and how
    many lines of theirs cannot be read. ``away``: when a node was down. ``unseen``: when no node was looked at."""

    rows: tuple[Row, ...]
    wire: tuple[tuple[float, int, str, int, Mapping[str, Any]], ...]
    own: tuple[tuple[float, str, str, int], ...]
    work: tuple[tuple[str, int, float | None], ...]
    unread: int
    judged: bool
    away: tuple[tuple[float, float], ...]
    unseen: tuple[float, float]
    planted: str


@dataclass
class Held:
    """A message in a queue. ``marked``: it was sent to a consumer before."""

    identity: int
    body: int
    marked: bool = False


class Waiting(NamedTuple):
    """A message whose confirm, or transaction, is under way."""

    tag: int
    identity: int
    body: int
    route: tuple[str, str]
    mandatory: bool
    expires: bool
    priority: int


@dataclass
class Link:
    """An open channel of a process: the mode of its publishes, what waits for confirms, and what it was sent."""

    process: str
    connection: int
    session: int
    mode: Mode
    automatic: bool
    polls: bool
    tag: int = 0
    waiting: list[Waiting] = field(default_factory=list)
    sent: dict[int, tuple[str, Held]] = field(default_factory=dict)
    sent_tag: int = 0
    consumes: dict[str, str] = field(default_factory=dict)


class Played:
    """A run of an application in front of a small broker."""

    def __init__(self, source: random.Random) -> None:
        self.source = source
        self.at_s = 1.0
        self.rows: list[Row] = []
        self.wire: list[tuple[float, int, str, int, Mapping[str, Any]]] = []
        self.own: list[tuple[float, str, str, int]] = []
        self.work: list[tuple[str, int, float | None]] = []
        self.commits = source.choice([0.0, 0.97, 1.0])
        self.queues: dict[str, list[Held]] = {name: [] for name in ("q1", "q2", "q3")}
        self.links: dict[str, Link] = {}
        self.lives = dict.fromkeys(PROCESSES, 0)
        self.connections = 0
        self.next = 100
        self.planted: set[str] = set()
        self.expires = source.choice([0.0, 0.0, 0.2])
        self.disorder = source.choice([0.0, 0.0, 0.03])
        self.alone = source.random() < 0.5
        self.equal = source.choice([0, 0, 0.2, 0.9])
        self.polling = {process for process in PROCESSES if source.random() < 0.2}
        self.named = source.random() < 0.5
        for process in PROCESSES:
            self.own.append((0.5, process, "started", 0))

    def row(self, link: Link, kind: Kind, **fields: Any) -> None:
        self.rows.append(Row(us(self.at_s), link.connection, link.session, kind, **fields))

    def say(self, connection: int, what: str, channel: int = 0, **fields: Any) -> None:
        self.wire.append((self.at_s, connection, what, channel, fields))

    def connect(self, process: str) -> None:
        source, number = self.source, self.connections
        self.connections += 1
        self.say(number, "opened", listener="", process=process, node=source.choice(NODES))
        self.say(number, "connected")
        self.say(number, "channel_opened", channel=1, session=0)
        mode = source.choice([Mode.CONFIRMS, Mode.CONFIRMS, Mode.CONFIRMS, Mode.TRANSACTIONS, Mode.PLAIN])
        link = self.links[process] = Link(process, number, 0, mode, source.random() < 0.15, process in self.polling)
        for queue in source.sample(("q1", "q2", "q3"), source.choice([0, 1, 2])) if self.may_consume(process) else ():
            link.consumes[queue] = f"c{number}{queue}"
            if link.polls:
                continue
            fields = {"consumer": link.consumes[queue], "queue": queue, "automatic": link.automatic, "prefetch": 5}
            self.say(number, "consuming", channel=1, session=0, **fields)

    def may_consume(self, process: str) -> bool:
        """Return whether a process consumes; in some runs one alone does."""
        return process == PROCESSES[1] or (process != PROCESSES[0] and not self.alone)

    def publish(self, link: Link) -> None:
        source = self.source
        again = [row for row in self.rows if row.kind is Kind.PUBLISHED]
        route, named = source.choice(ROUTES), self.named
        if again and source.random() < self.equal:
            old = source.choice(again[-4:])
            route, identity, body = (old.place, old.routing_key), old.identity, old.body
            if named and source.random() < 0.2:
                self.planted.add("other body")
                body, self.next = self.next, self.next + 1
        else:
            identity = body = self.next
            self.next += 1
        mandatory, expires, tag = source.random() < 0.3, source.random() < self.expires, 0
        if link.mode is Mode.CONFIRMS:
            link.tag += 1
            tag = link.tag
        priority = source.choice([0] * 9 + [5])
        fields = {"tag": tag, "mode": link.mode, "flag": mandatory, "place": route[0], "routing_key": route[1]}
        fields |= {"expires": expires, "priority": priority}
        self.row(link, Kind.PUBLISHED, identity=identity, body=body, named=named, **fields)
        sent = Waiting(tag, identity, body, route, mandatory, expires, priority)
        if link.mode is Mode.PLAIN:
            self.route(link, sent)
        else:
            link.waiting.append(sent)

    def route(self, link: Link, one: Waiting) -> None:
        reached = reached_by(one.route)
        for name in reached:
            if one.expires and self.source.random() < 0.5:
                self.planted.add("expired")
            elif self.source.random() < 0.04 and not self.planted & {"loss"}:
                self.planted.add("loss")
            else:
                place = len(self.queues[name])
                if one.priority or self.source.random() < self.disorder:
                    place = self.source.randint(0, place)
                    self.planted |= set() if one.priority else {"disorder"}
                self.queues[name].insert(place, Held(one.identity, one.body))
        if not reached and one.mandatory:
            fields = {"place": one.route[0], "routing_key": one.route[1]}
            self.row(link, Kind.RETURNED, identity=one.identity, body=one.body, **fields)

    def confirm(self, link: Link) -> None:
        if not link.waiting:
            return
        if link.mode is Mode.TRANSACTIONS:
            undone = self.source.random() < 0.2
            for one in () if undone else link.waiting:
                self.route(link, one)
            link.waiting = []
            self.row(link, Kind.ROLLED_BACK if undone else Kind.COMMITTED)
            return
        count = self.source.randint(1, len(link.waiting))
        taken, link.waiting = link.waiting[:count], link.waiting[count:]
        refused = self.source.random() < 0.1
        for one in () if refused else taken:
            self.route(link, one)
        kind = Kind.NACKED if refused else Kind.CONFIRMED
        if count > 1 and self.source.random() < 0.7:
            means_all = not link.waiting and self.source.random() < 0.3
            self.row(link, kind, tag=0 if means_all else taken[-1].tag, multiple=True)
        else:
            for one in self.source.sample(taken, count):
                self.row(link, kind, tag=one.tag)

    def deliver(self, link: Link, *, seen: bool = True) -> None:
        """Send a message of a queue that it consumes; ``seen``: whether it comes to the tap."""
        there = [name for name in link.consumes if self.queues[name]]
        if not there:
            return
        queue = self.source.choice(there)
        held = self.queues[queue].pop(0)
        link.sent_tag += 1
        if not link.automatic:
            link.sent[link.sent_tag] = queue, held
        body = held.body
        if self.source.random() < 0.004:
            self.planted.add("broken")
            body = 1
        if seen:
            mode = Mode.AUTOMATIC if link.automatic else Mode.PLAIN
            kind = Kind.GOT if link.polls else Kind.DELIVERED
            fields = {"tag": link.sent_tag, "flag": held.marked, "place": queue, "mode": mode}
            self.row(link, kind, identity=held.identity, body=body, **fields)
        held.marked = True
        if link.automatic:
            self.commit(link.process, held.identity)

    def settle(self, link: Link) -> None:
        if not link.sent:
            return
        tag, multiple = self.source.choice(list(link.sent)), self.source.random() < 0.3
        kind, requeue = self.source.choice([(Kind.ACKED, False)] * 4 + [(Kind.REJECTED, True), (Kind.REJECTED, False)])
        self.row(link, kind, tag=tag, multiple=multiple, flag=requeue)
        for one in sorted((one for one in link.sent if one == tag or (multiple and one < tag)), reverse=True):
            queue, held = link.sent.pop(one)
            if kind is Kind.ACKED:
                self.commit(link.process, held.identity)
            if requeue or self.source.random() < 0.02:  # or the acknowledgement gets lost
                self.queues[queue].insert(0, held)

    def commit(self, process: str, identity: int) -> None:
        """Let a process say that it committed a message: before it acknowledges it, later, without a moment, or not."""
        source = self.source
        if self.commits and source.random() >= self.commits:
            self.planted.add("not committed")
        elif self.commits:
            late_s = source.choice([-0.5, -0.01, 0.0, 0.001, 0.001, 0.01, 0.5])
            at_s = None if source.random() < 0.1 else self.at_s + late_s
            by = process if source.random() < 0.9 else source.choice(PROCESSES)
            self.work.append((by, identity if source.random() < 0.99 else -1, at_s))

    def delete(self) -> None:
        """Let the application delete, purge or unbind a queue."""
        queue, what = self.source.choice(["q1", "q2"]), self.source.choice(["deleted", "purged", "unbound"])
        self.planted.add(what)
        fields = {"exchange": "all", "routing_key": ""} if what == "unbound" else {}
        self.say(next(iter(self.links.values())).connection, f"queue_{what}", channel=1, queue=queue, **fields)
        if what != "unbound":
            self.queues[queue].clear()

    def lose(self, link: Link) -> None:
        """End a connection; what was sent and not acknowledged goes back."""
        if self.source.random() < 0.3:
            self.deliver(link, seen=False)
        for one in link.waiting:
            if link.mode is Mode.CONFIRMS and self.source.random() < 0.5:
                self.route(link, one._replace(mandatory=False))
        for queue, held in reversed(list(link.sent.values())):
            self.queues[queue].insert(0, held)
        what = self.source.choice(["lost", "connection_closed", "channel_closed"])
        if what == "channel_closed":
            self.say(link.connection, what, channel=1, session=0, by="client", code=200, text="", method="")
        elif what == "connection_closed":
            self.say(link.connection, what, by="broker", code=320, text="forced", method="")
        else:
            self.say(link.connection, what, by="broker")
        self.at_s += 0.001
        self.say(link.connection, "closed")
        del self.links[link.process]

    def end(self, process: str) -> None:
        """End a process, by itself or by a step, and start it again."""
        if (link := self.links.get(process)) is not None:
            self.lose(link)
        self.at_s += 0.01
        life = self.lives[process]
        self.own.append((self.at_s, process, self.source.choice(["killed", "killed", "ended"]), life))
        self.lives[process] += 1
        self.at_s += 0.5
        self.own.append((self.at_s, process, "started", life + 1))


def reached_by(route: tuple[str, str]) -> list[str]:
    """Return the queues that a route leads to."""
    exchange, key = route
    if exchange == "":
        return [key] if key in {"q1", "q2", "q3"} else []
    return [queue for name, bound, queue in BOUND if name == exchange and (name == "all" or bound == key)]


def generated(source: random.Random) -> Case:
    """Draw a case."""
    played = Played(source)
    busy = source.choice([0.15, 0.4, 1.0, 1.0, 4.0])
    deletes_s = source.uniform(2, 95) if source.random() < 0.2 else 200.0
    leaves_s = source.uniform(15, 60) if source.random() < 0.3 else 200.0
    while played.at_s < ENDED_S - 2:
        played.at_s = round(played.at_s + source.uniform(0.01, 1.0) / busy, 3)
        if played.at_s > deletes_s and played.links:
            deletes_s = 200.0
            played.delete()
        process = source.choice(PROCESSES)
        link = played.links.get(process)
        if link is not None:
            source.choice(acts_of(played, link))(link)
        elif source.random() < 0.8 and (played.at_s < leaves_s or process != PROCESSES[0]):
            played.connect(process)
        if process == PROCESSES[0] and process in played.links and played.at_s > leaves_s:
            played.planted.add("never back")
            played.lose(played.links[process])
    drain(played)
    planted = "+".join(sorted(played.planted)) or "nothing"
    unread = source.choice([0, 0, 0, 1, 3])
    recorded = tuple(played.rows), tuple(played.wire), tuple(played.own), tuple(played.work)
    up_s = source.choice([FAULT_S, FAULT_S, 35.0, HEALED_S, HEALED_S + 0.2, 47.3, 55.0, 69.9, 75.0, ENDED_S + 10])
    again_s = source.choice([up_s, up_s, up_s, 45.0, 60.0, 88.0])
    away = (FAULT_S, up_s), (again_s, max(again_s, source.choice([up_s, 50.0, 62.0, 89.9, ENDED_S])))
    unseen_s = source.choice([200.0, 200.0, 200.0, 38.0, 50.0, 80.0])
    unseen = unseen_s, unseen_s + source.choice([5.5, 6.5, 20.0, 60.0])
    return Case(*recorded, unread, source.random() < 0.3, away, unseen, planted)


def acts_of(played: Played, link: Link) -> Sequence[Callable[[Link], None]]:
    """Return what may happen next to a link, as often as it is likely."""
    if played.source.random() < 0.02:
        return [played.lose, lambda link: played.end(link.process)]
    if link.process == PROCESSES[0] and played.source.random() < 0.7:
        return [played.publish, played.confirm]
    return [played.publish] * 5 + [played.confirm] * 4 + [played.deliver] * 8 + [played.settle] * 7


def drain(played: Played) -> None:
    """Deliver most of what is left, and end all processes."""
    source = played.source
    for link in list(played.links.values()):
        for _ in range(60 if source.random() < 0.9 else 5):
            played.at_s = round(played.at_s + 0.002, 3)
            source.choice([played.confirm, played.deliver, played.deliver, played.settle])(link)
    played.at_s = max(played.at_s, ENDED_S + 0.1)
    for link in list(played.links.values()):
        played.at_s = round(played.at_s + 0.01, 3)
        played.say(link.connection, "closed")
    for process in PROCESSES:
        how = source.choice(["stopped", "stopped", "hung"])
        played.own.append((played.at_s + 0.1, process, how, played.lives[process]))
