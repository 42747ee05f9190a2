"""What the reference permits to be lost, to be overtaken or to differ after a split, by looking at every instant."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from functools import lru_cache

from tests.invariants.instants.case import Case, Message, Nodes
from tests.invariants.instants.judged import Judged
from tests.invariants.instants.reference import World

#: So long no node may go away by itself after a split that is over: 30 s.
STAYS_TICKS = 60

#: The first tick, that after the last, and that after all that may follow.
Episode = tuple[int, int, float]
#: The nodes of which one was trusted, and the tick after all that went away meanwhile.
Trusted = tuple[str, float]
#: Through which node, when, and the nodes that know it.
Declared = tuple[str, int, Nodes]


def again_at(spans: list[tuple[int, float]], start: int, tick: int) -> bool:
    """Whether a node went away at that tick that had gone since ``start`` and was back."""
    before = [up for at, up in spans if start <= at < tick]
    return any(at == tick for at, _ in spans) and bool(before) and max(before) < tick


class Lost(Judged):
    def __init__(self, case: Case) -> None:
        super().__init__(case)
        self.absences = lru_cache(maxsize=None)(self._absences)
        self.sides = lru_cache(maxsize=None)(self._sides)

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

    def taken(self, node: str, surely: bool = False) -> list[tuple[int, float]]:
        """Return when steps took it away, or may have, and it was up again."""
        acts = [act for act in self.as_apart if node in act.down and not (surely and act.serves)]
        return [(act.injecting, self.first_up(node, act.healed)) for act in acts]

    def _absences(self, node: str, begin: int, end: float, surely: bool = False) -> list[tuple[int, float]]:
        """Return when it went away in that time, by a step or by itself for more than one look, and was up again."""
        found = [(at, up) for at, up in self.taken(node, surely) if begin <= at < end]
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
            # One that was back and goes again begins another round.
            again = {
                t
                for spans in gone.values()
                for t in range(start, int(min(stop, len(away))))
                if again_at(spans, start, t)
            }
            for first, last in itertools.pairwise([start, *sorted(again), stop]):
                stayed = {n for n in had & members if not any(at < last and first < up for at, up in gone[n])}
                yield sorted(stayed or had & members), last

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

    def was_ended(self, members: Nodes, episode: Episode, surely: bool = False) -> bool:
        """Return whether all nodes of a side went away, or may have, and came back after it; where some saw others that
        did not see each other, all nodes."""
        begin, healed, end = episode
        ticks = range(begin, healed)
        gone = {n: self.absences(n, begin, end, surely) for n in self.nodes}
        away = {n: max((at for at, up in gone[n] if up >= healed), default=-1) for n in self.nodes}
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
            ended = [
                {
                    frozenset(d for d in bad if not d[2] and self.may_be_gone(*d[:2], everybody, episode, (s, stop)))
                    for s in survivors
                }
                for survivors, stop in self.rounds(everybody, episode)
            ]
            if self.restarts or self.was_ended(everybody, episode, surely=True):
                ways += ended
                continue
            differ = frozenset(d for d in bad if self.may_differ(*d, episode))
            if self.was_ended(everybody, episode):
                ways.append({differ} | {frozenset().union(*way) for way in itertools.product(*ended)})
            else:
                ways.append({differ})
        return all(bad - frozenset().union(*way) for way in itertools.product(*ways))

    def may_differ(self, node: str, tick: int, known: Nodes, episode: Episode) -> bool:
        """Whether nodes may differ on what was declared through ``node`` then, in a split that nobody ended: all that
        went on with it, and never went away, have it. Who was parted before stays parted."""
        everybody = frozenset(self.nodes)
        sides: set[Nodes] = set()
        for begin, healed, end in self.episodes(everybody):
            if begin <= episode[0] and not self.was_ended(everybody, (begin, healed, end), surely=True):
                sides |= {
                    s for t in range(begin, healed) for w in self.worlds_apart(t) for s in self.sides(w, everybody)
                }
        parts = {
            frozenset.intersection(*some)
            for size in range(1, len(self.nodes) + 1)
            for some in itertools.combinations([side for side in sides if node in side], size)
        }
        stayed = frozenset(n for n in self.nodes if not self.absences(n, episode[0], episode[2]))
        return episode[0] <= tick and any(part & stayed <= known for part in parts)
