"""Alerts that fired, against a slow way to the same verdict: second by second, with holes in what was seen."""

from __future__ import annotations

import itertools
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.alerts import Alerts, FiringAlert
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from rabbitmq_resilience.history.recorded_alerts import Active, RuleGroup
from rabbitmq_resilience.history.recorded_alerts import RecordedAlerts as Record
from tests.invariants.literal import cluster, event, fault, history, node_states, phases, queues, us
from tests.messages import Messages

STEADY, END = 0, 95
#: Between evaluations of a group that is evaluated each second.
APART_S = 5

Spans = Sequence[tuple[int, int]]


def within(at: int, spans: Spans) -> bool:
    return any(start <= at <= end for start, end in spans)


@dataclass(frozen=True)
class Fired:
    """An alert of one node, and the seconds in which its expression holds."""

    alert: str
    node: str
    spans: Spans


@dataclass(frozen=True)
class World:
    """``holes``: when nobody evaluated; ``steps``: when each began and ended; ``busy``: whether others had the
    machine."""

    fired: Sequence[Fired]
    holes: Spans
    steps: Spans
    busy: bool = False

    @property
    def looks(self) -> list[int]:
        return [at for at in range(-3, END + 3) if not within(at, self.holes)]

    def seen(self, fired: Fired) -> list[int]:
        return [at for at in self.looks if within(at, fired.spans)]

    @property
    def record(self) -> Record:
        active = [
            Active(one.alert, "firing", {"node": one.node}, us(start), us(end))
            for one in self.fired
            for start, end in runs(self.seen(one), self.looks)
        ]
        evaluated = [(us(start), us(end)) for start, end in runs(self.looks, [])]
        names = sorted({"A", "B"} | {one.alert for one in self.fired})
        return Record([RuleGroup("all", 1.0, names, evaluated)], sorted(active, key=lambda one: one.start_us))


def runs(moments: Sequence[int], looks: Sequence[int]) -> list[tuple[int, int]]:
    """Ends of the runs of moments without a gap, and without a look between two of them."""
    found: list[tuple[int, int]] = []
    for at in moments:
        if found and at - found[-1][1] <= APART_S and not any(found[-1][1] < look < at for look in looks):
            found[-1] = (found[-1][0], at)
        else:
            found.append((at, at))
    return found


def check(demanded: Alerts, record: Record | None, *events: object) -> Finding:
    whole = [cluster(), queues("q1"), phases(), node_states()]
    return demanded.check(replace(history((), (), [*whole, *events]), alerts=lambda: record))


def judged(demanded: Alerts, world: World) -> Finding:
    steps: Iterable[list[Event]] = (fault(*ends, step=n, name="kill") for n, ends in enumerate(world.steps))
    taken = [event(at_s, "machine", busy=1.0, others=0.5) for at_s in range(END) if world.busy]
    return check(demanded, world.record, *steps, taken)


def believed(world: World, one: Fired) -> list[int]:
    """The seconds in which it fired as far as anybody knows: where nobody looked, what holds on both sides."""
    looks, seen = world.looks, set(world.seen(one))
    latest = {at: look for look in looks for at in range(look, END + 3)}
    next_one = {at: look for look in reversed(looks) for at in range(-3, look + 1)}
    return [at for at in range(-3, END + 3) if latest.get(at) in seen and next_one.get(at) in seen]


def has_cause(demanded: Alerts, world: World, one: Fired, begin: int) -> bool:
    """Return whether a step after which it must fire began before it did."""
    return any(names(demand, one) and world.steps[demand.after_step][0] <= begin for demand in demanded.fires)


def stretches(world: World, one: Fired) -> list[tuple[int, int]]:
    """Return from when until when it fired, as far as anybody knows."""
    moments = believed(world, one)
    return runs(moments, [at for at in range(-3, END + 3) if at not in moments])


def begins(world: World, one: Fired) -> list[int]:
    """The seconds in which it began to fire, as far as anybody knows."""
    return [start for start, _ in stretches(world, one)]


def unseen(looks: Sequence[int], start: int, end: int) -> bool:
    edges = [start, *(look for look in looks if start < look < end), end]
    return any(b - a > APART_S for a, b in itertools.pairwise(edges))


def since(world: World, begin: int) -> int:
    """The earliest second in which what was seen then may have begun."""
    before = max((look for look in world.looks if look < begin), default=-10_000)
    return before if begin - before > APART_S else begin


def allowances(world: World, one: Fired, begin: int, demanded: Alerts) -> list[tuple[float, float]]:
    """Of each demand that may have made it fire: how long after the healing it began, and how long it may take."""
    mine = [(world.steps[demand.after_step], demand) for demand in demanded.fires if names(demand, one)]
    return [(since(world, begin) - end, demand.within_s) for (start, end), demand in mine if start <= begin]


