"""What is judged by samples, against a truth of which only a part is seen: generated second by second, with holes."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

from hypothesis import example, given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.backlog import REST_RATIO, UNKNOWN_S_MAX, Backlog
from rabbitmq_resilience.checkers.gaps import UNSEEN_S_MAX, UNWATCHED_S_MAX
from rabbitmq_resilience.checkers.recovery import WHOLE_S_MIN, Recovery
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import cluster, event, fault, history, node_states, phases, queues, sample, us

HEALED_S = 20

Spans = tuple[tuple[int, int], ...]


def within(at: int, spans: Spans) -> bool:
    return any(start <= at < end for start, end in spans)


@st.composite
def spans(draw: st.DrawFn, first: int, last: int, *, longest: int) -> Spans:
    starts = draw(st.lists(st.integers(first, last), max_size=3))
    return tuple((start, start + draw(st.integers(1, longest))) for start in sorted(starts))


def at_s(look: Event) -> float:
    return (look.t_us - us(0)) / 1e6


def longest_gap(moments: Sequence[float], start: float, end: float) -> float:
    looks = [start, *(at for at in moments if start < at < end), end]
    return max(b - a for a, b in itertools.pairwise(looks))


@dataclass(frozen=True)
class Recovered:
    """A queue that has no leader at some seconds, of which nobody hears at others; and when nobody looked at nodes."""

    ill: Spans
    holes: Spans
    end: int
    unwatched: Spans = ()

    @property
    def looks(self) -> list[int]:
        return [at for at in range(self.end) if not within(at, self.holes)]

    @property
    def whole_from(self) -> int:
        """The first second from which on it is never ill again."""
        ill = [at for at in range(HEALED_S, self.end) if within(at, self.ill)]
        return max(ill) + 1 if ill else HEALED_S


@st.composite
def recoveries(draw: st.DrawFn) -> Recovered:
    end = draw(st.integers(HEALED_S + 5, 90))
    holes = draw(spans(HEALED_S, end, longest=30))
    return Recovered(draw(spans(0, end, longest=20)), holes, end, draw(spans(0, end, longest=10)))


WITHIN_S = 15


@given(recoveries())
@example(Recovered(ill=((0, 21), (26, 46)), holes=((21, 45),), end=47))  # a look that is not believed tells nothing
def test_recovery(truth: Recovered) -> None:
    samples = [sample(at, leader=None if within(at, truth.ill) else "a1") for at in truth.looks]
    told = phases(steady=0, chaos=5, recovery=HEALED_S, drain=truth.end - 1, end=truth.end)
    states = [look for look in node_states(end_s=truth.end) if not within(int(at_s(look)), truth.unwatched)]
    healed = fault(10, HEALED_S, name="kill")
    finding = Recovery(within_s=WITHIN_S).check(
        history((), (), [cluster(), queues("q1"), told, states, healed, samples])
    )
    after = [at for at in truth.looks if at >= HEALED_S]
    ill_looks = [at for at in after if within(at, truth.ill)]
    slow_to_tell = [
        at for at in ill_looks if at not in {after[0], after[-1]} and not any(0 < abs(at - o) < 10 for o in ill_looks)
    ]
    believed = [at for at in ill_looks if at not in slow_to_tell]
    whole = truth.whole_from
    watched = [at_s(look) for look in states if at_s(look) >= HEALED_S]
    if finding.verdict is Verdict.VALID:
        seen_whole = min((at for at in after if at > max(believed, default=-1)), default=truth.end)
        assert seen_whole - HEALED_S <= WITHIN_S
        in_time = [at for at in after if seen_whole <= at <= HEALED_S + WITHIN_S]
        assert longest_gap(after, max(in_time), truth.end) <= UNSEEN_S_MAX
        watched_in_time = [at for at in watched if at <= HEALED_S + WITHIN_S]
        assert longest_gap(watched, max(watched_in_time), truth.end) <= UNWATCHED_S_MAX
    if finding.verdict is Verdict.INVALID:
        assert whole - HEALED_S > WITHIN_S - UNSEEN_S_MAX
        assert [at for at in believed if at - HEALED_S >= WITHIN_S - UNSEEN_S_MAX]
        assert longest_gap(watched, HEALED_S, truth.end) <= UNWATCHED_S_MAX
    watched_all = not any(within(at, truth.unwatched) for at in range(HEALED_S, truth.end))
    seen_all = watched_all and (not truth.holes or longest_gap(after, HEALED_S, truth.end) == 1)
    if seen_all and not slow_to_tell:
        if whole - HEALED_S <= WITHIN_S and truth.end - whole >= WHOLE_S_MIN:
            assert finding.verdict is Verdict.VALID, finding.summary
        runs_long = all({at - 1, at + 1} & {*ill_looks} for at in ill_looks)
        if runs_long and whole - HEALED_S > WITHIN_S + 1:
            assert finding.verdict is Verdict.INVALID, finding.summary


@given(recoveries(), st.integers(0, 60))
def test_what_no_one_saw_until_the_end_is_never_valid(truth: Recovered, last_look: int) -> None:
    """Planted: the samples end early."""
    if truth.end - last_look <= UNSEEN_S_MAX + 1:
        return
    samples = [sample(at) for at in range(last_look)]
    told = phases(steady=0, chaos=5, recovery=HEALED_S, drain=truth.end - 1, end=truth.end)
    judged = history((), (), [cluster(), queues("q1"), told, node_states(end_s=truth.end), samples])
    assert Recovery(within_s=WITHIN_S).check(judged).verdict is Verdict.UNKNOWN


@dataclass(frozen=True)
class Piled:
    """What a queue truly holds at each second, and when nobody tells."""

    depths: tuple[int, ...]
    holes: Spans

    @property
    def told(self) -> dict[int, int]:
        return {at: depth for at, depth in enumerate(self.depths) if not within(at, self.holes)}


CHAOS_S, BOUND_S = 10, 25


@st.composite
def piles(draw: st.DrawFn) -> Piled:
    depths = [100] * CHAOS_S
    for _ in range(draw(st.integers(1, 5))):
        target, lasts = draw(st.sampled_from([0, 50, 100, 3000, 10_000, 60_000])), draw(st.integers(1, 20))
        step = (target - depths[-1]) / lasts
        depths += [max(0, round(depths[-1] + step * (i + 1))) for i in range(lasts)]
    return Piled(tuple(depths), draw(spans(CHAOS_S, len(depths), longest=30)))


def drained_after(depths: dict[int, int]) -> int | None:
    """By the words of the invariant, of what is given; None where it never is, 0 where it did not grow."""
    peak = max(depths.values())
    steady = max(depth for at, depth in depths.items() if at < CHAOS_S)
    if peak <= 3 * steady:
        return 0
    longest_at = longest_from(depths)
    rest = max(steady, REST_RATIO * peak)
    drained = [at for at in depths if at > longest_at and all(d <= rest for t, d in depths.items() if t >= at)]
    return min(drained) - longest_at if drained else None


def longest_from(depths: dict[int, int]) -> int:
    """Return from when on a queue that grew held the most, or nearly that."""
    peak, steady = max(depths.values()), max(depth for at, depth in depths.items() if at < CHAOS_S)
    return min(at for at, depth in depths.items() if depth >= 0.99 * peak or depth >= peak - min(steady, 0.05 * peak))


def perhaps_empty(depths: dict[int, int]) -> dict[int, int]:
    """Return the depths with a queue that was empty between looks that are more than 2 s apart."""
    empty = {before + 1: 0 for before, after in itertools.pairwise(sorted(depths)) if after - before > 2}
    return depths | empty


def verdict(piled: Piled) -> Verdict:
    samples = [
        event(at, "sample", queues={"q1": {"ready": depth, "unacked": 0}}, memory_bytes={})
        for at, depth in piled.told.items()
    ]
    told = phases(steady=0, chaos=CHAOS_S, end=len(piled.depths))
    return Backlog(drained_within_s=BOUND_S).check(history((), (), [cluster(), queues("q1"), told, *samples])).verdict


@given(piles())
def test_backlog_where_all_is_reported(piled: Piled) -> None:
    whole = Piled(piled.depths, ())
    after = drained_after(whole.told)
    if after is not None:
        assert verdict(whole) is (Verdict.VALID if after <= BOUND_S else Verdict.INVALID)
    else:
        watched = len(piled.depths) - 1 - longest_from(whole.told)
        assert verdict(whole) is (Verdict.INVALID if watched >= BOUND_S else Verdict.UNKNOWN)


@given(piles())
@example(Piled((*[100] * 10, *range(3000, 0, -177), *[0] * 10), ((27, 36),)))
def test_backlog_where_some_is_not_reported(piled: Piled) -> None:
    """What is not told for up to 10 s is taken as being as before and after, unless the queue may have been empty, and
    that decides."""
    told, found = list(piled.told), verdict(piled)
    gap = max(after - before for before, after in itertools.pairwise([*told, len(piled.depths)]))
    truth, seen = drained_after(dict(enumerate(piled.depths))), drained_after(piled.told)
    if max(told) < CHAOS_S or len(piled.depths) - max(told) > UNKNOWN_S_MAX:
        assert found is Verdict.UNKNOWN
    elif gap > UNKNOWN_S_MAX:
        if found is Verdict.VALID and truth is not None and seen:
            assert truth <= BOUND_S + UNKNOWN_S_MAX
        if found is Verdict.INVALID:
            assert truth is None or truth > BOUND_S - UNKNOWN_S_MAX
    elif seen is not None:
        perhaps = drained_after(perhaps_empty(piled.told))
        decided = Verdict.VALID if seen <= BOUND_S else Verdict.INVALID
        is_sure = perhaps is not None and (perhaps <= BOUND_S) == (seen <= BOUND_S)
        assert found is (decided if is_sure else Verdict.UNKNOWN)
