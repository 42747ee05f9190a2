"""Read from events what happened when: phases, fault windows, states of nodes and links, sampled depth and memory.

All times are seconds from the moment ``origin_us``. Values that were not observed are None, never 0.
"""

from __future__ import annotations

import itertools
import statistics
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from rabbitmq_resilience.history.events import (
    Effect,
    Event,
    FaultEvent,
    FlowStatesEvent,
    NodesEvent,
    PhaseEvent,
    SampleEvent,
    WorkerEvent,
)
from rabbitmq_resilience.history.round_trips import KINDS, RoundTripSample, rounds, spells

POINTS_MAX = 2000

#: Nodes are looked at twice a second. Their state is not known while the looks are further apart than this.
UNSEEN_S = 6.0
_UNSEEN = ""
#: A curve is broken if its samples are further apart than this many usual distances.
GAP_DISTANCES = 4


@dataclass(frozen=True)
class TimelineInterval:
    start_s: float
    end_s: float
    state: str


@dataclass(frozen=True)
class SwimLane:
    """A swim-lane of a node, or of links that share one fate; its intervals are in order and do not overlap."""

    name: str
    intervals: tuple[TimelineInterval, ...]
    note: str = ""


@dataclass(frozen=True)
class FaultWindow:
    """A step of the schedule. ``detail`` states what it acted on; the two proofs state what showed it and its healing.
    A fault that was never healed ends with the run. ``proven`` and ``heal_proven`` are None without a record."""

    step: int
    fault: str
    detail: str
    start_s: float
    end_s: float
    healed: bool
    skipped: bool
    proven: bool | None
    heal_proven: bool | None
    proof: str
    heal_proof: str


@dataclass(frozen=True)
class Samples:
    """Curves that share their moments ``at_s``. All have the same length; a value is None if nothing was seen."""

    at_s: list[float] = field(default_factory=list)
    curves: dict[str, list[float | None]] = field(default_factory=dict)


@dataclass(frozen=True)
class Timeline:
    phases: tuple[TimelineInterval, ...]
    faults: tuple[FaultWindow, ...]
    nodes: tuple[SwimLane, ...]
    links: tuple[SwimLane, ...]
    blocked: tuple[SwimLane, ...]
    depth: Samples
    memory: Samples
    round_trips: Samples
    round_trips_lost: int
    held_back: Samples


def timeline(events: Sequence[Event], *, origin_us: int, end_us: int) -> Timeline:
    """Return windows and curves between the two moments, from ``events`` in the order of time."""
    end_s = (end_us - origin_us) / 1e6
    timed = [((event.t_us - origin_us) / 1e6, event) for event in events]
    steps: dict[int, list[tuple[float, FaultEvent]]] = {}
    for at_s, event in timed:
        if isinstance(event, FaultEvent):
            steps.setdefault(event.step, []).append((at_s, event))
    return Timeline(
        phases=_phases([(at_s, e.phase) for at_s, e in timed if isinstance(e, PhaseEvent)], end_s),
        faults=tuple(_fault_window(step, changes, end_s) for step, changes in sorted(steps.items())),
        nodes=_node_lanes([(at_s, e.states) for at_s, e in timed if isinstance(e, NodesEvent)], end_s),
        links=_link_lanes(steps.values(), end_s),
        blocked=_blocked_lane([(at_s, e) for at_s, e in timed if isinstance(e, WorkerEvent)], end_s),
        depth=samples((at_s, _depth(e.queues)) for at_s, e in timed if isinstance(e, SampleEvent)),
        memory=samples((at_s, _memory(e)) for at_s, e in timed if isinstance(e, SampleEvent)),
        round_trips=samples(((one.t_us - origin_us) / 1e6, _round(one)) for one in rounds(spells(events))),
        round_trips_lost=sum(list(one.trips_ms.values()).count(None) for one in rounds(spells(events))),
        held_back=_held_back([(at_s, e) for at_s, e in timed if isinstance(e, FlowStatesEvent)]),
    )


