"""Decide which steps may be combined, so that each can be proven while the others are at work.

Loading a fault file and drawing random schedules use the same model. Loading refuses the steps that proofs surely
cannot distinguish. If that depends on a moment or on chance, the proofs decide it during the run. Drawing takes only
steps that can surely be proven.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.footprint import Footprint
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.nemesis.targets import is_fixed

#: The first and the last second.
Interval = tuple[float, float]


@dataclass(frozen=True)
class FaultConflict:
    """The reason why a step cannot be proven: its number, its field, and the text."""

    step: int
    field: str
    text: str


@dataclass(frozen=True)
class Combination:
    """The valid steps of one schedule. ``numbers`` are their numbers in the whole schedule."""

    steps: Sequence[ScheduledFault]
    topology: Topology
    numbers: Sequence[int]

    def troubles(self) -> Iterator[FaultConflict]:
        """Yield what is surely wrong with a step, alone or with another."""
        for i, j in itertools.combinations(range(len(self.steps)), 2):
            yield from self._troubles_of(i, j)
        for i in range(len(self.steps)):
            yield from self._unseen(i)

    def _troubles_of(self, i: int, j: int) -> Iterator[FaultConflict]:
        one, other, number = self._footprints[i], self._footprints[j], self.numbers[i]
        apart = self._never_together(i, j)
        for k, m in ((i, j), (j, i)):
            if unseen := self._footprints[m].files & self._footprints[k].node_options.disks.keys():
                given = f"step {self.numbers[k]} gives {min(unseen)} a disk of its own"
                yield self._at(
                    j, f"{given}, whose files step {self.numbers[m]} cannot reach; let them act on different nodes"
                )
        if text := _packet_collision(one, other, apart=apart) or _packet_collision(other, one, apart=apart):
            yield self._at(j, f"step {number} {text}")
        if apart:
            return
        timed = self.steps[i].at_s is not None and self.steps[j].at_s is not None
        when = "at that time already" if timed else "too, and may do so at the same time"
        taken = one.processes & other.processes
        if timed and taken:  # a step with a condition checks itself whether its node is there
            yield self._at(j, f"step {number} has taken {_listed(taken)} away at that time already")
        if shared := one.resources & other.resources:
            yield self._at(j, f"step {number} acts on {_listed(shared)} {when}; let one begin after the other")

    def _unseen(self, i: int) -> Iterator[FaultConflict]:
        """Yield a conflict if other steps or the network surely keep a timed step on fixed links from being seen."""
        step = self.steps[i]
        if step.at_s is None:
            return
        others = [j for j, other in enumerate(self.steps) if j != i and other.at_s is not None]
        for link in sorted(self._footprints[i].sure_links):
            near = [j for j in others if overlap(step, self.steps[j]) and self._shares(j, link)]
            always = self.topology.delay_of(link)
            slow_s = sum(self._footprints[j].slow_s for j in near) + (always.round_trip_s if always else 0)
            silent = [spell(self.steps[j]) for j in near if not self._footprints[j].slows_links]
            alone_s = longest_free_s(spell(step), silent)
            if not near and always and not step.can_be_seen(alone_s=alone_s, slow_s=slow_s):
                why = f"which the network of the topology makes {slow_s:g} s slow"
                yield self._at(i, f"{step.fault} cannot be proven on {link}, {why}; let it last longer")
                return
            if near and not step.can_be_seen(alone_s=alone_s, slow_s=slow_s):
                first, last = sorted((i, max(near)))
                text = f"step {self.numbers[first]} and this one act on {link} at the same time, and {step.fault}"
                why = f"it has {alone_s:g} s there without others" + (f", and is {slow_s:g} s slow" if slow_s else "")
                yield self._at(
                    last, f"{text} cannot be proven then ({why}); let one begin after the other, or last longer"
                )
                return

    def _shares(self, j: int, link: Link) -> bool:
        """Return whether the step surely keeps probes over the link from being answered, or answered soon."""
        return bool({link, link.back} & self._footprints[j].sure_links)

    @cached_property
    def _footprints(self) -> list[Footprint]:
        return [step.footprint(self.topology) for step in self.steps]

    def _never_together(self, i: int, j: int) -> bool:
        one, other = self.steps[i], self.steps[j]
        if one.at_s is not None and other.at_s is not None:
            return not overlap(one, other)
        return self.numbers[i] in self._awaited[j]

    @cached_property
    def _awaited(self) -> list[set[int]]:
        """Return, for each step, the numbers of the steps that must be healed before it begins."""
        awaited: dict[int, set[int]] = {}
        for number, step in zip(self.numbers, self.steps, strict=True):
            earlier = step.when.after_step.step if step.when is not None and step.when.after_step is not None else None
            awaited[number] = set() if earlier is None else {earlier, *awaited.get(earlier, ())}
        return [awaited[number] for number in self.numbers]

    def _at(self, j: int, text: str) -> FaultConflict:
        return FaultConflict(self.numbers[j], "at_s" if self.steps[j].at_s is not None else "when", text)


def overlap(one: ScheduledFault, other: ScheduledFault) -> bool:
    """Return whether two steps of known times overlap."""
    (begins_s, ends_s), (other_begins_s, other_ends_s) = spell(one), spell(other)
    return begins_s < other_ends_s and other_begins_s < ends_s


def spell(step: ScheduledFault) -> Interval:
    assert step.at_s is not None, "of a step of known time"
    return step.at_s, step.at_s + step.for_s


def longest_free_s(within: Interval, taken: Sequence[Interval]) -> float:
    """Return the length of the longest stretch of ``within`` that none of ``taken`` touches."""
    longest_s, free_from_s = 0.0, within[0]
    for begins_s, ends_s in sorted(taken):
        longest_s = max(longest_s, min(begins_s, within[1]) - free_from_s)
        free_from_s = max(free_from_s, ends_s)
    return max(longest_s, within[1] - free_from_s)


def _packet_collision(one: Footprint, other: Footprint, *, apart: bool) -> str | None:
    """Return why what ``one`` does to packets does not go with the other; None if it does. ``apart`` means that they
    are never at work at the same time."""
    if both := one.packets & other.proxied:
        text = f"and this one cannot both act on {min(both)}: a proxy, which one of them needs there"
        return f"{text}, would answer the packets of the other"
    taken = {node for link in one.packets for node in link.nodes} & other.processes
    if taken and not apart:
        return f"and this one do not go together: with {min(taken)} goes what is done to its packets"
    if one.packets_by == other.packets_by and (shared := one.kernels & other.kernels) and not apart:
        return f"acts on packets of {min(shared)} by {one.packets_by} at that time too, or may"
    return None


def _listed(things: frozenset[str]) -> str:
    names = sorted(things)
    return ", ".join(names[:3]) + (f" and {len(names) - 3} more" if len(names) > 3 else "")


#: The time that a busy machine may add to a step.
SLACK_S = 1.5
#: How long a started broker takes to answer its peers, and an unsettled cluster to serve clients everywhere again.
ANSWERS_AGAIN_S, SERVES_AGAIN_S = 12.0, 20.0
#: How long a broker must have been up before it can do something by itself.
CALM_S = 15.0
#: How long queues may take to have leaders again and report them.
LED_AGAIN_S = 8.0


def surely_provable(steps: Sequence[ScheduledFault], topology: Topology) -> bool:
    """Return whether each of the steps, all of known times, can surely be proven while the others are at work, for
    any moment and any chance that decide the steps' targets."""
    footprints = [step.footprint(topology) for step in steps]
    each = (_Concurrent(i, steps, footprints, topology) for i in range(len(steps)))
    return all(one.is_provable for one in each) and not any(Combination(steps, topology, range(len(steps))).troubles())


