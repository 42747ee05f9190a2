"""What the reference says of a case: each broken promise in a word, of every instant."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import cached_property, lru_cache

from tests.invariants.instants.case import RESTARTS_WITHIN, Case, Message, Nodes
from tests.invariants.instants.reference import Reference, World

#: A run that lasts until the last look ends just after it.
JUST_AFTER = 0.001

#: So long nobody may go away by itself after a split that is over: 30 s.
STAYS_TICKS = 60

Pair = frozenset[str]
#: The first tick, that after the last, and that after all that may follow.
Episode = tuple[int, int, float]
#: Of whom one was trusted, and the tick after all that went away meanwhile.
Trusted = tuple[str, float]
#: Through which node, when, and who knows it.
Declared = tuple[str, int, Nodes]


class Judged(Reference):
    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.absences = lru_cache(maxsize=None)(self._absences)
        self.going = lru_cache(maxsize=None)(self._going)
        self.sides = lru_cache(maxsize=None)(self._sides)

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
        return {g for g in groups if world.is_whole(g) and not any(self.short(n, frozenset(self.nodes) - g) for n in g)}

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

    # What may be lost.

    def _sides(self, world: World, members: Nodes) -> set[Nodes]:
        """Who may go on alone with something of a queue, or of all things, that others have too."""
        if not self.splits(world):
            return set()
        found = set(self.going(world))
        holders = members & world.up
        for node in holders:
            if not world.is_whole(world.group(node)):  # others that have nothing may take things for it
                found |= {frozenset({node}), *(frozenset({node, n}) for n in world.group(node) - members)}
        return {side for side in found if side & holders and holders - side}

    def episodes(self, members: Nodes) -> Iterator[Episode]:
        """From when nodes may be apart, until when, and until what follows is over."""
        apart = [any(self.sides(w, members) for w in self.worlds_apart(t)) for t in range(self.case.ticks)]
        for begin, end in self.runs(apart):
            if any(self._sudden[begin:end]) or end - begin >= 6:
                latest = self.mended(end) if self.restarts else float("inf")
                yield begin, end, min(latest, self.seen_over(members, begin, end, latest))

    def seen_over(self, members: Nodes, begin: int, healed: int, latest: float) -> float:
        """The first look at which all nodes were up, after all sides but one had gone away since the healing and come
        back, if nobody went away by itself in the half minute after that."""
        worlds = [w for t in range(begin, healed) for w in self.worlds_apart(t)]
        sides = [side & members for side in {side for w in worlds for side in self.sides(w, members)}]
        in_part = any(not w.is_whole(w.group(node)) for w in worlds for node in w.up)
        if in_part or len(sides) < 2 or any(one & other for one, other in itertools.combinations(sides, 2)):
            return float("inf")
        for tick, states in self.looks(healed, self.case.ticks):
            back = [
                side
                for side in sides
                if all(any(healed <= at and up <= tick for at, up in self.absences(n, begin, latest)) for n in side)
            ]
            if len(back) < len(sides) - 1 or any(state != "up" for state in states.values()):
                continue
            again = any(
                now[node] != "up" and not any(at <= t <= up for at, up in self.taken_by_steps(node))
                for t, now in self.looks(tick, tick + STAYS_TICKS)
                for node in self.nodes
            )
            return float("inf") if again else tick
        return float("inf")

    def taken_by_steps(self, node: str) -> list[tuple[int, float]]:
        return [(act.injecting, self.first_up(node, act.healed)) for act in self.case.acts if node in act.down]

    def taken(self, node: str) -> list[tuple[int, float]]:
        """When steps took it away, and it was up again."""
        return [(act.injecting, self.first_up(node, act.healed)) for act in self.as_apart if node in act.down]

    def _absences(self, node: str, begin: int, end: float) -> list[tuple[int, float]]:
        """When it went away in that time, by a step or by itself for more than one look, and was up again."""
        found = [(at, up) for at, up in self.taken(node) if begin <= at < end]
        looks = list(self.looks(begin, end))
        keeps = [True]
        for _, states in looks:
            keeps.append(states[node] == "up" or (states[node] == "suspended" and keeps[-1]))
        for (at, _), before, now, then in zip(looks, keeps, keeps[1:], keeps[2:], strict=False):
            if before and not now and not then:
                found.append((at, self.first_up(node, at)))
        return found

    def went_away(self, node: str, begin: int, end: float, until: float = float("inf")) -> float:
        """When ``node`` did for the last time before ``until``; -1 if it did not."""
        return max((at for at, _ in self.absences(node, begin, end) if at < until), default=-1)

    def rounds(self, members: Nodes, episode: Episode) -> Iterator[tuple[list[str], float]]:
        """Of each time in which somebody was away: of whom one was trusted, and when it was over."""
        begin, healed, end = episode
        had = {n for t in range(begin, healed) for w in self.worlds_apart(t) for s in self.sides(w, members) for n in s}
        gone = {n: self.absences(n, begin, end) for n in self.nodes}
        away = [any(at <= t < up for spans in gone.values() for at, up in spans) for t in range(self.case.ticks)]
        for start, stop in self.runs(away):
            stayed = {n for n in had & members if not any(start <= at < stop for at, _ in gone[n])}
            yield sorted(stayed or had & members), stop

    def came_back(self, node: str, episode: Episode) -> float:
        """When ``node`` was first up again after it was away, within the split."""
        begin, _, end = episode
        backs = [up for _, up in [*self.taken(node), *self.absences(node, begin, end)]]
        return min((up for up in backs if begin <= up < end), default=float("inf"))

    def may_be_gone(self, node: str, tick: int, members: Nodes, episode: Episode, trusted: Trusted) -> bool:
        """Whether what ``node`` took at that tick may be gone, if that one was trusted."""
        (survivor, stop), (begin, healed, end) = trusted, episode
        away = {n: self.went_away(n, begin, end, stop) for n in self.nodes}
        possible = [{s for w in self.worlds_apart(t) for s in self.sides(w, members)} for t in range(self.case.ticks)]
        joined = False
        for side in {s for now in possible for s in now}:
            had = side & members
            for start, _ in self.runs([side in now for now in possible]):
                if survivor in had or not begin <= start < healed or not all(away[n] >= start for n in had):
                    continue
                joined = True
                until = min(end, max(away[n] for n in {node} & had or had))
                if node in side and start <= tick < until:
                    return True
        gone = max(away[n] for n in {node} & members or members - {survivor})
        return joined and node != survivor and self.came_back(node, episode) <= tick < gone

    def was_ended(self, members: Nodes, episode: Episode) -> bool:
        """Whether all nodes of a side went away and came back after it; where some saw others that did not see each
        other, all nodes."""
        begin, healed, end = episode
        ticks = range(begin, healed)
        away = {n: max((at for at, up in self.absences(n, begin, end) if up >= healed), default=-1) for n in self.nodes}
        now = {t: {s for w in self.worlds_apart(t) for s in self.sides(w, members)} for t in ticks}
        parted = max(t for t in ticks for side in now[t] if t == begin or side not in now[t - 1])
        sides = {side for found in now.values() for side in found}
        if any(not w.is_whole(w.group(n)) for t in ticks for w in self.worlds_apart(t) for n in w.up):
            sides = {frozenset().union(*sides)}
        return any(all(away[n] >= parted for n in side) for side in sides)

    def lost_without_permit(self) -> int:
        lost = [m for m in self.case.messages if m.lost]
        if self.case.mode == "pause_minority" or self.case.kind != "mirrored" or not lost:
            return len(lost)
        episodes = [(episode, members) for members in self.case.placements for episode in self.placed(members)]
        in_question = [any(b <= t < e for (b, _, e), _ in episodes) for t in range(self.case.ticks)]
        ways = []
        for first, last in self.runs(in_question):
            mine = [(e, members) for e, members in episodes if first <= e[0] < last]
            ways.append([way for members in self.case.placements for way in self.gone_with(members, mine, lost)])
        return len(lost) - max(len(frozenset().union(*way)) for way in itertools.product(*ways))

    def placed(self, members: Nodes) -> Iterator[Episode]:
        """The episodes of a queue whose copies those nodes had, if they could."""
        for episode in self.episodes(members):
            if members == self.case.members or episode[1] > self.moved:
                yield episode

    def gone_with(
        self, members: Nodes, episodes: list[tuple[Episode, Nodes]], lost: list[Message]
    ) -> Iterator[frozenset[int]]:
        """What may be gone, whoever is trusted, if those have the copies."""
        rounds = [
            [
                frozenset(
                    m.sequence for m in lost if self.may_be_gone(m.node, m.confirmed, members, episode, (s, stop))
                )
                for s in survivors
            ]
            for episode, its in episodes
            if its == members
            for survivors, stop in self.rounds(members, episode)
        ]
        for way in itertools.product(*rounds):
            yield frozenset().union(*way)

    def overtaken_without_permit(self) -> int:
        by_sequence = {m.sequence: m for m in self.case.messages}
        wrong, highest = 0, -1
        for sequence in self.case.received:
            if sequence < highest and not self.of_two_sides(by_sequence[sequence], by_sequence[highest]):
                wrong += 1
            highest = max(highest, sequence)
        return wrong

    def of_two_sides(self, one: Message, other: Message) -> bool:
        if self.case.mode == "pause_minority" or self.case.kind != "mirrored":
            return False
        first, at = sorted((one.confirmed, other.confirmed))
        return any(
            one.node in side and other.node not in side
            for members in self.case.placements
            for begin, healed, end in self.placed(members)
            if begin <= first and at < end
            for t in range(begin, min(at + 1, healed))
            for world in self.worlds_apart(t)
            for side in self.sides(world, members)
        )

    def metadata_is_broken(self) -> bool:
        everybody = frozenset(self.nodes)
        bad = {(node, tick, known) for node, tick, known in self.case.declared if known != everybody}
        if self.case.mode == "pause_minority":
            return bool(bad)
        ways: list[set[frozenset[Declared]]] = []
        for episode in self.episodes(everybody):
            if not self.restarts and not self.was_ended(everybody, episode):
                ways.append({frozenset((n, t, k) for n, t, k in bad if episode[0] <= t)})
                continue
            ways += [
                {
                    frozenset(d for d in bad if not d[2] and self.may_be_gone(*d[:2], everybody, episode, (s, stop)))
                    for s in survivors
                }
                for survivors, stop in self.rounds(everybody, episode)
            ]
        return all(bad - frozenset().union(*way) for way in itertools.product(*ways))
