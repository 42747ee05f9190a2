"""Check that all sides but one restart when a split is healed that the nodes mend by themselves.

Source: RabbitMQ, "Clustering and Network Partitions", autoheal: a winning side is chosen when the cut is over, and all
other nodes restart.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.checkers.cluster_states import ClusterSide
from rabbitmq_resilience.checkers.cut_pairs import Pair
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.lateness import LATE_TIMES_MAX, Late, seen_late
from rabbitmq_resilience.checkers.oracle import predict
from rabbitmq_resilience.checkers.pauses import RESTARTED_WITHIN_S, Pauses
from rabbitmq_resilience.checkers.times import Period, Times, periods, times
from rabbitmq_resilience.checkers.units import seconds

#: If a step takes a node away within this time after the healing, the node had no time to restart by itself.
DECIDED_WITHIN_S = 10.0


@dataclass(frozen=True)
class Restarts:
    """The restarts that were due after splits.

    ``parted``: when each pair of nodes was surely on two sides that both continued. ``late``: the sides that had to
    restart and had not done so in time. ``unseen``: the pairs of which no node was seen to restart, as the record
    ended, or a step took a node away, before the time was over.
    """

    parted: Mapping[Pair, Times]
    restarted: tuple[str, ...]
    late: tuple[Late, ...]
    unseen: tuple[str, ...] = ()

    @classmethod
    def of(cls, pauses: Pauses) -> Restarts:
        parted = {pair: _parted(pauses, pair) for pair in pauses.truth.pairs}
        if not pauses.truth.cluster.heals_splits:
            return cls(parted, (), ())
        restarted: dict[str, None] = {}
        late: list[Late] = []
        judged: set[tuple[Pair, Period]] = set()
        whole = pauses.truth.calm(pauses.span_us, lasts_s=RESTARTED_WITHIN_S)
        for healed_us, pairs in _healed_at(pauses, parted, whole).items():
            start_us = min(start for _, (start, _) in pairs)
            nodes: ClusterSide = frozenset().union(*(pair for pair, _ in pairs))
            calm = healed_us, dict(whole)[healed_us]
            due_us = healed_us + pauses.restarted_within_us
            away = nodes & _away(pauses.facts, (start_us, min(due_us, calm[1])))
            restarted |= dict.fromkeys(sorted(away))
            sides = _sides(nodes, pairs)
            since_us = max((end for _, end in whole if end <= start_us), default=pauses.span_us[0])
            if not _all_at_once(pauses, pairs[0][1], (since_us, healed_us)):
                sides = []
            others = frozenset(pauses.truth.cluster.nodes) - nodes
            is_over = due_us <= calm[1]  # by then all sides that must have restarted
            judged |= set(pairs) if is_over else set()
            if not _as_promised(sides, pairs, away, others=others, is_over=is_over):
                late.append(
                    Late(_described(pauses, sides, pairs, away, healed_us), _excuse(pauses, nodes - away, healed_us))
                )
        return cls(parted, tuple(restarted), tuple(late), tuple(_unseen(pauses, parted, judged)))


def _unseen(pauses: Pauses, parted: Mapping[Pair, Times], judged: Collection[tuple[Pair, Period]]) -> Iterator[str]:
    """Yield in words the pairs that were parted and of which neither node was seen to give way."""
    for pair, when in parted.items():
        for start, end in periods(when):
            if (pair, (start, end)) not in judged and not any(_gave_way(pauses, node, (start, end)) for node in pair):
                names, within_s = " nor ".join(sorted(pair)), seconds(pauses.restarted_within_us)
                at = pauses.facts.at(end)
                yield f"neither {names} was seen to restart within {within_s:g} s after they were parted, to {at}"


def _gave_way(pauses: Pauses, node: str, parted_us: Period) -> bool:
    """Return whether the node restarted by itself after the split, or a step took it away before it could."""
    start, end = parted_us
    taken = pauses.truth.absences(node)
    soon_us = end + DECIDED_WITHIN_S * 1e6
    if any(from_us <= soon_us and until_us > start - pauses.within_us for from_us, until_us in taken):
        return True
    looks = pauses.facts.sightings(end, end + pauses.restarted_within_us)
    return any(
        states.get(node, "up") != "up" and not any(from_us <= t_us <= until_us for from_us, until_us in taken)
        for t_us, states in looks
    )


def _parted(pauses: Pauses, pair: Pair) -> Times:
    """Return the periods in which both nodes must have noticed that they are on two sides."""
    one, other = pair
    apart = times(
        (moment.start_us, moment.end_us)
        for moment in pauses.moments
        if all(
            any(one in side for side in sides)
            and any(other in side for side in sides)
            and not any(pair <= side for side in sides)
            for sides in (predict(pauses.truth.cluster, world).sides for world in moment.worlds)
        )
    )
    return times((start + pauses.within_us, end) for start, end in periods(apart))


def _healed_at(
    pauses: Pauses, parted: Mapping[Pair, Times], whole: Sequence[Period]
) -> Mapping[float, list[tuple[Pair, Period]]]:
    """Return the pairs that were parted, by the moment at which all was whole again for as long as restarting may take.
    Pairs are left out if one node was away at first or was taken away meanwhile, as that node has given way in any
    case."""
    truth, settle_us = pauses.truth, RESTARTED_WITHIN_S * 1e6
    found: dict[float, list[tuple[Pair, Period]]] = defaultdict(list)
    for pair, when in parted.items():
        for start, end in periods(when):
            healed_us = next((begin for begin, _ in whole if begin >= end), None)
            if healed_us is None:
                continue
            watched = times([(start, healed_us + settle_us)])
            seen = pauses.facts.states_at(start - pauses.within_us) or {}
            if all(seen.get(node, "up") == "up" for node in pair) and all(
                (truth.away[node].possibly & watched).empty for node in pair
            ):
                found[healed_us].append((pair, (start, end)))
    return dict(sorted(found.items()))


def _away(facts: Facts, period_us: Period) -> ClusterSide:
    """Return the nodes that were seen not to be up in that time."""
    seen = [states for _, states in facts.sightings(*period_us)]
    return frozenset(node for states in seen for node, state in states.items() if state != "up")


def _sides(nodes: ClusterSide, pairs: Sequence[tuple[Pair, Period]]) -> list[ClusterSide]:
    """Return the sides: the groups of nodes that are not parted from each other. The list is empty if the groups
    overlap, or were not the same all the time."""
    parted = {pair for pair, _ in pairs}
    sides = {frozenset(m for m in nodes if m == n or frozenset((n, m)) not in parted) for n in nodes}
    plain = sum(map(len, sides)) == len(nodes) and len({period for _, period in pairs}) == 1
    return sorted(sides, key=sorted) if plain else []


def _all_at_once(pauses: Pauses, parted_us: Period, since_us: Period) -> bool:
    """Return whether each cut in ``since_us`` lasted from before the nodes were parted until the end of it."""
    cuts = [step for step in pauses.truth.as_apart.steps if step.cut and step.injected]
    return not any(
        step.possible_us[0] < since_us[1]
        and step.possible_us[1] > since_us[0]
        and (
            step.effect.intermittent
            or step.possible_us[0] > parted_us[0] - pauses.within_us
            or step.sure_us[1] < parted_us[1]
        )
        for step in cuts
    )


def _as_promised(
    sides: Sequence[ClusterSide],
    pairs: Sequence[tuple[Pair, Period]],
    away: ClusterSide,
    *,
    others: ClusterSide,
    is_over: bool,
) -> bool:
    """Return whether the restarts of the nodes in ``away`` are as promised.

    ``sides`` is empty if nodes were parted one by one, so that nodes of a side need not have been on it all the time.
    The trusted side may be that of ``others``, for which no time of parting is known.
    """
    if not sides:
        return not is_over or all(pair & away for pair, _ in pairs)
    kept = [side for side in sides if not side & away]
    if not kept and not others:
        return False
    return not is_over or (len(kept) <= 1 and all(side <= away for side in sides if side not in kept))


def _described(
    pauses: Pauses,
    sides: Sequence[ClusterSide],
    pairs: Sequence[tuple[Pair, Period]],
    away: ClusterSide,
    healed_us: float,
) -> str:
    """Return in words which sides had to restart, and which nodes restarted."""
    expected = "of the sides " + " | ".join(" ".join(sorted(side)) for side in sides)
    if not sides:
        expected = "of " + ", ".join(" and ".join(sorted(pair)) for pair, _ in pairs if not pair & away)
    names, within_s = " ".join(sorted(away)) or "no node", seconds(pauses.restarted_within_us)
    return (
        f"{expected} all but one had to restart within {within_s:g} s after {pauses.facts.at(healed_us)}; "
        f"{names} restarted"
    )


def _excuse(pauses: Pauses, stayed: ClusterSide, healed_us: float) -> str:
    """Return why this machine may be the cause that no node of ``stayed`` was seen to restart in time; empty if it is
    not, or if there is no such node. Nodes decide together, so any node may have kept the others waiting."""
    if not stayed:
        return ""
    within_us = pauses.restarted_within_us
    looks = (
        (t, any(states.get(node) == "paused" for node in stayed))
        for t, states in pauses.facts.sightings(healed_us, healed_us + LATE_TIMES_MAX * within_us)
    )
    return seen_late(pauses.facts, pauses.truth.cluster.nodes, healed_us, looks, allowed_s=seconds(within_us))
