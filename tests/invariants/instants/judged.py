"""What the reference says of a case: each broken promise in a word, of every instant."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property, lru_cache

from tests.invariants.instants.case import RESTARTS_WITHIN, Case, Nodes
from tests.invariants.instants.reference import Reference, World

#: A run that lasts until the last look ends just after it.
JUST_AFTER = 0.001

Pair = frozenset[str]


class Judged(Reference):
    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.going = lru_cache(maxsize=None)(self._going)

    @property
    def seen(self) -> range:
        """The ticks in which pauses are judged."""
        return range(self.end + 1)

    def looks(self, begin: float, end: float) -> Iterator[tuple[int, dict[str, str]]]:
        return ((t, dict(self.case.looks[t])) for t in sorted(self.case.looks) if begin <= t <= end)

    # The partition handling.

    def mode_is_broken(self) -> bool:
        return (
            any(map(self.serves_in_a_minority, self.nodes))
            or any(map(self.pauses_without_need, self.nodes))
            or self.nobody_of_a_pair_pauses()
            or any(map(self.written_in_vain, self.case.messages))
            or self.restarts_are_wrong()
        )

    def serves_in_a_minority(self, node: str) -> bool:
        must = [self.must_pause(node, t) for t in self.seen]
        if any(must[t] and states[node] == "up" for t, states in self.looks(0, self.end)):
            return True
        return any(
            not any(states[node] == "paused" for t, states in self.looks(begin - self.within, end) if t < end)
            for begin, end in self.runs(must)
        )

    def pauses_without_need(self, node: str) -> bool:
        if not any(states[node] == "paused" for _, states in self.looks(0, self.end)):
            return False
        runs_may = list(self.runs([self.may_pause(node, t) for t in self.seen]))
        for at, states in self.looks(0, self.end):
            if states[node] != "paused":
                continue
            runs = [(b, e) for b, e in runs_may if b <= at]
            if not any(e > at or not self.was_up(node, e, at) for _, e in runs):
                return True
        return False

    def was_up(self, node: str, begin: int, before: int) -> bool:
        return any(states[node] == "up" for t, states in self.looks(begin, before) if t < before)

    def knows(self, node: str, tick: int) -> bool:
        state = self.state_at(node, tick)
        return state == "up" or (state == "paused" and tick > 0 and self.lonely(node, tick - 1))

    def nobody_of_a_pair_pauses(self) -> bool:
        if self.case.mode != "pause_minority":
            return False
        for one, other in itertools.combinations(self.nodes, 2):
            for third in self.nodes:
                if third in (one, other):
                    continue
                holds = [self.partial(one, other, third, t) for t in self.seen]
                for begin, end in self.runs(holds):
                    pair = frozenset((one, other))
                    if any(pair in act.cut and act.surely(begin - 1) for act in self.case.acts):
                        continue  # they were cut before, when the third may not have seen both
                    if end - begin <= self.within or not (self.knows(one, begin) and self.knows(other, begin)):
                        continue
                    states = [s for _, s in self.looks(begin, begin + self.within)]
                    if not any("paused" in (s[one], s[other]) for s in states):
                        return True
        return False

    def partial(self, one: str, other: str, third: str, tick: int) -> bool:
        pair = frozenset((one, other))
        cut = any(pair in act.cut and act.surely(tick) for act in self.case.acts)
        seen = not any(
            (frozenset((one, third)) in act.cut or frozenset((other, third)) in act.cut) and act.possibly(tick)
            for act in self.case.acts
        )
        there = not any(self.possibly_away(node, tick) for node in (one, other, third))
        return cut and seen and there and not self.lonely(one, tick) and not self.lonely(other, tick)

    # What follows from a split.

    def _going(self, world: World) -> set[Nodes]:
        groups = {world.group(node) for node in world.up}
        return {g for g in groups if world.is_whole(g) and (g <= world.still or not self.pause_of(g))}

    def apart(self, one: str, other: str, tick: int) -> bool:
        for world in self.worlds(tick):
            mine = [g for g in self.going(world) if one in g]
            its = [g for g in self.going(world) if other in g]
            if not mine or not its or mine == its:
                return False
        return True

    @cached_property
    def parted(self) -> list[tuple[Pair, float, float]]:
        found: list[tuple[Pair, float, float]] = []
        for one, other in itertools.combinations(self.nodes, 2):
            for begin, end in self.runs([self.apart(one, other, t) for t in self.seen]):
                until = min(end, self.end + JUST_AFTER)
                if begin + self.within < until:
                    found.append((frozenset((one, other)), begin + self.within, until))
        return found

    def restarts_are_wrong(self) -> bool:
        if not self.restarts:
            return False
        calm = [
            (begin, end)
            for begin, end in self.runs([not self.broken(t) for t in self.seen])
            if min(end, self.end + JUST_AFTER) - begin >= RESTARTS_WITHIN
        ]
        whole = [begin for begin, _ in calm]
        for healed in whole:
            pairs = [
                (pair, begin, end)
                for pair, begin, end in self.parted
                if min((w for w in whole if w >= end), default=None) == healed
                and all(self.state_at(node, int(begin - self.within)) == "up" for node in pair)
                and not any(
                    self.possibly_away(node, t)
                    for node in pair
                    for t in range(int(begin), min(healed + RESTARTS_WITHIN, self.case.ticks))
                )
            ]
            since = max((end for _, end in calm if end <= min([b for _, b, _ in pairs], default=0)), default=0)
            if pairs and not self.restarted_well(pairs, healed, since):
                return True
        return False

    def restarted_well(self, pairs: list[tuple[Pair, float, float]], healed: int, since: int) -> bool:
        """``since`` then nobody was parted before. Nodes that are not told here, if any, may have won."""
        nodes = frozenset().union(*(pair for pair, _, _ in pairs))
        first = min(begin for _, begin, _ in pairs)
        away = {
            n for _, s in self.looks(first, healed + RESTARTS_WITHIN) for n, state in s.items() if state != "up"
        } & nodes
        parted = {pair for pair, _, _ in pairs}
        with_whom = {n: frozenset(m for m in nodes if frozenset((n, m)) not in parted) for n in nodes}
        are_sides = all(with_whom[m] == with_whom[n] for n in nodes for m in with_whom[n])
        others = any(
            act.cut
            and act.injecting < healed
            and act.healed > since
            and (act.intermittent or act.injecting > first - self.within or act.healing < pairs[0][2])
            for act in self.as_apart
        )
        if len({(begin, end) for _, begin, end in pairs}) > 1 or not are_sides or others:
            return all(pair & away for pair in parted)
        sides = set(with_whom.values())
        kept = [side for side in sides if not side & away]
        return len(kept) in ({1} if nodes == set(self.nodes) else {0, 1}) and all(
            side <= away for side in sides - set(kept)
        )
