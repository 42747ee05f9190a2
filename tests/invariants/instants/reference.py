"""The slow and simple reference of the oracle: it looks at every instant, and asks everything anew at each.

Time goes in ticks of half a second. Whatever happens, happens at the beginning of one, and so does each look at the
nodes; messages are sent and confirmed in the middle of one. Written from the documentation of RabbitMQ and Erlang that
``checkers.oracle`` and ``checkers.pauses`` name, and from nothing of their code.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache

from tests.invariants.instants.case import (
    NOTICED_AT_LEAST,
    NOTICED_AT_MOST,
    RESTARTS_WITHIN,
    TICKS_PER_S,
    Act,
    Case,
    Message,
    Nodes,
    as_cut,
    short,
)


@dataclass(frozen=True)
class World:
    """``still``: the nodes that may be suspended, and are taken as cut off."""

    up: Nodes
    cut: frozenset[Nodes]
    still: Nodes = frozenset()

    def talk(self, one: str, other: str) -> bool:
        return one in self.up and other in self.up and frozenset((one, other)) not in self.cut

    @cached_property
    def groups(self) -> Mapping[str, Nodes]:
        """Of each running node all that it reaches, if need be by way of others."""
        found = {}
        for node in self.up:
            group = {node}
            while more := {n for n in self.up - group if any(self.talk(n, m) for m in group)}:
                group |= more
            found[node] = frozenset(group)
        return found

    def group(self, node: str) -> Nodes:
        return self.groups.get(node, frozenset())

    @cached_property
    def in_part(self) -> frozenset[Nodes]:
        """The groups in which not everybody talks with everybody."""
        groups = frozenset(self.groups.values())
        return frozenset(g for g in groups if not all(self.talk(a, b) for a, b in itertools.combinations(sorted(g), 2)))

    def is_whole(self, group: Nodes) -> bool:
        return group not in self.in_part


#: One object for each, so that what it works out is worked out once.
the_world = lru_cache(maxsize=10_000)(World)


class Reference:
    def __init__(self, case: Case) -> None:
        self.case = replace(case, acts=tuple(as_cut(act, case.nodes) for act in case.acts))
        self.nodes = case.nodes
        self.pauses = case.mode in ("pause_minority", "pause_if_all_down")
        self.restarts = case.mode in ("autoheal", "pause_if_all_down")  # that one is with recover: autoheal here
        self.within = NOTICED_AT_MOST + TICKS_PER_S * (3 + 7 * max(0, len(case.nodes) - 2))
        last = max(case.looks)
        self.end = last  # of the time in which pauses were seen: the look itself is the last instant
        self.lost_surely = lru_cache(maxsize=None)(self._lost_surely)
        self.worlds = lru_cache(maxsize=None)(self._worlds)
        self.worlds_apart = lru_cache(maxsize=None)(self._worlds_apart)
        self.acted = lru_cache(maxsize=None)(self._acted)
        self.may_pause = lru_cache(maxsize=None)(self._may_pause)
        self.first_up = lru_cache(maxsize=None)(self._first_up)
        self.splits = lru_cache(maxsize=None)(self._splits)

    # What was so.

    def absent(self, act: Act, node: str, tick: int) -> bool:
        """Possibly: until it was seen up after healing."""
        return node in act.down and act.injecting <= tick < self.first_up(node, act.healed)

    def _first_up(self, node: str, tick: int) -> float:
        return min((t for t, s in self.case.looks.items() if t >= tick and s[node] == "up"), default=float("inf"))

    @cached_property
    def _absent(self) -> dict[str, list[bool]]:
        return {
            node: [any(self.absent(act, node, t) for act in self.case.acts) for t in range(self.case.ticks + 1)]
            for node in self.nodes
        }

    def possibly_away(self, node: str, tick: int) -> bool:
        return self._absent[node][tick]

    def surely_away(self, node: str, tick: int) -> bool:
        return any(self.surely_absent(act, node, tick) for act in self.case.acts)

    def surely_absent(self, act: Act, node: str, tick: int) -> bool:
        """Return whether the act surely took ``node`` away then. One that may serve all the same is surely away between
        two looks that saw it down, with none up before."""
        if node not in act.down or not act.surely(tick):
            return False
        if not act.serves:
            return True
        seen = [(t, s[node]) for t, s in sorted(self.case.looks.items()) if act.injected <= t <= act.healing]
        first = next((t for t, state in seen if state == "down"), self.case.ticks)
        until = next((t for t, state in seen if t > first and state != "down"), self.case.ticks)
        return first <= tick and any(tick < t < until for t, _ in seen)

    def _lost_surely(self, node: str, peer: str, tick: int) -> bool:
        cut = any(frozenset((node, peer)) in act.cut and act.surely(tick) for act in self.case.acts)
        return cut or self.surely_away(peer, tick)

    def _worlds(self, tick: int) -> frozenset[World]:
        return self.worlds_of(self.case.acts, tick)

    def _worlds_apart(self, tick: int) -> frozenset[World]:
        still = frozenset(
            node
            for act in self.case.acts
            for node in act.down
            if act.injecting <= tick < act.healed and self.stood_still(act, node)
        )
        return frozenset(the_world(w.up, w.cut, still) for w in self.worlds_of(self.as_apart, tick))

    @cached_property
    def as_apart(self) -> tuple[Act, ...]:
        """Nodes that were only suspended come back as they were, as if they had been cut off together."""
        found = []
        for act in self.case.acts:
            still = frozenset(node for node in act.down if self.stood_still(act, node))
            pairs = [frozenset(pair) for pair in itertools.combinations(self.nodes, 2)]
            cut = act.cut | {pair for pair in pairs if len(pair & still) == 1}
            found.append(replace(act, down=act.down - still, cut=cut))
        return tuple(found)

    def stood_still(self, act: Act, node: str) -> bool:
        if act.serves:
            return False
        until = self.first_up(node, act.healed)
        seen = {t: s[node] for t, s in self.case.looks.items() if act.injecting <= t <= until}
        return "suspended" in seen.values() and not any(s == "down" for t, s in seen.items() if t < act.healing)

    def worlds_of(self, acts: tuple[Act, ...], tick: int) -> frozenset[World]:
        """Each step that may act or not does both; nodes that may be away are all there, or none is."""
        known = [act.cut for act in acts if act.surely(tick)]
        open_ = [act.cut for act in acts if act.possibly(tick) and not act.surely(tick)]
        ups = [
            frozenset(n for n in self.nodes if not any(self.surely_absent(act, n, tick) for act in acts)),
            frozenset(n for n in self.nodes if not any(self.absent(act, n, tick) for act in acts)),
        ]
        found = set()
        for chosen in itertools.product((False, True), repeat=len(open_)):
            cut = frozenset().union(*known, *(c for c, on in zip(open_, chosen, strict=True) if on))
            found |= {the_world(up, cut) for up in ups}
        return frozenset(found)

    def state_at(self, node: str, tick: int) -> str:
        before = [t for t in self.case.looks if t <= tick]
        return self.case.looks[max(before)][node] if before else "up"

    # Who must pause.

    def short(self, node: str, lost: Nodes) -> bool:
        case = self.case
        return short(node, lost, nodes=case.nodes, mode=case.mode, preferred=case.preferred)

    def lonely(self, node: str, tick: int) -> bool:
        return self.short(node, frozenset(p for p in self.nodes if p != node and self.lost_surely(node, p, tick)))

    def _acted(self, node: str, peer: str, tick: int) -> bool:
        """Whether ``node`` has noticed that ``peer`` is lost, had the time to act, and was there all the while."""
        begin = tick
        while begin > 0 and self.lost_surely(node, peer, begin - 1) and not self.possibly_away(node, begin - 1):
            begin -= 1
        if not self.lost_surely(node, peer, tick) or self.possibly_away(node, tick) or tick - begin < self.within:
            return False
        if begin > 0 and self.lost_surely(node, peer, begin - 1):
            return self.was_suspended(node, begin)
        state = self.state_at(node, begin)
        return state == "up" or (state == "paused" and begin > 0 and self.lonely(node, begin - 1))

    def was_suspended(self, node: str, until: int) -> bool:
        """Whether in the absence that ended then the node was seen to be suspended, and nothing else but up."""
        for act in self.case.acts:
            if node in act.down and self.absent(act, node, until - 1) and not self.absent(act, node, until):
                seen = {s[node] for t, s in self.case.looks.items() if act.injecting <= t <= until}
                return "suspended" in seen and seen <= {"suspended", "up"}
        return False

    def must_pause(self, node: str, tick: int) -> bool:
        if not self.pauses:
            return False
        return self.short(node, frozenset(p for p in self.nodes if p != node and self.acted(node, p, tick)))

    # Who may.

    def runs(self, holds: Sequence[bool]) -> Iterator[tuple[int, int]]:
        """The longest runs of ticks in which it holds, with the tick after the last."""
        begin = None
        for tick, now in enumerate([*holds, False]):
            if now and begin is None:
                begin = tick
            elif not now and begin is not None:
                yield begin, tick
                begin = None

    @cached_property
    def _sudden(self) -> list[bool]:
        return [any(a.cut and a.sudden and a.possibly(t) for a in self.case.acts) for t in range(self.case.ticks)]

    def noticed(self, holds: Sequence[bool], sudden: Sequence[bool]) -> Iterator[tuple[int, int]]:
        for begin, end in self.runs(holds):
            if any(sudden[begin:end]):
                yield begin, end
            elif end - begin >= NOTICED_AT_LEAST:
                yield begin + NOTICED_AT_LEAST, end

    @cached_property
    def _maybe_lost(self) -> dict[tuple[str, str], list[tuple[int, int]]]:
        """When a node may take a peer for dead: periods of ticks."""
        found = {}
        ticks = range(self.case.ticks)
        for node, peer in itertools.permutations(self.nodes, 2):
            cuts = [act for act in self.case.acts if frozenset((node, peer)) in act.cut]
            sudden = [any(a.sudden and a.possibly(t) for a in cuts) or self.possibly_away(peer, t) for t in ticks]
            silent = [any(not a.sudden and a.possibly(t) for a in cuts) for t in ticks]
            never = [False] * len(ticks)
            spans = [*self.runs(sudden), *self.noticed(silent, never)]
            found[node, peer] = [(begin, end + self.within) for begin, end in spans]
        return found

    @cached_property
    def _maybe_doubtful(self) -> dict[str, list[tuple[int, int]]]:
        """When a node may see others that do not see each other, or be one of them."""

        def doubtful(node: str, tick: int) -> bool:
            for world in self.worlds(tick):
                group = world.group(node)
                if group and not world.is_whole(group):
                    return True
            return False

        ticks = range(self.case.ticks)
        away = [any(self.possibly_away(node, t) for node in self.nodes) for t in ticks]
        lost = [away[t] or any(act.cut and act.possibly(t) for act in self.case.acts) for t in ticks]
        noticed = list(self.noticed(lost, [away[t] or self._sudden[t] for t in ticks]))
        seen = {node: list(self.runs([doubtful(node, t) for t in ticks])) for node in self.nodes}
        return {
            node: [
                (max(b, known), min(e, end) + self.within)
                for b, e in seen[node]
                for known, end in noticed
                if max(b, known) <= min(e, end)
            ]
            for node in self.nodes
        }

    def _splits(self, world: World) -> bool:
        """Whether more than one group of nodes goes on, or nobody knows how many."""
        if self.case.mode == "pause_minority":
            return False
        groups = {world.group(node) for node in world.up}
        if any(not world.is_whole(group) for group in groups):
            return True
        going = [g for g in groups if g <= world.still or not self.pause_of(g)]
        return len(going) > 1

    def pause_of(self, group: Nodes) -> bool:
        """Whether a node of a group that sees no others must pause."""
        return any(self.short(node, frozenset(self.nodes) - group) for node in group)

    @cached_property
    def _maybe_restarting(self) -> list[tuple[int, float]]:
        if not self.restarts:
            return []
        split = [any(world.cut for world in self.worlds_apart(t)) for t in range(self.case.ticks)]
        found = []
        for begin, end in self.noticed(split, self._sudden):
            ends = [
                act.injected if act.intermittent else act.healing
                for act in self.as_apart
                if act.cut and begin < act.healed <= end
            ]
            found.append((max(begin, min(ends, default=begin)), self.mended(end)))
        return found

    @cached_property
    def moved(self) -> float:
        """From which tick on copies may have moved."""
        if not self.case.moves:
            return float("inf")
        pairs = [frozenset(pair) for pair in itertools.combinations(sorted(self.case.members), 2)]
        ticks = [
            t
            for t in range(self.case.ticks)
            if any(self.possibly_away(n, t) for n in self.case.members)
            or any(pair in act.cut and act.possibly(t) for pair in pairs for act in self.case.acts)
            or any(self.case.looks.get(t, {}).get(n, "up") != "up" for n in self.case.members)
        ]
        return min(ticks, default=float("inf"))

    def broken(self, tick: int) -> bool:
        return any(act.cut and act.possibly(tick) for act in self.case.acts) or any(
            self.absent(act, node, tick) for act in self.case.acts for node in act.down
        )

    def mended(self, healed: int) -> float:
        """The tick after the first ticks since then in which all was whole for as long as it takes to mend a split."""
        good = 0
        for tick in range(healed, self.case.ticks + RESTARTS_WITHIN):
            good = 0 if self.broken(tick) else good + 1
            if good == RESTARTS_WITHIN:
                return tick + 1
        return float("inf")

    def _may_pause(self, node: str, tick: int) -> bool:
        if any(b <= tick < e for b, e in self._maybe_restarting):
            return True
        if any(self._absent[node][max(0, tick - self.within) : tick + 1]):
            return True
        if not self.pauses:
            return False
        peers = [peer for peer in self.nodes if peer != node]
        lost = frozenset(p for p in peers if any(b <= tick < e for b, e in self._maybe_lost[node, p]))
        return self.short(node, lost) or any(b <= tick < e for b, e in self._maybe_doubtful[node])

    def written_in_vain(self, message: Message) -> bool:
        ticks = range(message.sent, message.confirmed + 1)
        reached = frozenset().union(*(world.group(message.node) for t in ticks for world in self.worlds(t)))
        needed = len(self.case.members) // 2 + 1 if self.case.kind == "quorum" else 1
        moved = message.confirmed >= self.moved
        having = frozenset(self.nodes) if self.case.moves and moved else self.case.members
        paused = all(self.must_pause(message.node, t) for t in ticks)
        return paused or len(reached & having) < needed
