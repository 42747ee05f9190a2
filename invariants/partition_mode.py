"""Under ``pause_minority`` the nodes that must pause do, the others do not, and none comes back too early.

A node pauses once it sees at most half of all nodes, itself included; with an even split all nodes do. It
notices a silent peer after 0.75 to 1.25 times ``net_ticktime`` (Erlang, kernel application), a dead process at
once. It comes back when it sees a majority again, so not before the cut is healed. From 4.3 on nobody pauses.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, ClassVar

from pydantic import Field

from invariants.facts import NEVER_US, ClusterFacts, Facts, Pair
from invariants.liveness import Period, Situation, situations
from invariants.verdict import EXAMPLES_MAX, Finding, History, InvariantSpec, Number, Verdict, seconds

TICKS_MIN = 0.75
TICKS_MAX = 1.25


@dataclass(frozen=True)
class Spell:
    """A time in which a running node saw at most half of all nodes; ``sudden`` if it was told so by a dead process."""

    node: str
    start_us: float
    end_us: float
    sudden: bool


@dataclass(frozen=True)
class Prediction:
    """``must``: the node pauses within the first ``within_s`` of the spell, and does not come back before its end.
    ``may``: it pauses or not, and only from ``start_us`` on until it was seen up after ``end_us``."""

    must: tuple[Spell, ...]
    may: tuple[Spell, ...]
    within_s: float
    unpredicted: str = ""


class PartitionMode(InvariantSpec):
    """``margin_s``: what a node may need beyond 1.25 times ``net_ticktime`` to notice and to close its listeners."""

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "history_whole"})

    margin_s: Annotated[float, Field(ge=0)] = 5

    def check(self, history: History) -> Finding:
        facts = Facts(history.events)
        span = facts.phases.get("steady", NEVER_US), facts.phases.get("end", facts.phases.get("drain", NEVER_US))
        seen = [(t, states) for t, states in facts.node_states if span[0] <= t < span[1]]
        if facts.cluster is None or not seen:
            return Finding(Verdict.UNKNOWN, "the events do not tell the cluster and the states of its nodes")
        if facts.cluster.partition_handling != "pause_minority":
            return Finding(Verdict.UNKNOWN, f"nothing is predicted yet for {facts.cluster.partition_handling}")
        prediction = predict(facts, facts.cluster, (span[0], seen[-1][0] + 1), margin_s=self.margin_s)
        if prediction.unpredicted:
            return Finding(Verdict.UNKNOWN, prediction.unpredicted)
        pauses = [_observe(facts, spell, prediction.within_s) for spell in prediction.must]
        wrong = [problem for pause in pauses for problem in pause.problems]
        wrong += _unexpected_pauses(facts, prediction, seen)
        return Finding(
            Verdict.INVALID if wrong else Verdict.VALID,
            _summary(prediction, wrong),
            _numbers(pauses),
            tuple(wrong[:EXAMPLES_MAX]),
        )


def predict(facts: Facts, cluster: ClusterFacts, span_us: Period, *, margin_s: float) -> Prediction:
    """From the steps alone: who must pause, and who may."""
    tick_us = cluster.net_ticktime_s * 1e6
    within_us = TICKS_MAX * tick_us + margin_s * 1e6
    if not cluster.pauses_minorities:
        return Prediction((), _weakened(facts, within_us), within_us / 1e6)
    possible = situations(cluster.nodes, facts.steps, lambda step, _: step.possible_us, span_us)
    sure = situations(cluster.nodes, facts.steps, lambda step, _: step.sure_us, span_us)
    if any(_long_partial(s, TICKS_MIN * tick_us) for s in possible):
        partial = "nothing is predicted yet for a cut that some nodes can talk around"
        return Prediction((), (), within_us / 1e6, unpredicted=partial)
    may = []
    for spell in _spells(cluster.nodes, possible):
        delay_us = 0 if spell.sudden else TICKS_MIN * tick_us
        if spell.end_us - spell.start_us >= delay_us:
            may.append(Spell(spell.node, spell.start_us + delay_us, spell.end_us + within_us, spell.sudden))
    must = [s for s in _spells(cluster.nodes, sure) if s.end_us - s.start_us > within_us]
    return Prediction(tuple(must), (*may, *_weakened(facts, within_us)), within_us / 1e6)


def _long_partial(situation: Situation, least_us: float) -> bool:
    lasts = situation.end_us - situation.start_us >= least_us
    return lasts and any(map(situation.is_partial, situation.components))


def _spells(nodes: Collection[str], periods: list[Situation]) -> list[Spell]:
    """Neighbouring situations in which the same running node was in a minority are one spell."""
    spells: list[Spell] = []
    for node in nodes:
        current: Spell | None = None
        cut_before: frozenset[Pair] = frozenset()
        for period in periods:
            sudden, cut_before = period.cut <= cut_before, period.cut
            size = len(period.component_of(node))
            if not 0 < 2 * size <= len(nodes):
                current = None
                continue
            if current is not None:
                spells.remove(current)
            start_us, sudden = (current.start_us, current.sudden) if current else (period.start_us, sudden)
            current = Spell(node, start_us, period.end_us, sudden)
            spells.append(current)
    return spells


def _weakened(facts: Facts, settle_us: float) -> tuple[Spell, ...]:
    """Nodes that were killed, stopped or suspended look paused while they boot, and may pause when they wake up
    and find their connections gone."""
    return tuple(
        Spell(node, step.possible_us[0], step.possible_us[1] + settle_us, sudden=True)
        for step in facts.steps
        for node in sorted(step.down)
    )


@dataclass(frozen=True)
class _Pause:
    node: str
    problems: tuple[str, ...]
    paused_after_s: float | None = None
    returned_after_s: float | None = None


def _observe(facts: Facts, spell: Spell, within_s: float) -> _Pause:
    """How the spell of a node that must pause went."""
    states = [
        (t, s[spell.node]) for t, s in facts.node_states if spell.start_us <= t < spell.end_us and spell.node in s
    ]
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
        for node, state in states.items():
            excused = any(node == name and start <= t_us <= end for name, start, end in allowed)
            if state == "paused" and not excused:
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
