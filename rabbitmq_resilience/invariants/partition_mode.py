"""The partition handling does what its mode promises, and does it in time.

The nodes that must pause do, the others do not, and none comes back before the cut is healed. After a split that the
mode let happen, ``autoheal`` restarts all sides but one. No queue is confirmed on a side that cannot write to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.invariants.confirms import confirmed_in_vain, confirmed_on_both_sides
from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.gaps import UNSEEN_S_MAX, gaps, lasting_s
from rabbitmq_resilience.invariants.lateness import Late, seen_late
from rabbitmq_resilience.invariants.pauses import RESTARTED_WITHIN_S, Pauses, pauses_of
from rabbitmq_resilience.invariants.restarts import Restarts
from rabbitmq_resilience.invariants.steps import NEVER_US
from rabbitmq_resilience.invariants.times import Period, periods
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.invariants.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    InvariantSpec,
    Number,
    Verdict,
)


class PartitionMode(InvariantSpec):
    """``margin_s``: what a node may need beyond 1.25 times ``net_ticktime``, by default as long as it may wait for each
    of its peers: 10 s on three nodes, 7 s more for each further one, and 7 s more from RabbitMQ 4.0 on.

    A node may pause, and need not, where its messages are later than ticks are waited for (0.75 times
    ``net_ticktime``, one way or both ways together), and where it is starved of CPU or memory. Where nobody looked at
    the nodes for 10 s since the first fault began, it is UNKNOWN. So is what came too late, and not twice as late,
    where a node waited for a processor of this machine for so long that it would have been in time without that, or
    while other programs take much of this machine."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun"})

    margin_s: Annotated[float, Field(ge=0)] | None = None

    def check(self, history: History) -> Finding:
        facts = history.facts
        span = facts.phases.get("steady", NEVER_US), facts.phases.get("end", facts.phases.get("drain", NEVER_US))
        seen = [(t, states) for t, states in facts.node_states if span[0] <= t < span[1]]
        if facts.cluster is None or not seen:
            return Finding(Verdict.UNKNOWN, "the events do not tell the cluster and the states of its nodes")
        pauses = pauses_of(facts, facts.cluster, (span[0], seen[-1][0] + 1), self.margin_s)
        observed = [_observe(facts, spell, pauses.within_us) for spell in _spells(pauses)]
        restarts = Restarts.of(pauses)
        late = [*(pause.late for pause in observed if pause.late), *_idle_pairs(pauses), *restarts.late]
        late += _unexpected_pauses(facts, pauses, seen)
        excused = [f"{one.told}; {one.excuse}" for one in late if one.excuse]
        wrong = [one.told for one in late if not one.excuse]
        wrong += [problem for pause in observed for problem in pause.problems]
        wrong += confirmed_in_vain(history, pauses)
        both = confirmed_on_both_sides(history, restarts.parted)
        had_to = list(dict.fromkeys(pause.node for pause in observed))
        numbers: dict[str, Number] = {"restarted": " ".join(restarts.restarted), "queues_confirmed_on_both_sides": both}
        end_us = min(span[1], facts.events[-1].t_us)
        nodes = set(facts.cluster.nodes)
        blind = gaps([t for t, states in seen if nodes <= states.keys()], (span[0], end_us), longer_than_s=UNSEEN_S_MAX)
        coverage = Coverage(round(seconds(end_us - span[0]) - lasting_s(blind), 3), seconds(end_us - span[0]))
        summary, numbers = _summary(had_to, wrong or excused), _numbers(had_to, observed) | numbers
        unseen = "" if wrong else _unseen(facts, blind)
        if unseen:
            return Finding(Verdict.UNKNOWN, f"{unseen}; as far as was seen, {summary}", numbers, (), coverage)
        verdict = Verdict.INVALID if wrong else Verdict.UNKNOWN if excused else Verdict.VALID
        return Finding(verdict, summary, numbers, tuple(wrong[:EXAMPLES_MAX]), coverage)


def _unseen(facts: Facts, blind: Sequence[Period]) -> str:
    """When nobody looked at the nodes since the first fault began; empty if somebody did."""
    begun_us = min((step.possible_us[0] for step in facts.steps if step.is_fault), default=NEVER_US)
    told = (f"nobody looked at the nodes from {facts.at(a)} to {facts.at(b)}" for a, b in blind if b > begun_us)
    return next(told, "")


@dataclass(frozen=True)
class Spell:
    """A time in which ``node`` must stand paused from ``paused_us`` on, as it reached too few from ``start_us`` on."""

    node: str
    start_us: float
    paused_us: float
    end_us: float


def _spells(pauses: Pauses) -> list[Spell]:
    """In order; without those in which nobody looked at the node."""
    found = [
        Spell(node, start - pauses.within_us, start, end)
        for node, must in pauses.must.items()
        for start, end in periods(must)
        if any(node in states for _, states in pauses.facts.sightings(start, end - 1))
    ]
    return sorted(found, key=lambda spell: (spell.start_us, spell.node))


