"""Check that the partition handling does what its mode promises, and does it in time.

The nodes that must pause do, the others do not, and none comes back before the cut is healed. After a split that the
mode allowed, ``autoheal`` restarts all sides but one. No message is confirmed on a side that cannot write to its queue.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Annotated, ClassVar

from pydantic import Field

from rabbitmq_resilience.checkers.cluster_forms import handled_until_us
from rabbitmq_resilience.checkers.confirms import confirmed_in_vain, confirmed_on_both_sides
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import UNSEEN_S_MAX, gaps, lasting_s
from rabbitmq_resilience.checkers.lateness import LATE_TIMES_MAX, Late, seen_late
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.pauses import Pauses, pauses_of
from rabbitmq_resilience.checkers.restarts import Restarts
from rabbitmq_resilience.checkers.times import NEVER, Period, periods
from rabbitmq_resilience.checkers.units import counted, seconds
from rabbitmq_resilience.checkers.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    InvariantSpec,
    Number,
    Verdict,
)

#: The moment of each sighting, and the state of each node then.
Sightings = Sequence[tuple[int, Mapping[str, str]]]


class PartitionMode(InvariantSpec):
    """Nodes pause and restart as the partition handling promises, and in time, and none that paused comes back before
    the cut is healed. Whether it comes back then is judged by ``recovery``; here it is only reported.

    ``margin_s``: the time that a node may need beyond 1.25 times ``net_ticktime``. The default is the longest time
    for which a node may wait for its peers: 10 s on three nodes, 7 s more for each further node, and 7 s more from
    RabbitMQ 4.0 on.

    Nodes do not pause while they start, so a node that starts while it is cut off need not pause.

    Nothing is demanded from the moment on at which a step begins to upgrade nodes to 4.3 or later, or enables
    ``khepri_db``: from then on the modes have no effect.

    A node may pause, and need not, in two cases: it is starved of CPU or memory, or its messages are delayed by more
    than the wait for ticks (0.75 times ``net_ticktime``, one way or both ways together).

    The verdict is UNKNOWN if the observer did not look at the nodes for 10 s after the first fault began. It is UNKNOWN
    if ``autoheal`` had to restart a side and there was no time for it, as the record ends or a step takes a node away.
    It is also UNKNOWN if a node reacted too late, but not twice as late as allowed, and this machine may be the cause:
    the node waited for a processor for long enough to explain the delay, or other programs took much of this machine.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun"})

    margin_s: Annotated[float, Field(ge=0)] | None = None

    def check(self, history: History) -> Finding:
        facts = history.facts
        span = facts.phases.get("steady", NEVER_US), facts.phases.get("end", facts.phases.get("drain", NEVER_US))
        seen = [(t, states) for t, states in facts.node_states if span[0] <= t < span[1]]
        if facts.cluster is None or not seen:
            return Finding(Verdict.UNKNOWN, "the events do not show the cluster and the states of its nodes")
        handled_us = span[0], min(seen[-1][0] + 1, max(span[0], handled_until_us(facts)))
        pauses = pauses_of(facts, facts.cluster, handled_us, self.margin_s)
        found = _LatePauses.of(history, pauses, seen)
        had_to = list(dict.fromkeys(pause.node for pause in found.pauses))
        both = confirmed_on_both_sides(history, found.restarts.parted)
        numbers: dict[str, Number] = {
            **_numbers(had_to, found.pauses),
            "restarted": " ".join(found.restarts.restarted),
            "queues_confirmed_on_both_sides": both,
            "differences": len(found.wrong),
        }
        end_us = min(span[1], facts.events[-1].t_us)
        blind = gaps(facts.all_looked_at_us, (span[0], end_us), longer_than_s=UNSEEN_S_MAX)
        coverage = Coverage(round(seconds(end_us - span[0]) - lasting_s(blind), 3), seconds(end_us - span[0]))
        if excused := found.excused(history, pauses, seen):
            return Finding(Verdict.UNKNOWN, _summary(had_to, excused), numbers, (), coverage)
        wrong = found.wrong
        away = list(dict.fromkeys(pause.node for pause in found.pauses if pause.stays_away))
        summary = _summary(had_to, wrong) + (
            f"; {', '.join(away)} had not come back when the record ended" * bool(away)
        )
        unseen = "" if wrong else _unseen(facts, blind) or next(iter(found.restarts.unseen), "")
        if unseen:
            return Finding(Verdict.UNKNOWN, f"{unseen}; in the observed time, {summary}", numbers, (), coverage)
        verdict = Verdict.INVALID if wrong else Verdict.VALID
        return Finding(verdict, summary, numbers, tuple(wrong[:EXAMPLES_MAX]), coverage)