def _held_back(looks: Sequence[tuple[float, FlowStatesEvent]]) -> Samples:
    """Return the curves of flow control and blocking; a curve that is always 0 is left out."""
    rows = [
        (
            at_s,
            {
                "connections in flow": float(event.connections.get("flow", 0)),
                "connections blocked": float(sum(event.connections.get(name, 0) for name in ("blocked", "blocking"))),
                "queues in flow": None if event.flow_queues is None else float(len(event.flow_queues)),
            },
        )
        for at_s, event in looks
    ]
    seen = {name for _, row in rows for name, count in row.items() if count}
    return samples((at_s, {name: row[name] for name in row if name in seen}) for at_s, row in rows if seen)


def _round(of: RoundTripSample) -> dict[str, float]:
    """Return the median and the maximum of each kind of way, in ms; unanswered round trips do not count."""
    found: dict[str, float] = {}
    for kind in KINDS:
        took = [ms for ms in of.of_kind(kind) if ms is not None]
        found |= {kind: statistics.median(took), f"{kind}, most": max(took)} if took else {}
    return found


def _intervals(changes: Sequence[tuple[float, str]], end_s: float) -> tuple[TimelineInterval, ...]:
    """Return an interval for each run of one state, from its first sight to that of the next state."""
    starts = [next(run) for _, run in itertools.groupby(changes, key=lambda change: change[1])]
    ends = [*(at_s for at_s, _ in starts), end_s][1:]
    return tuple(TimelineInterval(at_s, max(at_s, end), state) for (at_s, state), end in zip(starts, ends, strict=True))


def _phases(changes: Sequence[tuple[float, str]], end_s: float) -> tuple[TimelineInterval, ...]:
    return tuple(phase for phase in _intervals(changes, end_s) if phase.state != "end")


def _node_lanes(sightings: Sequence[tuple[float, Mapping[str, str]]], end_s: float) -> tuple[SwimLane, ...]:
    """Return a lane for each node; it is empty from the last look before a long time without one to the next."""
    lanes = []
    for node in sorted({node for _, states in sightings for node in states}):
        seen = [(at_s, states[node]) for at_s, states in sightings if node in states]
        nexts_s = [*(at_s for at_s, _ in seen[1:]), end_s]
        unseen = [(at_s, _UNSEEN) for (at_s, _), next_s in zip(seen, nexts_s, strict=True) if next_s - at_s > UNSEEN_S]
        changes = sorted([*seen, *unseen], key=lambda change: change[0])  # what was seen comes first
        intervals = _intervals(changes, end_s)
        lanes.append(SwimLane(node, tuple(one for one in intervals if one.state != _UNSEEN)))
    return tuple(lanes)


def _blocked_lane(changes: Sequence[tuple[float, WorkerEvent]], end_s: float) -> tuple[SwimLane, ...]:
    """Return one lane for all publishers: when brokers blocked any of them. There is no lane if they never did."""
    blocked: set[str] = set()
    states = []
    for at_s, event in changes:
        if event.event == "blocked":
            blocked.add(event.worker)
        else:
            blocked.discard(event.worker)
        states.append((at_s, "blocked" if blocked else "open"))
    seen = tuple(interval for interval in _intervals(states, end_s) if interval.state == "blocked")
    return (SwimLane("publishers", seen),) if seen else ()


def _fault_window(step: int, changes: Sequence[tuple[float, FaultEvent]], end_s: float) -> FaultWindow:
    moments = {event.state: at_s for at_s, event in reversed(changes)}
    start_s = moments.get("injected", changes[0][0])
    finish_s = moments.get("healed", changes[0][0] if "skipped" in moments else end_s)
    return FaultWindow(
        step=step,
        fault=changes[0][1].fault,
        detail=_detail(changes, ("injecting", "injected", "skipped")) or _effect_text(changes[0][1].effect or Effect()),
        start_s=start_s,
        end_s=max(start_s, finish_s),
        healed="healed" in moments,
        skipped="skipped" in moments,
        proven=_proof(moments, "proven", "unproven"),
        heal_proven=_proof(moments, "heal_proven", "heal_unproven"),
        proof=_detail(changes, ("proven", "unproven", "skipped")),
        heal_proof=_detail(changes, ("heal_proven", "heal_unproven")),
    )


