"""The partition handling does what its mode promises (``invariants.oracle``), and does it in time.

The nodes that must pause do, the others do not, and none comes back before the cut is healed. After a split that the
mode let happen, ``autoheal`` restarts all sides but one. No queue is confirmed on a side that cannot write to it.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

import numpy as np
from pydantic import Field

from invariants.columns import pieces
from invariants.facts import NEVER_US, ClusterFacts, Facts
from invariants.oracle import foresee, writable_from
from invariants.pauses import RESTARTED_WITHIN_S, Prediction, Spell, predict
from invariants.situations import Side, Situation
from invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Number, Verdict, seconds
from reports.history import Outcome

Sightings = Sequence[tuple[int, Mapping[str, str]]]


class PartitionMode(InvariantSpec):
    """``margin_s``: what a node may need beyond 1.25 times ``net_ticktime``, by default as long as it may wait for each
    of its peers (``invariants.pauses.pause_margin_s``)."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "history_whole"})

    margin_s: Annotated[float, Field(ge=0)] | None = None

    def check(self, history: History) -> Finding:
        facts = Facts(history.events)
        span = facts.phases.get("steady", NEVER_US), facts.phases.get("end", facts.phases.get("drain", NEVER_US))
        seen = [(t, states) for t, states in facts.node_states if span[0] <= t < span[1]]
        if facts.cluster is None or not seen:
            return Finding(Verdict.UNKNOWN, "the events do not tell the cluster and the states of its nodes")
        prediction = predict(facts, facts.cluster, (span[0], seen[-1][0] + 1), margin_s=self.margin_s)
        pauses = [_observe(facts, spell, prediction.within_s) for spell in prediction.must]
        confirms = confirms_by_side(history, facts, facts.cluster, prediction)
        wrong = [problem for pause in pauses for problem in pause.problems]
        wrong += _idle_groups(facts, facts.cluster, prediction)
        wrong += _unexpected_pauses(facts, prediction, seen)
        wrong += [c.told(facts) for c in confirms if c.count and not c.allowed]
        restarted, problems = _restarts(facts, facts.cluster, prediction)
        wrong += problems
        sides = Counter((c.queue, c.cut) for c in confirms if c.count)
        both = {queue for (queue, _), confirming in sides.items() if confirming > 1}
        return Finding(
            Verdict.INVALID if wrong else Verdict.VALID,
            _summary(prediction, wrong),
            _numbers(pauses) | {"restarted": " ".join(restarted), "queues_confirmed_on_both_sides": len(both)},
            tuple(wrong[:EXAMPLES_MAX]),
        )


@dataclass(frozen=True)
class Confirms:
    """How many messages of one queue were confirmed through the nodes of one side while a cut was known."""

    queue: str
    side: Side
    count: int
    allowed: bool
    cut: Situation

    def told(self, facts: Facts) -> str:
        return (
            f"{self.count} messages of {self.queue} were confirmed through {' '.join(sorted(self.side))}, "
            f"where nothing could be written to it, {facts.beside(self.cut.start_us, self.cut.end_us)}"
        )


def confirms_by_side(
    history: History, facts: Facts, cluster: ClusterFacts, prediction: Prediction
) -> tuple[Confirms, ...]:
    """Confirms of each queue on each side, from when each node must have noticed the cut until it was healed."""
    cuts = [cut for cut in prediction.cuts if not any(map(cut.cut_within, cut.components))]
    counts = np.zeros((len(cuts), max(1, len(facts.queues)), len(cluster.nodes)), np.int64)
    noticed_us = np.array([cut.start_us + prediction.within_s * 1e6 for cut in cuts])
    healed_us = np.array([cut.end_us for cut in cuts])  # no cut begins before the one before it ends
    for number, node, outcome, outcome_us in (
        pieces(history.publishes(), "queue", "node", "outcome", "outcome_us") if cuts else ()
    ):
        cut_of = np.searchsorted(noticed_us, outcome_us, side="right") - 1
        rows = (outcome == Outcome.CONFIRMED) & (cut_of >= 0) & (outcome_us < healed_us[cut_of])
        np.add.at(counts, (cut_of[rows], number[rows], node[rows]), 1)
    found = []
    for i, cut in enumerate(cuts):
        for index, queue in enumerate(facts.queues):
            writable = writable_from(queue, cluster, cut)
            for side in cut.components:
                count = int(sum(counts[i, index, n] for n, node in enumerate(cluster.nodes) if node in side))
                found.append(Confirms(queue.name, side, count, side in writable, cut))
    return tuple(found)