@dataclass(frozen=True)
class _LatePauses:
    """The differences from what the mode promises. ``late``: what had not happened after the allowed time.
    ``confirmed``: what was confirmed although nothing could be written any more."""

    pauses: Sequence[_Pause]
    restarts: Restarts
    late: Sequence[Late]
    confirmed: Sequence[str]

    @classmethod
    def of(cls, history: History, pauses: Pauses, seen: Sightings) -> _LatePauses:
        observed = [_observe(pauses, spell) for spell in _spells(pauses)]
        restarts = Restarts.of(pauses)
        late = [*(pause.late for pause in observed if pause.late), *_idle_pairs(pauses), *restarts.late]
        late += _unexpected_pauses(pauses, seen)
        return cls(observed, restarts, late, list(confirmed_in_vain(history, pauses)))

    @property
    def wrong(self) -> list[str]:
        """Return all differences in words. Those that this machine may explain come last."""
        early = [pause.early for pause in self.pauses if pause.early]
        excused = [one.text for one in self.late if one.excuse]
        return [*(one.text for one in self.late if not one.excuse), *early, *self.confirmed, *excused]

    def excused(self, history: History, pauses: Pauses, seen: Sightings) -> list[str]:
        """Return the late reactions in words if all of them may be due to this machine. The list is empty if any
        difference would remain with twice the time."""
        if not self.late or not all(one.excuse for one in self.late) or any(pause.early for pause in self.pauses):
            return []
        if _LatePauses.of(history, replace(pauses, patience=LATE_TIMES_MAX), seen).wrong:
            return []
        return [f"{one.text}; {one.excuse}" for one in self.late]


def _unseen(facts: Facts, blind: Sequence[Period]) -> str:
    """Return in words when the observer did not look at the nodes after the first fault began; empty if it always
    did."""
    begun_us = min((step.possible_us[0] for step in facts.steps if step.is_fault), default=NEVER_US)
    gap = next(((a, b) for a, b in blind if b > begun_us), None)
    return f"the observer did not look at the nodes from {facts.at(gap[0])} to {facts.at(gap[1])}" if gap else ""


@dataclass(frozen=True)
class MinorityInterval:
    """A time in which ``node`` must stay paused. It reached too few peers from ``start_us`` on, and must be paused from
    ``paused_us`` on."""

    node: str
    start_us: float
    paused_us: float
    end_us: float


def _spells(pauses: Pauses) -> list[MinorityInterval]:
    """Return the spells in the order of time, without those in which the node was not observed."""
    found = [
        MinorityInterval(node, start - pauses.acted_within_us, start, end)
        for node, must in pauses.must.items()
        for start, end in periods(must)
        if any(node in states for _, states in pauses.facts.sightings(start, end - 1))
    ]
    return sorted(found, key=lambda spell: (spell.start_us, spell.node))


def _idle_pairs(pauses: Pauses) -> Iterator[Late]:
    """Yield the pairs of which at least one node had to pause, and neither did in time."""
    facts, within_us = pauses.facts, pauses.acted_within_us
    for pair, (start_us, end_us) in pauses.idle_pairs:
        until_us = start_us + within_us
        sightings = facts.sightings(start_us, max(end_us, start_us + LATE_TIMES_MAX * within_us))
        looks = [(t, any(states.get(node) == "paused" for node in pair)) for t, states in sightings]
        if not any(paused for t, paused in looks if t <= until_us):
            names, faults = " nor ".join(sorted(pair)), facts.faults_during(start_us, until_us)
            text = f"neither {names} paused within {seconds(within_us):g} s, though they were cut apart"
            excuse = seen_late(facts, pair, start_us, looks, allowed_s=seconds(within_us))
            yield Late(f"{text} and others still saw both, {faults}", excuse)


@dataclass(frozen=True)
class _Pause:
    """The observed reaction of a node that had to pause. ``early``: in words, that it came back too early."""

    node: str
    paused_after_s: float | None = None
    returned_after_s: float | None = None
    late: Late | None = None
    early: str = ""

    @property
    def stays_away(self) -> bool:
        """Return whether the node paused, and was not seen up again."""
        return self.paused_after_s is not None and self.returned_after_s is None