def slowly_judged(demanded: Alerts, world: World) -> Verdict:
    wrong = doubt = False
    for demand in demanded.fires:
        start = world.steps[demand.after_step][0]
        last = start + int(demand.within_s)
        mine = [one for one in world.fired if names(demand, one)]
        fired = [(one, begin) for one in mine for begin, end in stretches(world, one) if begin <= last and end >= start]
        if fired:
            doubt = doubt or not any(has_cause(demanded, world, one, begin) for one, begin in fired)
            continue
        came = min((since(world, at) for one in mine for at in begins(world, one) if at > last), default=None)
        hidden = last > END or unseen(world.looks, start, last) or (came is not None and came <= last)
        by_others = world.busy and came is not None and came - start <= 2 * demand.within_s
        wrong, doubt = wrong or not (hidden or by_others), doubt or hidden or by_others
    for one in world.fired if demanded.no_others else ():
        for begin in begins(world, one):
            end = max(at for at in believed(world, one) if set(range(begin, at + 1)) <= set(believed(world, one)))
            last_seen = max(at for at in world.seen(one) if at <= end)
            if begin > END or last_seen < STEADY or one.alert in demanded.ignored:
                continue
            took = allowances(world, one, begin, demanded)
            if not any(took_s <= within_s for took_s, within_s in took):
                by_others = world.busy and any(took_s <= 2 * within_s for took_s, within_s in took)
                wrong, doubt = wrong or not by_others, doubt or by_others
    if wrong:
        return Verdict.INVALID
    return Verdict.UNKNOWN if doubt or (demanded.no_others and unseen(world.looks, STEADY, END)) else Verdict.VALID


def names(demand: FiringAlert, one: Fired) -> bool:
    return demand.alert == one.alert and demand.labels.get("node", one.node) == one.node


@st.composite
def spans(draw: st.DrawFn, longest: int, count: int) -> Spans:
    found: list[tuple[int, int]] = []
    for start in sorted(draw(st.lists(st.integers(1, 94), max_size=count))):
        if not found or start > found[-1][1] + 1:
            found.append((start, min(END + 2, start + draw(st.integers(0, longest)))))
    return tuple(found)


FIRED = [("A", "a1"), ("A", "b1"), ("B", "a1")]
WORLDS = st.builds(
    World,
    st.tuples(*(st.builds(Fired, st.just(alert), st.just(node), spans(25, 2)) for alert, node in FIRED)),
    spans(14, 2),
    st.tuples(*(st.tuples(st.integers(11, 30), st.integers(31, 60)) for _ in range(2))),
    st.booleans(),
)
DEMANDS = st.builds(
    FiringAlert,
    alert=st.sampled_from("AB"),
    labels=st.sampled_from([{}, {"node": "a1"}, {"node": "b1"}]),
    within_s=st.sampled_from([4.0, 12.0, 70.0]),
    after_step=st.integers(0, 1),
)
DEMANDED = st.builds(
    Alerts,
    fires=st.lists(DEMANDS, max_size=3).map(tuple),
    no_others=st.booleans(),
    ignored=st.sampled_from([(), ("B",)]),
)


def sane(*spans: tuple[int, int], holes: Spans = (), alert: str = "A", node: str = "a1") -> World:
    return World([Fired(alert, node, spans)], holes, [(20, 40)])


def fires(within_s: float = 10, labels: Mapping[str, str] | None = None, **more: Any) -> Alerts:
    one = {"alert": "A", "within_s": within_s, "after_step": 0, "labels": labels or {}}
    return Alerts.model_validate({"fires": [one], **more})


@given(world=WORLDS, demanded=DEMANDED)
@example(world=sane((23, 44), holes=[(24, 33)]), demanded=fires())
@example(world=sane((25, 30), (48, 60), holes=[(45, 55)]), demanded=fires())
@example(world=sane((25, 45), holes=[(60, 64)]), demanded=fires())
@example(world=sane((36, 60), holes=[(45, 52)]), demanded=fires(within_s=4))
def test_both_ways_come_to_the_same_verdict(world: World, demanded: Alerts) -> None:
    assert judged(demanded, world).verdict is slowly_judged(demanded, world)


def test_empty(message: Messages) -> None:
    assert check(Alerts(), None).verdict is Verdict.UNKNOWN
    finding = judged(Alerts(), World([], [], []))
    assert finding.verdict is Verdict.VALID
    message(finding.summary)
    assert finding.coverage is not None
    assert finding.coverage.judged == finding.coverage.demanded == 95


def test_sane_in_time(message: Messages) -> None:
    finding = judged(fires(), sane((28, 45)))
    assert (finding.verdict, finding.numbers["slowest_s"]) == (Verdict.VALID, 8)
    message(finding.summary)


def test_pathological_too_late_and_never(message: Messages) -> None:
    finding = judged(fires(), sane((31, 45)))
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "11 s" in finding.summary
    never = judged(fires(), sane())
    assert never.verdict is Verdict.INVALID
    message(never.summary)


