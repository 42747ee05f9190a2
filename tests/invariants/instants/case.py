"""What a generated history is made of. Time goes in ticks of half a second."""

from __future__ import annotations

import itertools
from collections.abc import Mapping
from dataclasses import dataclass, replace

TICKS_PER_S = 2
NET_TICKTIME_S = 4
NOTICED_AT_LEAST = 6  # three quarters of net_ticktime, in ticks
NOTICED_AT_MOST = 10  # five quarters
RESTARTS_WITHIN = 60  # ticks

Nodes = frozenset[str]


@dataclass(frozen=True)
class Act:
    """A step: the ticks at which it is being injected, is injected, is being healed, is healed."""

    injecting: int
    injected: int
    healing: int
    healed: int
    down: Nodes = frozenset()
    cut: frozenset[Nodes] = frozenset()
    sudden: bool = False
    intermittent: bool = False
    #: Links that let messages through so many ticks later, from one node to another.
    slow: frozenset[tuple[str, str]] = frozenset()
    slow_ticks: int = 0
    #: Nodes without enough CPU or memory.
    starved: Nodes = frozenset()
    #: The nodes that are down may serve all the same, for a while or all the time.
    serves: bool = False

    def surely(self, tick: int) -> bool:
        return self.injected <= tick < self.healing and not self.intermittent

    def possibly(self, tick: int) -> bool:
        return self.injecting <= tick < self.healed


@dataclass(frozen=True)
class Message:
    """``lost``: confirmed and never received. ``node`` is where its publisher was connected."""

    sequence: int
    node: str
    sent: int
    confirmed: int
    lost: bool = False


@dataclass(frozen=True)
class Case:
    """``looks``: of each tick at which somebody looked, what each node did. ``members``: of the one queue."""

    nodes: tuple[str, ...]
    mode: str
    kind: str
    members: Nodes
    ticks: int
    acts: tuple[Act, ...]
    looks: Mapping[int, Mapping[str, str]]
    messages: tuple[Message, ...] = ()
    #: The sequences in the order in which they were received.
    received: tuple[int, ...] = ()
    preferred: Nodes = frozenset()
    #: Of each item that was declared: through which node, when, and which nodes know it in the end.
    declared: tuple[tuple[str, int, Nodes], ...] = ()

    @property
    def moves(self) -> bool:
        """Mirrors that are several, and fewer than nodes, move."""
        return self.kind == "mirrored" and 1 < len(self.members) < len(self.nodes)

    @property
    def placements(self) -> list[Nodes]:
        """Who may have a copy of the queue at a time."""
        sizes = range(2, len(self.nodes) + 1)
        some = [frozenset(c) for n in sizes for c in itertools.combinations(self.nodes, n)]
        return some if self.moves else [self.members]


def as_cut(act: Act, nodes: tuple[str, ...]) -> Act:
    """What brokers may make of it: who is too late both ways together, or is starved, may be taken for dead at times.
    A starved one may be ended by the kernel, too, which closes its connections."""
    late = {frozenset((a, b)): sum({a, b} == {*way} for way in act.slow) * act.slow_ticks for a, b in act.slow}
    cut = {pair for pair, ticks in late.items() if ticks >= NOTICED_AT_LEAST}
    cut |= {frozenset((a, b)) for a in act.starved for b in nodes if a != b}
    return replace(act, cut=act.cut | cut, sudden=act.sudden or bool(act.starved), intermittent=True) if cut else act


def short(node: str, lost: Nodes, *, nodes: tuple[str, ...], mode: str, preferred: Nodes) -> bool:
    """Whether a node that has lost those peers must not serve (RabbitMQ, "Clustering and Network Partitions")."""
    if mode == "pause_minority":
        return 2 * (len(nodes) - len(lost)) <= len(nodes)
    return mode == "pause_if_all_down" and node not in preferred and preferred <= lost