def _observe(pauses: Pauses, spell: MinorityInterval) -> _Pause:
    """Return how a node that had to pause reacted during ``spell``."""
    facts, within_us = pauses.facts, pauses.acted_within_us
    sightings = facts.sightings(spell.start_us, max(spell.end_us, spell.start_us + LATE_TIMES_MAX * within_us))
    states = [(t, s[spell.node]) for t, s in sightings if spell.node in s]
    paused_us = next((t for t, state in states if state == "paused"), None)
    up_us = next((t for t, state in states if state == "up" and spell.paused_us <= t < spell.end_us), None)
    since, faults = facts.at(spell.start_us), facts.faults_during(spell.start_us, spell.end_us)
    if paused_us is None or paused_us >= spell.end_us or (up_us is not None and up_us < paused_us):
        what = "did not pause" if paused_us is None else f"paused only after {seconds(paused_us - spell.start_us):g} s"
        problem = f"{spell.node} {what}, though it was in a minority from {since} on"
        text = f"{problem}; {seconds(within_us):g} s are allowed, {faults}"
        looks = ((t, state == "paused") for t, state in states)
        excuse = seen_late(facts, [spell.node], spell.start_us, looks, allowed_s=seconds(within_us))
        return _Pause(spell.node, late=Late(text, excuse))
    early = ""
    if up_us is not None:
        early = f"{spell.node} was up at {facts.at(up_us)}, before its minority ended, {faults}"
    returned_us = facts.first_up_us(spell.node, after_us=spell.end_us)
    returned_after_s = None if returned_us == NEVER_US else seconds(returned_us - spell.end_us)
    return _Pause(spell.node, seconds(paused_us - spell.start_us), returned_after_s, early=early)


def _unexpected_pauses(pauses: Pauses, seen: Sightings) -> Iterator[Late]:
    """Yield for each node that was paused without a cause the first sighting that cannot just be late, or else the
    first sighting."""
    facts = pauses.facts
    allowed: defaultdict[str, list[Period]] = defaultdict(list)
    for node, may in pauses.may.items():
        allowed[node] += [(start, facts.first_up_us(node, after_us=end)) for start, end in periods(may)]
    wrong: dict[str, Late] = {}
    for t_us, states in seen:
        for node in (node for node, state in states.items() if state == "paused"):
            if any(start <= t_us <= end for start, end in allowed[node]):
                continue
            excuse = _paused_late(pauses, node, t_us)
            reason = "" if excuse else ", though no step gave it a reason"
            text = f"{node} was paused{' only' if excuse else ''} at {facts.at(t_us)}"
            late = Late(f"{text}{reason}, {facts.faults_during(t_us, t_us)}", excuse)
            allowed[node].append((t_us, facts.first_up_us(node, after_us=t_us) if excuse else NEVER_US))
            if node not in wrong or not excuse:
                wrong[node] = late
    yield from wrong.values()


def _paused_late(pauses: Pauses, node: str, t_us: float) -> str:
    """Return why this machine may have made the node pause only after the time in which it was allowed to. The text is
    empty if the node was seen not to serve during that time, as then it had reacted."""
    due_us = max((end for _, end in periods(pauses.may.get(node, NEVER)) if end < t_us), default=None)
    if due_us is None:
        return ""
    restarts = any(end == due_us for _, end in periods(pauses.restarting))
    within_us = pauses.restarted_within_us if restarts else pauses.acted_within_us
    before = pauses.facts.sightings(due_us - within_us, t_us - 1)
    if any(states.get(node, "up") != "up" for _, states in before):
        return ""
    looks = [*((t, False) for t, _ in before), (t_us, True)]
    nodes = pauses.truth.cluster.nodes if restarts else [node]
    return seen_late(pauses.facts, nodes, due_us - within_us, looks, allowed_s=seconds(within_us))


def _summary(had_to: Sequence[str], wrong: Sequence[str]) -> str:
    expected = f"{', '.join(had_to)} had to pause" if had_to else "no node had to pause"
    if not wrong:
        return f"{expected}, and the nodes did as expected"
    return f"{expected}; {counted(len(wrong), 'observation')} differed: {wrong[0]}"


def _numbers(had_to: Sequence[str], pauses: Sequence[_Pause]) -> dict[str, Number]:
    pause_s = [p.paused_after_s for p in pauses if p.paused_after_s is not None]
    return_s = [p.returned_after_s for p in pauses if p.returned_after_s is not None]
    return {
        "had_to_pause": " ".join(had_to),
        "paused_after_s_max": max(pause_s, default=None),
        "returned_after_s_max": max(return_s, default=None),
    }