def _detail(changes: Sequence[tuple[float, FaultEvent]], states: Sequence[str]) -> str:
    return next((e.detail for _, e in changes if e.state in states and e.detail), "")


def _effect_text(effect: Effect) -> str:
    links = ((effect.links_cut, "cut"), (effect.links_slow, "slow"))
    down = "perhaps down" if effect.nodes_may_serve else "down"
    fates = ((effect.nodes_down, down), (effect.nodes_starved, "starved"))
    nodes = [f"{' '.join(names)} {word}" for names, word in fates if names]
    return ", ".join([*nodes, *(f"{_group_name(sorted(pairs))} {word}" for pairs, word in links if pairs)])


def _proof(moments: dict[str, float], yes: str, no: str) -> bool | None:
    return False if no in moments else True if yes in moments else None


def _link_lanes(steps: Iterable[Sequence[tuple[float, FaultEvent]]], end_s: float) -> tuple[SwimLane, ...]:
    """Return a lane for each group of links that were cut and slow at the same times."""
    fates: dict[tuple[str, str], set[TimelineInterval]] = {}
    for changes in steps:
        window = _fault_window(0, changes, end_s)
        if window.skipped:
            continue
        for _, event in changes:
            effect = event.effect or Effect()
            for links, state in ((effect.links_cut, "cut"), (effect.links_slow, "slow")):
                for source, target in links:
                    fates.setdefault((source, target), set()).add(TimelineInterval(window.start_s, window.end_s, state))
    groups: dict[frozenset[TimelineInterval], list[tuple[str, str]]] = {}
    for link, intervals in sorted(fates.items()):
        groups.setdefault(frozenset(intervals), []).append(link)
    return tuple(
        SwimLane(_group_name(links), tuple(_without_overlap(intervals)), note=", ".join(f"{a}->{b}" for a, b in links))
        for intervals, links in groups.items()
    )


def _without_overlap(intervals: Iterable[TimelineInterval]) -> Iterator[TimelineInterval]:
    """Yield the intervals in order. Cut takes precedence over slow, as nothing passes a cut."""
    given = list(intervals)
    cuts, pieces = (joined(one for one in given if (one.state == "cut") == is_cut) for is_cut in (True, False))
    for cut in cuts:
        pieces = [
            piece
            for slow in pieces
            for piece in (
                TimelineInterval(slow.start_s, min(slow.end_s, cut.start_s), slow.state),
                TimelineInterval(max(slow.start_s, cut.end_s), slow.end_s, slow.state),
            )
            if piece.start_s < piece.end_s
        ]
    yield from sorted([*cuts, *pieces], key=lambda i: i.start_s)


def joined(intervals: Iterable[TimelineInterval]) -> list[TimelineInterval]:
    """Return the intervals of one state in order and without overlap."""
    found: list[TimelineInterval] = []
    for one in sorted(intervals, key=lambda one: one.start_s):
        if found and one.start_s <= found[-1].end_s:
            found[-1] = replace(found[-1], end_s=max(found[-1].end_s, one.end_s))
        else:
            found.append(one)
    return found


def _group_name(links: Sequence[tuple[str, str]]) -> str:
    """Return ``a1 ⇄ b1 b2`` or ``a1 → b1 b2`` if the links are all those between two sides, else their number."""
    linked = set(links)
    near = links[0][0]
    far_side = sorted({b for a, b in links if a == near})
    near_side = sorted({a for a, b in links if b == far_side[0]})
    one_way = {(a, b) for a in near_side for b in far_side}
    sides = f"{' '.join(near_side)} {{}} {' '.join(far_side)}"
    if linked == one_way:
        return sides.format("→")
    if linked == one_way | {(b, a) for a, b in one_way}:
        return sides.format("⇄")
    return f"{len(links)} links"