@dataclass(frozen=True)
class _Concurrent:
    """One of the steps, seen together with all others."""

    number: int
    steps: Sequence[ScheduledFault]
    footprints: Sequence[Footprint]
    topology: Topology

    @property
    def step(self) -> ScheduledFault:
        return self.steps[self.number]

    @property
    def footprint(self) -> Footprint:
        return self.footprints[self.number]

    @cached_property
    def others(self) -> Sequence[tuple[ScheduledFault, Footprint]]:
        pairs = enumerate(zip(self.steps, self.footprints, strict=True))
        return [pair for i, pair in pairs if i != self.number]

    @property
    def is_provable(self) -> bool:
        return self._has_what_it_claims and self._is_calm and self._is_led and self._is_seen_on_links

    @property
    def _has_what_it_claims(self) -> bool:
        """Return whether no other step claims the same things, even if one of them takes longer than it should."""
        mine = _claims(self.footprint)
        at_that_time = (claims for other, claims in self.others if _overlaps(_around(self.step), _around(other)))
        return not any(mine & _claims(claims) for claims in at_that_time)

    @property
    def _is_calm(self) -> bool:
        """Return whether the broker that must do something has long been up, and stays up until it is done."""
        if not self.step.needs_calm:
            return True
        begins_s, ends_s = _around(self.step)
        calm = (begins_s - CALM_S, ends_s + SLACK_S)
        return not self._is_unsettled(calm)

    @property
    def _is_led(self) -> bool:
        """Return whether the targeted queue has a known leader at once, so that the step begins in time."""
        if not any(":" in target for target in self.footprint.targets if not is_fixed(target)):
            return True
        begins_s, _ = spell(self.step)
        return not self._is_unsettled((begins_s - LED_AGAIN_S, begins_s))

    def _is_unsettled(self, within: Interval) -> bool:
        return any(of.unsettles and _overlaps(within, _around(other)) for other, of in self.others)

    @property
    def _is_seen_on_links(self) -> bool:
        """Return whether the step can be seen on every link despite other steps, and on some link despite absent
        brokers."""
        links = self.footprint.links
        return not links or (
            all(map(self._seen_despite_steps_on, links)) and any(map(self._seen_despite_absences_on, links))
        )

    def _seen_despite_steps_on(self, link: Link) -> bool:
        return self._is_seen(link, ())

    def _seen_despite_absences_on(self, link: Link) -> bool:
        return self._is_seen(link, self._unserved if link.client is not None else self._away(link.answering))

    def _is_seen(self, link: Link, away: Sequence[Interval]) -> bool:
        near = self._near(link)
        away = [interval for interval in away if _overlaps(interval, spell(self.step))]
        if not near and not away:
            return True
        begins_s, ends_s = spell(self.step)
        silent = [_around(other) for other, of in near if not of.slows_links]
        alone_s = longest_free_s((begins_s, ends_s), [*silent, *away])
        slack_s = SLACK_S if alone_s < ends_s - begins_s else 0
        return self.step.can_be_seen(alone_s=alone_s - slack_s, slow_s=sum(of.slow_s for _, of in near))

    def _near(self, link: Link) -> list[tuple[ScheduledFault, Footprint]]:
        """Return the other steps at that time that keep probes over the link from being answered, or answered soon."""
        mine = _around(self.step)
        there = [(other, of) for other, of in self.others if link in of.proxied]
        return [(other, of) for other, of in there if _overlaps(mine, _longer(_around(other), of.slow_s))]

    def _away(self, node: str) -> list[Interval]:
        taking = [other for other, of in self.others if node in of.possible_processes]
        return [_longer(_around(other), ANSWERS_AGAIN_S) for other in taking]

    @cached_property
    def _unserved(self) -> list[Interval]:
        """Return the times at which perhaps no node serves: a majority may be missing, or two such steps overlap."""
        unsettling = [(other, of) for other, of in self.others if of.unsettles]
        spells = [_longer(_around(other), SERVES_AGAIN_S) for other, _ in unsettling]
        alone = [spells[i] for i, (_, of) in enumerate(unsettling) if not of.leaves_majority(self.topology)]
        both = [(max(a[0], b[0]), min(a[1], b[1])) for a, b in itertools.combinations(spells, 2) if _overlaps(a, b)]
        return alone + both


def _claims(footprint: Footprint) -> frozenset[str]:
    return footprint.resources | footprint.possible_processes


def _around(step: ScheduledFault) -> Interval:
    begins_s, ends_s = spell(step)
    return begins_s - SLACK_S / 3, ends_s + step.begins_within_s + step.heals_within_s + SLACK_S


def _longer(interval: Interval, by_s: float) -> Interval:
    return interval[0], interval[1] + by_s


def _overlaps(one: Interval, other: Interval) -> bool:
    return one[0] < other[1] and other[0] < one[1]