def test_late_while_others_have_the_machine_is_not_reported_and_very_late_is(message: Messages) -> None:
    late = replace(sane((31, 45)), busy=True)
    finding = judged(fires(), late)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "11 s" in finding.summary
    assert "50%" in finding.summary
    assert judged(fires(), replace(sane((41, 55)), busy=True)).verdict is Verdict.INVALID
    assert judged(fires(), replace(sane(), busy=True)).verdict is Verdict.INVALID
    assert judged(fires(labels={"node": "b1"}), late).verdict is Verdict.INVALID, "another is never excused"


def test_an_alert_that_fires_again_on_an_idle_machine_is_not_excused_by_one_that_was_late() -> None:
    """Late once while others have the machine, and again 15 s after the healing, when nobody has."""
    taken = [event(at_s, "machine", busy=1.0, others=0.5 if at_s <= 36 else 0.0) for at_s in range(END)]
    world = World([Fired("A", "a1", [(35, 40), (75, 80)])], [], [(20, 60)])
    finding = check(fires(), world.record, fault(20, 60, step=0, name="kill"), taken)
    assert (finding.verdict, finding.numbers["others"]) == (Verdict.INVALID, 1)


def test_one_that_was_seen_late_may_have_come_before(message: Messages) -> None:
    world = World([Fired("A", "a1", [(34, 60)])], [(33, 44)], [(20, 50)], busy=True)
    finding = judged(fires(), world)
    assert finding.verdict is Verdict.UNKNOWN
    told = " ".join(finding.examples)
    message(told)
    assert "25 s" in told
    assert "50%" in told


def test_pathological_of_another_node(message: Messages) -> None:
    finding = judged(fires(labels={"node": "b1"}), sane((25, 45)))
    assert (finding.verdict, finding.numbers["others"]) == (Verdict.INVALID, 1)
    message(finding.examples[1])
    assert "a1" in finding.examples[1]
    assert "+25.000 s" in finding.examples[1]
    assert "step 0" in finding.examples[1]


@pytest.mark.parametrize(
    ("more", "verdict"), [({}, "INVALID"), ({"no_others": False}, "VALID"), ({"ignored": ["B"]}, "VALID")]
)
def test_another_that_fires(more: dict[str, Any], verdict: str) -> None:
    world = World([Fired("A", "a1", [(25, 45)]), Fired("B", "a1", [(70, 71)])], [], [(20, 40)])
    assert judged(fires(**more), world).verdict == verdict


@pytest.mark.parametrize("since_s", [-3, 10, 19])
def test_what_fired_before_its_step_began_shows_nothing(since_s: int, message: Messages) -> None:
    before = sane((since_s, 45))
    finding = judged(fires(no_others=False), before)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert judged(fires(), before).verdict is Verdict.INVALID
    again = sane((since_s, 19), (25, 45)) if since_s < 19 else sane((20, 45))
    assert judged(fires(no_others=False), again).verdict is Verdict.VALID


def test_what_fires_since_an_earlier_step_counts_for_the_next() -> None:
    both = Alerts(fires=[FiringAlert(alert="A", within_s=30, after_step=n) for n in (0, 1)])
    assert judged(both, replace(sane((25, 60)), steps=[(20, 30), (40, 50)])).verdict is Verdict.VALID


def test_again_long_after_its_step_is_another(message: Messages) -> None:
    finding = judged(fires(), sane((25, 45), (51, 52)))
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "a1" in finding.summary
    assert "+51.000 s" in finding.summary
    assert judged(fires(), sane((25, 45), (50, 52))).verdict is Verdict.VALID


def test_unknown_where_no_one_looked_when_it_was_due(message: Messages) -> None:
    finding = judged(fires(), sane((23, 29), holes=[(21, 31)]))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "10 s" in finding.summary


def test_unknown_where_others_may_have_fired_unseen(message: Messages) -> None:
    finding = judged(fires(), sane((25, 45), holes=[(60, 70)]))
    message(finding.summary)
    assert "12 s" in finding.summary
    assert "+59.000 s" in finding.summary
    assert finding.coverage is not None
    assert (finding.verdict, finding.coverage.judged) == (Verdict.UNKNOWN, 83)


def test_unknown_where_the_step_never_was(message: Messages) -> None:
    finding = check(fires(), World([], [], []).record, fault(20, 40, states=["skipped"]))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "step 0" in finding.summary


def test_unknown_where_the_record_ends_before_it_is_due(message: Messages) -> None:
    finding = judged(fires(within_s=80), sane())
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "+100.000 s" in finding.summary
    assert "+95.000 s" in finding.summary


def test_a_group_of_ignored_rules_alone_need_not_be_evaluated() -> None:
    seen = [(us(-3), us(END + 3))]
    groups = [RuleGroup("all", 1.0, ["A"], seen), RuleGroup("never", 1.0, ["B"], [])]
    assert check(Alerts(ignored=("B",)), Record(groups, [])).verdict is Verdict.VALID
    assert check(Alerts(), Record(groups, [])).verdict is Verdict.UNKNOWN
