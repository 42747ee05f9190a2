"""From the steps alone: who must pause and when, and who may. And what of that was seen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from invariants.facts import NEVER_US, ClusterFacts, Facts, Pair, Step
from invariants.oracle import foresee
from invariants.situations import TICKS_MAX, TICKS_MIN, Period, Side, Situation, possible_window, situations

#: To close the listeners, once a node has noticed that it must.
CLOSES_WITHIN_S = 3.0
#: How long a connection that cannot be made is waited for (kernel(6), net_setuptime).
NET_SETUPTIME_S = 7.0

#: How long the sides that lost may take to stop and to start again once a split is healed.
RESTARTED_WITHIN_S = 30.0


@dataclass(frozen=True)
class Spell:
    """A time in which a running node had a reason to pause; ``sudden`` if it knew at once."""

    node: str
    start_us: float
    end_us: float
    sudden: bool


@dataclass(frozen=True)
class Prediction:
    """``must``: the node pauses within the first ``within_s`` of the spell, and does not come back before its end.
    ``may``: it pauses or not, and only from ``start_us`` on until it was seen up after ``end_us``. ``cuts`` are the
    times that surely were as they say, each longer than ``within_s``."""

    must: tuple[Spell, ...]
    may: tuple[Spell, ...]
    within_s: float
    cuts: tuple[Situation, ...] = ()


def pause_margin_s(nodes: int, version: tuple[int, ...] = ()) -> float:
    """What a node may need beyond 1.25 times ``net_ticktime`` to pause. When it takes the first peer for dead it writes
    that to the metadata store, and waits for each other one that is silent too and not yet taken for dead; from 4.0 on
    for the dead one as well (seen on 4.0.5: 15 to 21 s in three cuts, where 3.10.8 took 5 to 7)."""
    waited_for = nodes - 1 if version >= (4,) else nodes - 2
    return CLOSES_WITHIN_S + max(0, waited_for) * NET_SETUPTIME_S


def predict(facts: Facts, cluster: ClusterFacts, span_us: Period, *, margin_s: float | None = None) -> Prediction:
    """``margin_s``: by default ``pause_margin_s`` of the cluster."""
    tick_us = cluster.net_ticktime_s * 1e6
    margin_s = pause_margin_s(len(cluster.nodes), cluster.broker_version) if margin_s is None else margin_s
    within_us = TICKS_MAX * tick_us + margin_s * 1e6
    possible = situations(cluster.nodes, facts.steps, possible_window(facts), span_us)
    sure = situations(cluster.nodes, facts.steps, lambda step, _: step.sure_us, span_us)
    may = []
    for spell in _spells(possible, lambda situation: foresee(cluster, situation).may_pause):
        delay_us = 0 if spell.sudden else TICKS_MIN * tick_us
        if spell.end_us - spell.start_us >= delay_us:
            may.append(Spell(spell.node, spell.start_us + delay_us, spell.end_us + within_us, spell.sudden))
    must = _spells(sure, lambda situation: foresee(cluster, situation).pauses)
    return Prediction(
        must=tuple(s for s in must if s.end_us - s.start_us > within_us and _served(facts, s)),
        may=(*may, *_weakened(facts, within_us), *_restarting(cluster, possible, sure)),
        within_s=within_us / 1e6,
        cuts=tuple(s for s in sure if s.cut and s.lasts_us > within_us),
    )


def _served(facts: Facts, spell: Spell) -> bool:
    """Nodes do not pause while they start (RabbitMQ, "Clustering and Network Partitions", pause_minority)."""
    before = facts.states_at(spell.start_us)
    return before is None or before.get(spell.node) == "up"


def _spells(periods: Sequence[Situation], wanted: Callable[[Situation], Side]) -> list[Spell]:
    """Neighbouring situations in which the same node is ``wanted`` are one spell."""
    spells: list[Spell] = []
    current: dict[str, Spell] = {}
    cut_before: frozenset[Pair] = frozenset()
    for period in periods:
        sudden, cut_before = period.cut - period.closed <= cut_before, period.cut
        nodes = wanted(period)
        spells += [spell for node, spell in current.items() if node not in nodes]
        current = {
            node: Spell(node, before.start_us, period.end_us, before.sudden)
            if (before := current.get(node))
            else Spell(node, period.start_us, period.end_us, sudden)
            for node in sorted(nodes)
        }
    return sorted([*spells, *current.values()], key=lambda spell: (spell.start_us, spell.node))


def _weakened(facts: Facts, settle_us: float) -> tuple[Spell, ...]:
    """Nodes that were killed, stopped or suspended look paused while they boot, and may pause when they wake up
    and find their connections gone."""
    return tuple(
        Spell(node, step.possible_us[0], step.possible_us[1] + settle_us, sudden=True)
        for step in facts.steps
        for node in sorted(step.down)
    )


def _restarting(cluster: ClusterFacts, possible: Sequence[Situation], sure: Sequence[Situation]) -> Iterator[Spell]:
    """Any node may be among those that restart once a split is healed; which side wins is not foreseen."""
    for split in possible:
        if foresee(cluster, split).aftermath == "restarts" and split.may_be_noticed(cluster.net_ticktime_s):
            healing = [s.end_us for s in sure if s.cut == split.cut and split.start_us <= s.start_us < split.end_us]
            start_us = max(healing, default=split.start_us)
            for node in cluster.nodes:
                yield Spell(node, start_us, split.end_us + RESTARTED_WITHIN_S * 1e6, sudden=True)


def excused_pauses(facts: Facts, cluster: ClusterFacts, span_us: Period) -> Iterator[Step]:
    """The times in which nodes were seen not to serve that may have paused, as if a step had taken them down."""
    for spell in predict(facts, cluster, span_us).may:
        up_us = spell.start_us
        for t_us, states in facts.sightings(spell.start_us, spell.end_us):
            if states.get(spell.node) == "up":
                up_us = t_us
                continue
            back_us = facts.first_up_us(spell.node, after_us=t_us)
            seen = {"injecting": int(up_us)} | ({"healed": int(back_us)} if back_us < NEVER_US else {})
            yield Step(number=-1, fault="paused", states=seen, down=frozenset({spell.node}))
            break
