"""What is judged by time, against slow, plain Python that looks at every instant, row by row and event by event.

Instants are whole ticks: events happen at the beginning of one, and rows in its middle, so that nothing is rounded.
"""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.consequences import consequences
from rabbitmq_resilience.checkers.message_ledger import ledger_of
from rabbitmq_resilience.checkers.outages import outages, untried_periods
from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.checkers.traffic import TICK_US
from rabbitmq_resilience.checkers.uptime import Uptime
from rabbitmq_resilience.checkers.verdict import History, Verdict
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import THREE, Row, cluster, event, fault, history, phases, publish, queues, us

S = 1_000_000 // TICK_US  # ticks of a second
LOOK = S // 2
STEADY = 4 * S
CONFIRMED, UNKNOWN, NACKED = Outcome.CONFIRMED, Outcome.UNKNOWN, Outcome.NACKED

#: Ticks in which a message was due and in which it was answered, and how.
Message = tuple[int, int, Outcome]


def at_s(tick: float) -> float:
    return tick / S


@dataclass(frozen=True)
class Kill:
    """Of these nodes, from one tick to another; they are seen up ``boot`` ticks later. Nodes are looked at every half
    second."""

    nodes: tuple[str, ...]
    start: int
    end: int
    boot: int

    @property
    def last_seen(self) -> int:
        """From then on they may have been away."""
        return -(-self.start // LOOK) * LOOK - LOOK

    @property
    def back(self) -> int:
        return -(-(self.end + self.boot) // LOOK) * LOOK


@dataclass(frozen=True)
class Case:
    """One queue on three nodes; publishing ends at ``ends``. Leaders are spread from one tick to another."""

    messages: tuple[Message, ...]
    kills: tuple[Kill, ...]
    ends: int
    rebalanced: tuple[tuple[int, int], ...] = ()
    kind: str = "quorum"

    @property
    def confirms(self) -> list[int]:
        return sorted(answered for _, answered, how in self.messages if how is CONFIRMED and answered < self.ends)

    def away(self, tick: float) -> set[str]:
        return {node for kill in self.kills for node in kill.nodes if kill.start <= tick < kill.back}

    def perhaps_away(self, tick: float) -> set[str]:
        return {node for kill in self.kills for node in kill.nodes if kill.last_seen <= tick < kill.back}

    @property
    def history(self) -> History:
        rows: list[Row] = [
            publish(n, 0, how) | {"due_us": us(at_s(due + 0.5)), "outcome_us": us(at_s(answered + 0.5))}
            for n, (due, answered, how) in enumerate(self.messages)
        ]
        looks = [
            event(at_s(tick), "nodes", states={n: "down" if n in self.away(tick) else "up" for n in THREE})
            for tick in range(0, self.ends + 40 * S, LOOK)
        ]
        end_s = at_s(self.ends)
        steps = [
            fault(at_s(kill.start), at_s(kill.end), step=i, name="kill", down=kill.nodes)
            for i, kill in enumerate(self.kills)
        ]
        steps += [
            fault(at_s(start), at_s(end), step=10 + i, name="rebalance", operation=True)
            for i, (start, end) in enumerate(self.rebalanced)
        ]
        told = phases(steady=0, chaos=at_s(STEADY), recovery=end_s - 1, drain=end_s, end=end_s + 40)
        return history(rows, (), [cluster(), queues("q1", kind=self.kind), told, looks, *steps], batch_rows=7)


@st.composite
def flows(draw: st.DrawFn, ends: int) -> tuple[Message, ...]:
    """Confirms in stretches of regular ones, and messages that are due in the silence between and answered later."""
    messages: list[Message] = []
    tick = draw(st.integers(0, 3 * S))
    while tick < ends:
        every, count = draw(st.sampled_from([1, 5, 10, 40, 90])), draw(st.integers(1, 60))
        for _ in range(count):
            messages.append((max(0, tick - 1), tick, CONFIRMED))
            tick += every
        silence = draw(st.sampled_from([0, 30, S, 2 * S, 5 * S, 11 * S, 25 * S]))
        for _ in range(draw(st.integers(0, 3))):
            due = tick + draw(st.integers(0, max(1, silence)))
            messages.append(
                (due, due + draw(st.integers(0, 15 * S)), draw(st.sampled_from([UNKNOWN, NACKED, CONFIRMED])))
            )
        tick += silence
        if draw(st.integers(0, 6)) == 0:
            break
    return tuple(message for message in messages if message[0] < ends)


@st.composite
def cases(draw: st.DrawFn) -> Case:
    ends = draw(st.integers(20, 70)) * S
    kills = []
    for _ in range(draw(st.integers(0, 3))):
        nodes = draw(st.sampled_from([("a1",), ("a1", "b1"), ("b1", "c1"), ("c1",)]))
        start = draw(st.integers(STEADY, ends - 8 * S))
        end = min(ends - S, start + draw(st.integers(1, 15)) * S)
        kills.append(Kill(nodes, start, end, draw(st.sampled_from([0, S, 3 * S]))))
    return Case(draw(flows(ends)), tuple(kills), ends)


BOUND_S, GRACE_S = 9, 3


def demanded(case: Case, until: float) -> list[tuple[float, float]]:
    """Tick by tick: whether two of three nodes are there, and were for all of the grace."""
    bad = [len(case.perhaps_away(tick)) > 1 for tick in range(int(until) + 2)]
    free = [not any(bad[max(0, tick - GRACE_S * S) : tick + 1]) for tick in range(len(bad))]
    stretches: list[tuple[float, float]] = []
    for tick in range(int(until) + 1):
        if free[tick] and tick < until:
            stretch_end = min(tick + 1, until)
            if stretches and stretches[-1][1] == tick:
                stretches[-1] = (stretches[-1][0], stretch_end)
            else:
                stretches.append((tick, stretch_end))
    return stretches


def available(case: Case) -> Verdict:
    """By the words of the invariant's docstring."""
    late = [answered for _, answered, how in case.messages if answered >= case.ends and how is CONFIRMED]
    given_up = [answered for _, answered, how in case.messages if answered >= case.ends and how is not CONFIRMED]
    until = min(late) + 0.5 if late else max(given_up) + 0.5 if given_up else case.ends
    moments = sorted({tick + 0.5 for tick in [*case.confirms, *late[:0]]} | ({min(late) + 0.5} if late else set()))
    steady = [m for m in moments if m <= STEADY]
    steady = moments[:2] if len(steady) == 1 else steady
    usual = max([S, *(2 * (b - a) for a, b in itertools.pairwise(steady))])
    doubtful = False
    stretches = demanded(case, until)
    for start, end in stretches:
        inside = [m for m in moments if start < m <= end]
        for before, after in itertools.pairwise([start, *inside, end]):
            if after - before > BOUND_S * S:
                return Verdict.INVALID
        doubtful |= not inside and end - start > usual
    doubtful |= until - max([0, *moments]) > usual
    healed = [kill.end for kill in case.kills]
    if healed and max(healed) < until:
        doubtful |= not any(m > max(healed) for m in moments)
    return Verdict.UNKNOWN if doubtful or not stretches else Verdict.VALID


@given(cases())
@example(Case(((0, 0, CONFIRMED),), (), 20 * S))
@example(Case(tuple((t, t, CONFIRMED) for t in range(500)), (Kill(("a1", "b1"), 951, 1001, 0),), 1400))
def test_availability(case: Case) -> None:
    finding = Availability(stall_s_max=BOUND_S, grace_s=GRACE_S).check(case.history)
    assert finding.verdict is available(case), finding.summary
    assert finding.coverage is not None
    assert 0 <= finding.coverage.judged <= finding.coverage.demanded


@given(cases(), st.integers(0, 70 * S))
def test_a_queue_that_dies_for_good_is_never_valid_and_one_that_lives_always_is(case: Case, dies: int) -> None:
    """Whatever is killed, and whenever: it confirms four times a second, until it dies."""
    alive = tuple((tick, tick, CONFIRMED) for tick in range(0, case.ends, 12))
    checker = Availability(stall_s_max=BOUND_S, grace_s=GRACE_S)
    assert checker.check(Case(alive, case.kills, case.ends).history).verdict is Verdict.VALID
    dead = Case(tuple(message for message in alive if message[0] < dies), case.kills, case.ends)
    verdict = checker.check(dead.history).verdict
    if dies < case.ends - 2 * S:
        assert verdict is not Verdict.VALID
    demanded_after = [end - max(start, dies) for start, end in demanded(case, case.ends)]
    if max(demanded_after, default=0) > (BOUND_S + 1) * S:
        assert verdict is Verdict.INVALID


def silent(case: Case) -> list[tuple[float, float]]:
    """The outages, confirm by confirm: since when was something due that was not answered at the last one?"""
    found = []
    edges = [None, *sorted(set(case.confirms)), None]
    for before, after in itertools.pairwise(edges):
        end = case.ends if after is None else after + 0.5
        open_ = [due for due, answered, _ in case.messages if due + 0.5 < end and (before is None or answered > before)]
        if not open_:
            continue
        start = max(min(open_), -1 if before is None else before) + 0.5
        if end - start >= S:
            found.append((start, end))
    return found


def untried(case: Case) -> list[tuple[float, float]]:
    """Tick by tick: was anything due, or under way, or confirmed?"""
    tried = [
        tick
        for tick in range(case.ends)
        if any(due <= tick < answered or due == tick for due, answered, _ in case.messages) or tick in case.confirms
    ]
    edges = [-0.5, *(tick + 0.5 for tick in tried), case.ends + 0.5]
    periods = [(max(a, 0), min(b, case.ends)) for a, b in itertools.pairwise(edges)]
    return [(a, b) for a, b in periods if b - a >= S]


def in_ticks(periods: Sequence[tuple[float, float]]) -> list[tuple[float, float]]:
    return [((start - us(0)) / TICK_US, (end - us(0)) / TICK_US) for start, end in periods]


@given(cases())
def test_outages(case: Case) -> None:
    traffic = ledger_of(judged := case.history).traffic
    assert traffic is not None
    if case.messages:
        flow = traffic.flows[0]
        assert in_ticks(outages(traffic, flow).periods) == silent(case)
        assert in_ticks(untried_periods(traffic, flow)) == untried(case)
    told = consequences(judged)
    assert told is not None
    lengths = [round((end - start) / S, 3) for start, end in silent(case)]
    assert [row["lasts_s"] for row in told["worst"]] == sorted(lengths, reverse=True)[:10]
    assert told["outages"]["count"] == len(lengths)
    assert told["outages"]["longest_s"] == max(lengths, default=0)
    assert abs(told["outages"]["total_s"] - sum(lengths)) < 0.001 * (1 + len(lengths))


def up(case: Case, outage_s_max: float, ratio_min: float) -> Verdict:
    out, hidden = silent(case), untried(case)
    ticks = {tick for start, end in out for tick in range(round(2 * start), round(2 * end))}
    maybe = ticks | {tick for start, end in hidden for tick in range(round(2 * start), round(2 * end))}

    def longest(halves: set[int]) -> float:
        parted = {2 * tick + 1 for tick in case.confirms}
        runs = [0]
        for half in range(2 * case.ends + 2):
            before = 0 if half in parted else runs[-1]
            runs.append(before + 1 if half in halves else 0)
        return max(runs) / 2 / S

    def broken(halves: set[int]) -> bool:
        return longest(halves) > outage_s_max or 1 - len(halves) / (2 * case.ends) < ratio_min - 1e-12

    return Verdict.INVALID if broken(ticks) else Verdict.UNKNOWN if broken(maybe) else Verdict.VALID


@given(cases(), st.sampled_from([1, 3, 8, 20]), st.sampled_from([0.5, 0.8, 0.97]))
def test_uptime(case: Case, outage_s_max: float, ratio_min: float) -> None:
    finding = Uptime(outage_s_max=outage_s_max, ratio_min=ratio_min).check(case.history)
    assert finding.verdict is up(case, outage_s_max, ratio_min), finding.summary


@st.composite
def one_by_one(draw: st.DrawFn) -> Case:
    """Single nodes die and come back, one after another, beside a load whose rate changes every few seconds."""
    kills: list[Kill] = []
    tick = STEADY
    for _ in range(draw(st.integers(0, 3))):
        start = tick + draw(st.integers(1, 20)) * S
        kills.append(
            Kill((draw(st.sampled_from(THREE)),), start, start + draw(st.integers(1, 12)) * S, draw(st.integers(0, S)))
        )
        tick = kills[-1].back
    ends = tick + draw(st.integers(1, 30)) * S
    messages = [(t, t, CONFIRMED) for t in range(0, STEADY, 5)]
    tick = STEADY
    while tick < ends:
        every, until = draw(st.sampled_from([5, 5, 5, 7, 25, 50])), min(ends, tick + draw(st.integers(1, 15)) * S)
        messages += [(t, t, CONFIRMED) for t in range(tick, until, every)]
        tick = until
    moved = draw(st.lists(st.tuples(st.integers(STEADY + 1, ends), st.integers(1, 6 * S)), max_size=2))
    rebalanced = tuple((start, min(start + lasts, ends)) for start, lasts in moved)
    return Case(tuple(messages), tuple(kills), ends, rebalanced, draw(st.sampled_from(["quorum", "mirrored"])))


WINDOW_S, SETTLE_S, LOST_S = 3, 4, 8


def kept_pace(case: Case) -> Verdict:
    """Window by window, of ten messages a second; whole ticks, so that each window has just its confirms."""
    exempt = set()
    for kill in case.kills:
        noticed = max(kill.start + SETTLE_S * S, min(kill.start + LOST_S * S, kill.back))
        exempt |= {*range(kill.start, noticed), *range(kill.back, kill.back + SETTLE_S * S)}
    for start, end in case.rebalanced if case.kind == "mirrored" else ():
        exempt |= {*range(start, end + SETTLE_S * S)}
    windows, begun = [], None
    for tick in range(STEADY, case.ends + 1):
        if tick in exempt or tick == case.ends:
            begun = None
        elif begun is None:
            begun = tick
        if begun is not None and tick + 1 - begun == WINDOW_S * S:
            windows.append((begun, tick + 1))
            begun = None
    enough = WINDOW_S * 10 / 2
    confirms = case.confirms

    def counted(start: int, end: int) -> int:
        return sum(start <= tick < end for tick in confirms)

    if any(counted(*window) < enough for window in windows):
        return Verdict.INVALID
    healed = max((kill.end for kill in case.kills), default=0)
    late_enough = any(start >= healed for start, _ in windows)
    last = case.ends - WINDOW_S * S
    seen = late_enough or (last >= healed and counted(last, case.ends) >= enough)
    return Verdict.VALID if windows and seen else Verdict.UNKNOWN


@given(one_by_one())
def test_throughput(case: Case) -> None:
    demands = Throughput(ratio_min=0.5, window_s=WINDOW_S, grace_s=SETTLE_S, lost_grace_s=LOST_S)
    finding = demands.check(case.history)
    assert finding.verdict is kept_pace(case), finding.summary