def _idle_pairs(pauses: Pauses) -> Iterator[Late]:
    """Pairs of which at least one node had to pause, and none did in time."""
    facts = pauses.facts
    for pair, (start_us, end_us) in pauses.idle_pairs:
        until_us = start_us + pauses.within_us
        looks = [(t, any(s.get(node) == "paused" for node in pair)) for t, s in facts.sightings(start_us, end_us)]
        if not any(paused for t, paused in looks if t <= until_us):
            names, faults = " nor ".join(sorted(pair)), facts.beside(start_us, until_us)
            told = f"neither {names} paused, though they were cut apart and others still saw both, {faults}"
            yield Late(told, seen_late(facts, pair, start_us, looks, allowed_s=seconds(pauses.within_us)))


@dataclass(frozen=True)
class _Pause:
    node: str
    problems: tuple[str, ...] = ()
    paused_after_s: float | None = None
    returned_after_s: float | None = None
    late: Late | None = None


def _observe(facts: Facts, spell: Spell, within_us: float) -> _Pause:
    """How the spell of a node that must pause went."""
    sightings = facts.sightings(spell.start_us, spell.end_us)
    states = [(t, s[spell.node]) for t, s in sightings if t < spell.end_us and spell.node in s]
    paused_us = next((t for t, state in states if state == "paused"), None)
    up_us = next((t for t, state in states if state == "up" and t >= spell.paused_us), None)
    since, beside = facts.at(spell.start_us), facts.beside(spell.start_us, spell.end_us)
    if paused_us is None or (up_us is not None and up_us < paused_us):
        what = "did not pause" if paused_us is None else f"paused only after {seconds(paused_us - spell.start_us):g} s"
        problem = f"{spell.node} {what}, though it was in a minority from {since} on"
        told = f"{problem}; {seconds(within_us):g} s are allowed, {beside}"
        looks = ((t, state == "paused") for t, state in states)
        excuse = seen_late(facts, [spell.node], spell.start_us, looks, allowed_s=seconds(within_us))
        return _Pause(spell.node, late=Late(told, excuse))
    problems: tuple[str, ...] = ()
    if up_us is not None:
        problems = (f"{spell.node} was up at {facts.at(up_us)}, before its minority ended, {beside}",)
    returned_us = facts.first_up_us(spell.node, after_us=spell.end_us)
    returned_after_s = None if returned_us == NEVER_US else seconds(returned_us - spell.end_us)
    return _Pause(spell.node, problems, seconds(paused_us - spell.start_us), returned_after_s)


def _unexpected_pauses(facts: Facts, pauses: Pauses, seen: Sequence[tuple[int, Mapping[str, str]]]) -> Iterator[Late]:
    """Of each node that was paused when it could have no cause, the first sight that is no restart which came late, or
    else the first."""
    allowed = [
        (node, start, facts.first_up_us(node, after_us=end))
        for node, may in pauses.may.items()
        for start, end in periods(may)
    ]
    wrong: dict[str, Late] = {}
    back_us: dict[str, float] = {}  # from a restart that came late
    for t_us, states in seen:
        for node in (node for node, state in states.items() if state == "paused"):
            if t_us < back_us.get(node, 0) or any(
                node == name and start <= t_us <= end for name, start, end in allowed
            ):
                continue
            moment = f"at {facts.at(t_us)}, {facts.beside(t_us, t_us)}"
            late = Late(f"{node} was paused without need {moment}", _restarts_late(pauses, node, t_us))
            back_us[node] = facts.first_up_us(node, after_us=t_us) if late.excuse else NEVER_US
            if node not in wrong or not late.excuse:
                wrong[node] = late
    yield from wrong.values()


def _restarts_late(pauses: Pauses, node: str, t_us: float) -> str:
    """Why it may have been this machine for which the node restarted only then, as a split was mended; empty if it had
    restarted before."""
    begun_us, due_us = max((span for span in periods(pauses.restarting) if span[1] < t_us), default=(t_us, t_us))
    before = [(t, states.get(node, "up") != "up") for t, states in pauses.facts.sightings(begun_us, t_us - 1)]
    if not before or any(had_come for _, had_come in before):
        return ""
    start_us = due_us - RESTARTED_WITHIN_S * 1e6
    return seen_late(pauses.facts, [node], start_us, [*before, (t_us, True)], allowed_s=RESTARTED_WITHIN_S)


def _summary(had_to: Sequence[str], wrong: Sequence[str]) -> str:
    expected = f"{', '.join(had_to)} had to pause" if had_to else "no node had to pause"
    return f"{expected}, and it was so" if not wrong else f"{expected}; {len(wrong)} things went otherwise: {wrong[0]}"


def _numbers(had_to: Sequence[str], pauses: Sequence[_Pause]) -> dict[str, Number]:
    pause_s = [p.paused_after_s for p in pauses if p.paused_after_s is not None]
    return_s = [p.returned_after_s for p in pauses if p.returned_after_s is not None]
    return {
        "had_to_pause": " ".join(had_to),
        "paused_after_s_max": max(pause_s, default=None),
        "returned_after_s_max": max(return_s, default=None),
    }