def _idle_groups(facts: Facts, cluster: ClusterFacts, prediction: Prediction) -> Iterator[str]:
    """Groups of which at least one node had to pause, and none did in time."""
    for cut in prediction.cuts:
        for group in foresee(cluster, cut).one_pauses:
            until_us = cut.start_us + prediction.within_s * 1e6
            states = [s for _, s in facts.sightings(cut.start_us, until_us)]
            if not any(state.get(node) == "paused" for state in states for node in group):
                names, faults = " nor ".join(sorted(group)), facts.beside(cut.start_us, until_us)
                yield f"neither {names} paused, though they were cut apart and others still saw both, {faults}"


def _restarts(facts: Facts, cluster: ClusterFacts, prediction: Prediction) -> tuple[list[str], list[str]]:
    """The nodes that restarted after a split was healed, and what was wrong with that: all sides but one must."""
    restarted: dict[str, None] = {}
    problems = []
    for cut in prediction.cuts:
        forecast = foresee(cluster, cut)
        if forecast.aftermath != "restarts" or len(forecast.sides) < 2:
            continue
        until_us = cut.end_us + RESTARTED_WITHIN_S * 1e6
        seen = [states for _, states in facts.sightings(cut.end_us, until_us)]
        away = frozenset(node for states in seen for node, state in states.items() if state != "up")
        restarted |= dict.fromkeys(sorted(away))
        kept = [side for side in forecast.sides if not side & away]
        if len(kept) != 1 or not all(side <= away for side in forecast.sides if side not in kept):
            sides = " | ".join(" ".join(sorted(side)) for side in forecast.sides)
            problems.append(
                f"of the sides {sides} all but one had to restart after {facts.at(cut.end_us)}; "
                f"it was {' '.join(sorted(away)) or 'nobody'} that did"
            )
    return list(restarted), problems


@dataclass(frozen=True)
class _Pause:
    node: str
    problems: tuple[str, ...]
    paused_after_s: float | None = None
    returned_after_s: float | None = None


def _observe(facts: Facts, spell: Spell, within_s: float) -> _Pause:
    """How the spell of a node that must pause went."""
    sightings = facts.sightings(spell.start_us, spell.end_us)
    states = [(t, s[spell.node]) for t, s in sightings if t < spell.end_us and spell.node in s]
    paused_us = next((t for t, state in states if state == "paused"), None)
    if paused_us is None or paused_us > spell.start_us + within_s * 1e6:
        late = "did not pause" if paused_us is None else f"paused only after {seconds(paused_us - spell.start_us):g} s"
        problem = f"{spell.node} {late}, though it was in a minority from {facts.at(spell.start_us)} on"
        return _Pause(spell.node, (f"{problem}; {within_s:g} s are allowed, {_beside(facts, spell)}",))
    early_us = next((t for t, state in states if t > paused_us and state == "up"), None)
    problems: tuple[str, ...] = ()
    if early_us is not None:
        problems = (f"{spell.node} was up at {facts.at(early_us)}, before its minority ended, {_beside(facts, spell)}",)
    returned_us = facts.first_up_us(spell.node, after_us=spell.end_us)
    returned_after_s = None if returned_us == NEVER_US else seconds(returned_us - spell.end_us)
    return _Pause(spell.node, problems, seconds(paused_us - spell.start_us), returned_after_s)


def _beside(facts: Facts, spell: Spell) -> str:
    return facts.beside(spell.start_us, spell.end_us)


def _unexpected_pauses(
    facts: Facts, prediction: Prediction, seen: Sequence[tuple[int, Mapping[str, str]]]
) -> list[str]:
    """The first wrong sight of each node that was paused when it could have no cause."""
    allowed = [(s.node, s.start_us, facts.first_up_us(s.node, after_us=s.end_us)) for s in prediction.may]
    wrong: dict[str, str] = {}
    for t_us, states in seen:
        for node in (node for node, state in states.items() if state == "paused"):
            if not any(node == name and start <= t_us <= end for name, start, end in allowed):
                moment = f"at {facts.at(t_us)}, {facts.beside(t_us, t_us)}"
                wrong.setdefault(node, f"{node} was paused without need {moment}")
    return list(wrong.values())


def _summary(prediction: Prediction, wrong: list[str]) -> str:
    names = ", ".join(dict.fromkeys(spell.node for spell in prediction.must))
    expected = f"{names} had to pause" if names else "no node had to pause"
    return f"{expected}, and it was so" if not wrong else f"{expected}; {len(wrong)} things went otherwise: {wrong[0]}"


def _numbers(pauses: list[_Pause]) -> dict[str, Number]:
    pause_s = [p.paused_after_s for p in pauses if p.paused_after_s is not None]
    return_s = [p.returned_after_s for p in pauses if p.returned_after_s is not None]
    return {
        "had_to_pause": " ".join(dict.fromkeys(p.node for p in pauses)),
        "paused_after_s_max": max(pause_s, default=None),
        "returned_after_s_max": max(return_s, default=None),
    }