def _depth(queues: Mapping[str, Mapping[str, Any]]) -> dict[str, float | None]:
    """Return the ready and unacked messages of all queues, and both together of the fullest queue."""
    ready, unacked = ([row.get(name) for row in queues.values()] for name in ("ready", "unacked"))
    both = [a + b for a, b in zip(ready, unacked, strict=True) if a is not None and b is not None]
    fullest = max(both, default=None) if len(both) == len(ready) else None
    return {"ready": _sum(ready), "unacked": _sum(unacked), "fullest queue": fullest} if queues else {}


def _sum(numbers: Sequence[float | None]) -> float | None:
    """Return the sum; None if a number was not observed."""
    known = [number for number in numbers if number is not None]
    return sum(known) if known and len(known) == len(numbers) else None


def _memory(event: SampleEvent) -> dict[str, Any]:
    """Return the bytes of each node. 0 bytes are left out: the broker has no statistics yet."""
    return {node: n_bytes for node, n_bytes in event.memory_bytes.items() if n_bytes}


def samples(rows: Iterable[tuple[float, dict[str, Any]]]) -> Samples:
    """Return curves of the values at each moment, thinned, and broken if nothing was seen for long."""
    thinned = _thin([(at_s, values) for at_s, values in rows if values])
    names = sorted({name for _, row in thinned for name, value in row.items() if value is not None}, key=_natural)
    if not names:
        return Samples()
    broken = list(_with_gaps(thinned))
    return Samples(
        at_s=[round(at_s, 2) for at_s, _ in broken],
        curves={name: [values.get(name) for _, values in broken] for name in names},
    )


def _natural(name: str) -> tuple[int, str]:
    first = ("ready", "unacked", "fullest queue")
    return (first.index(name) if name in first else len(first), name)


def _thin(rows: list[tuple[float, dict[str, Any]]]) -> list[tuple[float, dict[str, Any]]]:
    """Return at most POINTS_MAX rows. Joined neighbours keep their highest value, so that no peak is lost."""
    width = -(-len(rows) // POINTS_MAX)
    if width <= 1:
        return rows
    thinned = []
    for stretch in _stretches(rows):
        for i in range(0, len(stretch), width):
            group = stretch[i : i + width]
            names = {name for _, values in group for name in values}
            seen = {name: [v[name] for _, v in group if v.get(name) is not None] for name in names}
            thinned.append((group[0][0], {name: max(values) for name, values in seen.items() if values}))
    return thinned


def _stretches(rows: Sequence[tuple[float, dict[str, Any]]]) -> Iterator[Sequence[tuple[float, dict[str, Any]]]]:
    """Yield the rows between gaps."""
    gap_s, start = _gap_s(rows), 0
    for place in range(1, len(rows)):
        if rows[place][0] - rows[place - 1][0] > gap_s:
            yield rows[start:place]
            start = place
    yield rows[start:]


def _gap_s(rows: Sequence[tuple[float, dict[str, Any]]]) -> float:
    """Return from which distance on there is a gap between two rows."""
    distances = [b[0] - a[0] for a, b in itertools.pairwise(rows)]
    return GAP_DISTANCES * statistics.median(distances) if distances else 0.0


def _with_gaps(rows: Sequence[tuple[float, dict[str, Any]]]) -> Iterator[tuple[float, dict[str, Any]]]:
    gap_s = _gap_s(rows)
    for i, row in enumerate(rows):
        if i and row[0] - rows[i - 1][0] > gap_s:
            yield (rows[i - 1][0] + row[0]) / 2, {}
        yield row
