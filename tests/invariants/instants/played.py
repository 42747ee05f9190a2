"""A cluster that keeps its promises, played tick by tick beside overlapping steps.

It is free where the documentation leaves it free: when within the bounds a node notices that a peer is silent, how soon
it acts, which of two that see a third pauses, which side of a split wins.
"""

from __future__ import annotations

import itertools
import random
from collections.abc import Iterable
from dataclasses import dataclass, field

from tests.invariants.instants.case import Act, Nodes, short

#: Ticks from a loss to a pause, as ``margin_s`` of 1 s has it.
NOTICED = (6, 10)
ACTED = (0, 2)


@dataclass
class Thing:
    """A message or a declared item, and the nodes that have it."""

    node: str
    sent: int
    confirmed: int
    of_queue: bool
    holders: set[str]


@dataclass
class Node:
    state: str = "up"
    #: Of each peer that is out of reach: since when, and the ticks until that is noticed.
    out: dict[str, tuple[int, int]] = field(default_factory=dict)
    lost: set[str] = field(default_factory=set)
    acts_at: int | None = None
    waits_for_all: bool = False
    #: The state before it was suspended.
    was: str = ""
    #: Whether it starts anew, as after a kill, and knows of nobody.
    fresh: bool = False
    up_at: int = 0


@dataclass
class Cluster:
    """Plays ``acts`` on nodes; ``actual`` are the ticks in which each really acts."""

    nodes: tuple[str, ...]
    mode: str
    members: Nodes
    kind: str
    preferred: Nodes
    acts: tuple[Act, ...]
    actual: tuple[frozenset[int], ...]
    suspends: tuple[bool, ...]
    rng: random.Random

    def __post_init__(self) -> None:
        self.now = 0
        self.of = {name: Node() for name in self.nodes}
        self.parted: set[Nodes] = set()
        self.things: list[Thing] = []
        self.looks: dict[int, dict[str, str]] = {}
        self.heals_at: int | None = None
        #: Whether a node came back into a split. What is known on its side then is not foreseen, and nothing is lost.
        self.joined_late = False
        #: Who has the queue. A member that starts anew has it again once it reaches one of these; of mirrors that are
        #: fewer than nodes, anybody takes the place of one that is gone.
        self.serving = set(self.members)
        moves = self.kind == "mirrored" and len(self.members) > 1
        self.homes = frozenset(self.nodes) if moves else self.members

    # What is so.

    def cut(self, one: str, other: str) -> list[Act]:
        pair = frozenset((one, other))
        return [a for a, on in zip(self.acts, self.actual, strict=True) if pair in a.cut and self.now in on]

    def taken(self, name: str) -> str:
        """What a step does to a node now: "down", "suspended" or nothing."""
        done = [
            "suspended" if suspends else "down"
            for act, on, suspends in zip(self.acts, self.actual, self.suspends, strict=True)
            if name in act.down and self.now in on
        ]
        return "down" if "down" in done else "suspended" if done else ""

    def alive(self, name: str) -> bool:
        return self.of[name].state not in ("down", "suspended")

    def talks(self, one: str, other: str) -> bool:
        return self.alive(one) and self.alive(other) and not self.cut(one, other)

    def short(self, name: str, lost: Iterable[str]) -> bool:
        return short(name, frozenset(lost), nodes=self.nodes, mode=self.mode, preferred=self.preferred)

    # What happens.

    def play(self, ticks: int) -> None:
        for self.now in range(ticks):
            for name in self.nodes:
                self.take(name)
            for name in self.nodes:
                self.notice(name)
            for name in self.nodes:
                self.part(name)
            for name in self.nodes:
                self.act(name)
            if self.mode in ("autoheal", "pause_if_all_down"):
                self.heal()
            joining = sorted(self.homes - self.serving)
            for name in self.rng.sample(joining, len(joining)):
                self.joins(name)
            self.use()
            self.looks[self.now] = {n: "paused" if s.state == "booting" else s.state for n, s in self.of.items()}

    def take(self, name: str) -> None:
        node, taken = self.of[name], self.taken(name)
        if taken == "down" and node.state != "down":
            self.goes(name)
            self.of[name] = Node("down")
        elif taken == "suspended" and self.alive(name):
            node.was, node.state = node.state, "suspended"
        elif not taken and node.state == "down":
            self.of[name] = Node("booting", up_at=self.now + self.rng.randint(2, 8), fresh=True)
        elif not taken and node.state == "suspended":
            node.state = node.was
            node.out = {}
            self.wakes(name)

    def wakes(self, name: str) -> None:
        """A node that was suspended comes back as it was, and finds the connections closed of who took it for dead."""
        node = self.of[name]
        without = [o for o in self.nodes if name in self.of[o].lost and self.of[o].state == "up"]
        without = [o for o in without if self.of[o].acts_at is None]
        if without and self.preferred and node.state == "up" and self.short(name, {*node.lost, *without}):
            node.acts_at = self.now + self.rng.randint(*ACTED)
        else:
            self.parted |= {frozenset((name, other)) for other in without}

    def notice(self, name: str) -> None:
        node = self.of[name]
        if not self.alive(name):
            return
        for peer in (p for p in self.nodes if p != name):
            if self.talks(name, peer):
                if self.splits and peer in node.lost and self.serves(name) and self.serves(peer):
                    self.parted.add(frozenset((name, peer)))  # each went on without the other
                node.out.pop(peer, None)
                node.lost.discard(peer)
                continue
            sudden = any(a.sudden for a in self.cut(name, peer)) or self.of[peer].state == "down"
            # With pause_if_all_down a side that is about to pause is none, so all notice at the same time.
            after = 0 if sudden else 8 if self.preferred else self.rng.randint(*NOTICED)
            since, when = node.out.setdefault(peer, (self.now, after))
            if sudden:
                when = 0
                node.out[peer] = since, 0
            if self.now - since >= when and peer not in node.lost:
                node.lost.add(peer)
                self.learns(name, peer)
                if self.preferred and self.alive(peer) and name not in self.of[peer].lost:
                    self.of[peer].lost.add(name)  # it woke up just now, and would notice later
                    self.learns(peer, name)

    def learns(self, name: str, peer: str) -> None:
        """What a node does when it takes a peer for dead. One that starts does nothing."""
        node = self.of[name]
        if node.state not in ("up", "paused"):
            return
        if node.state == "up" and self.short(name, node.lost):
            node.acts_at = min(node.acts_at or self.now + 99, self.now + self.rng.randint(*ACTED))
        if self.mode == "pause_minority" and self.is_seen(name, peer) and node.state == "up":
            partner_pauses = self.of[peer].acts_at is not None or self.of[peer].state == "paused"
            if not partner_pauses or self.rng.random() < 0.2:
                node.acts_at = min(node.acts_at or self.now + 99, self.now + self.rng.randint(*ACTED))
                node.waits_for_all = self.rng.random() < 0.5

    def part(self, name: str) -> None:
        """Whoever goes on without another that goes on too is parted from it, until one of them restarts."""
        if self.of[name].state != "up":
            return
        for peer in self.of[name].lost:
            serve = not any(self.short(n, {p for p in self.nodes if self.cut(n, p)}) for n in (name, peer))
            if self.cut(name, peer) and self.of[peer].state == "up" and serve:
                self.parted.add(frozenset((name, peer)))

    def is_seen(self, name: str, peer: str) -> bool:
        return bool(self.cut(name, peer)) and any(
            self.talks(name, third) and self.talks(peer, third) for third in self.nodes if third not in (name, peer)
        )

    def act(self, name: str) -> None:
        node = self.of[name]
        if node.state == "up" and node.acts_at is not None and self.now >= node.acts_at:
            node.acts_at = None
            self.goes(name)
            node.state, node.up_at = "paused", self.now + 1
        elif node.state == "paused" and self.now >= node.up_at:
            reached = not node.lost if node.waits_for_all else not self.short(name, node.lost)
            if reached:
                node.waits_for_all = False
                node.state, node.up_at = "booting", self.now + self.rng.randint(2, 6)
        elif node.state == "booting" and self.now >= node.up_at:
            if self.short(name, node.lost):
                node.state = "paused"
            elif all(self.talks(name, other) for other in self.awaited(name)):
                node.state, node.fresh = "up", False
                self.returns(name)

    def awaited(self, name: str) -> list[str]:
        """Whom a node that starts waits for: those that went on without it; all, where it does not know who did."""
        others = [n for n in self.nodes if n != name]
        up = [n for n in others if self.of[n].state == "up"]
        return up or (others if self.splits or self.of[name].fresh else [])

    def heal(self) -> None:
        """All sides but one restart once everybody sees everybody."""
        whole = all(self.of[n].state == "up" and not self.of[n].lost for n in self.nodes) and not any(
            self.cut(a, b) for a, b in itertools.combinations(self.nodes, 2)
        )
        if not whole or not self.parted:
            self.heals_at = None
            return
        self.heals_at = self.heals_at or self.now + self.rng.randint(1, 8)
        if self.now < self.heals_at:
            return
        concerned = sorted(frozenset().union(*self.parted))
        kept: list[str] = []
        for name in self.rng.sample(concerned, len(concerned)):
            if not any(frozenset((name, other)) in self.parted for other in kept):
                kept.append(name)
        for name in (n for n in concerned if n not in kept):
            self.goes(name, restart=True)
            self.of[name] = Node("booting", up_at=self.now + self.rng.randint(3, 8), fresh=True)
        self.heals_at = None

    def goes(self, name: str, *, restart: bool = False) -> None:
        """What ``name`` alone had is gone if others go on without it; what it shared is not."""
        for thing in self.things:
            if not self.splits or (thing.of_queue and self.kind == "quorum"):
                continue  # it has it on disk, and nobody went on without it
            having = self.serving if thing.of_queue else frozenset(self.nodes)
            others = [n for n in having if n != name and self.goes_on(n)]
            split = any(name in pair for pair in self.parted)
            if name in thing.holders and others and (len(thing.holders) > 1 or (split and (restart or self.splits))):
                thing.holders.discard(name)
        if any(self.goes_on(n) for n in self.serving - {name}):
            self.serving.discard(name)
        self.parted = {pair for pair in self.parted if name not in pair}

    def silent(self, name: str) -> set[str]:
        return {other for other in self.nodes if other != name and not self.talks(name, other)}

    def serves(self, name: str) -> bool:
        return self.of[name].state == "up" and self.of[name].acts_at is None

    def goes_on(self, name: str) -> bool:
        """Now, or when it is no longer suspended."""
        node = self.of[name]
        return node.state == "up" or (node.state == "suspended" and node.was == "up")

    @property
    def splits(self) -> bool:
        return self.mode != "pause_minority"

    def returns(self, name: str) -> None:
        """It takes over what those have that it reaches; of those that are parted, one side."""
        others = [n for n in self.nodes if n != name and self.talks(name, n) and self.of[n].state == "up"]
        joined = self.rng.choice(others) if others else name
        self.joined_late |= any(joined in pair for pair in self.parted)
        self.parted |= {frozenset((name, n)) for pair in self.parted if joined in pair for n in pair - {joined}}
        for thing in self.things:
            having = self.homes & self.serving if thing.of_queue else frozenset(self.nodes)
            mine = {n for n in thing.holders if self.talks(name, n) and frozenset((name, n)) not in self.parted}
            if name in having and mine:
                thing.holders.add(name)

    def joins(self, name: str) -> None:
        """A mirror that started anew is empty until it is one of those that have the queue, if another is wanted."""
        there = {n for n in self.serving if self.of[n].state == "up" and self.talks(name, n)}
        there = {n for n in there if frozenset((name, n)) not in self.parted}
        if self.of[name].state != "up" or not any(self.mirrors_of(n) < len(self.members) for n in there):
            return
        self.serving.add(name)
        for thing in self.things:
            if thing.of_queue and thing.holders & there:
                thing.holders.add(name)

    def mirrors_of(self, name: str) -> int:
        """How many have the queue, as ``name`` sees it, which does."""
        others = (n for n in self.serving if n != name and self.talks(name, n) and self.of[n].state == "up")
        return 1 + sum(frozenset((name, n)) not in self.parted for n in others)

    def without(self, name: str) -> set[str]:
        """Of whom ``name`` takes it that they are not on its side."""
        return self.of[name].lost | {n for pair in self.parted if name in pair for n in pair if n != name}

    def use(self) -> None:
        """A message and an item now and then, where they would be taken."""
        for of_queue in (True, False):
            if self.rng.random() > 0.25:
                continue
            name = self.rng.choice(self.nodes)
            holders = self.takers(name, self.homes if of_queue else frozenset(self.nodes), of_queue)
            if holders:
                self.things.append(Thing(name, self.now, self.now, of_queue, holders))

    def takers(self, name: str, having: Nodes, of_queue: bool) -> set[str]:
        """Who takes a message or an item through ``name``; nobody where it would not be confirmed."""
        node = self.of[name]
        if not self.serves(name) or self.short(name, node.lost) or self.short(name, self.silent(name)):
            return set()  # one that is about to notice that it must pause takes nothing either
        if any(self.of[n].state == "suspended" for n in self.nodes) and not (of_queue and self.kind == "quorum"):
            return set()  # what is not there for a while and comes back as it was is in no documentation
        if of_queue and self.kind == "mirrored":
            having &= self.serving
        here = {n for n in having if self.of[n].state == "up"}
        mine = {n for n in here if n == name or (n not in node.lost and frozenset((n, name)) not in self.parted)}
        if of_queue and self.kind == "quorum":
            reached = {n for n in mine if n == name or self.talks(n, name)}
            inner = all(self.talks(a, b) for a, b in itertools.combinations(sorted(reached), 2))
            return reached if inner and len(reached) > len(having) // 2 else set()
        back = {n for n in here & node.lost if self.talks(n, name) and frozenset((n, name)) not in self.parted}
        waits = bool(back) or any(n != name and not self.talks(n, name) for n in mine)
        if waits or len({frozenset(self.without(n)) for n in {*mine, name}}) > 1:
            return set()  # who sees others that do not see each other is on no side yet
        if not self.splits and (mine != having or any(self.of[n].lost for n in self.nodes)):
            return set()  # nothing is taken in a minority that is about to pause
        return mine
