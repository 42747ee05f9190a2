"""What others can have had of the machine, held to made-up seconds of which it is known."""

from __future__ import annotations

import random
from collections import Counter
from itertools import pairwise
from typing import Any

import pytest

from rabbitmq_resilience.checkers.machine_load import OTHERS_CPU_MIN, could_take, describe_others, others_cpu
from tests.invariants.literal import cluster, event, history, phases, us
from tests.invariants.test_lateness import looks
from tests.messages import Messages


def test_what_others_took_of_some_seconds_may_all_have_been_in_one_of_them() -> None:
    facts = history((), (), [cluster(), phases(), looks(5, {"a1": [0.0] * 20}, others=0.125)]).facts
    told = {length_s: others_cpu(facts, us(10), us(10 + length_s)) for length_s in (5, 2.5, 0.5)}
    assert told == {5: 0.125, 2.5: OTHERS_CPU_MIN, 0.5: 1.0}
    assert others_cpu(facts, us(10), us(10)) == 0, "no time"
    assert others_cpu(facts, us(30), us(40)) == 0, "nobody looked"


@pytest.mark.parametrize("seed", range(3))
def test_what_others_may_have_taken_is_the_most_that_they_can_have(seed: int) -> None:
    """Second by second, by what each look leaves possible: whole seconds of a full machine, as early or as late as they
    can be."""
    source = random.Random(seed)  # noqa: S311 - no secret
    for _ in range(150):
        takes = [source.choice((0, 0, 1)) for _ in range(40)]
        ends_s = sorted({*source.sample(range(1, 40), source.randint(1, 15)), 40})
        spans = list(pairwise([0, *ends_s]))
        seen = [event(end, "machine", busy=1.0, others=sum(takes[start:end]) / (end - start)) for start, end in spans]
        facts = history((), (), [cluster(), phases(), seen]).facts
        from_s = source.randint(0, 38)
        until_s = source.randint(from_s + 1, 40)
        most = 0
        for start, end in spans:
            inside = [start <= at < end for at in range(from_s, until_s)]
            most += min(sum(inside), sum(takes[start:end]))
        told = others_cpu(facts, us(from_s), us(until_s))
        assert told == pytest.approx(most / (until_s - from_s))
        assert told >= sum(takes[from_s:until_s]) / (until_s - from_s) - 1e-9


def test_who_took_the_machine_then_is_named(message: Messages) -> None:
    by: list[Any] = [{"make": 0.5}, {"cc": 0.3, "ld": 0.1}, {"cc": 0.1, "ld": 0.4, "as": 0.2}, {"make": 0.5}, None]
    seen = [event(5 * n, "machine", busy=1.0, others=0.5, by=one) for n, one in enumerate(by, 1)]
    facts = history((), (), [cluster(), phases(), seen]).facts
    for span_s, programs in (((5, 15), "(ld, cc)"), ((20, 25), "")):
        others = describe_others(facts, *map(us, span_s))
        assert "50%" in others
        assert others.endswith(programs or "then")
        message(others)
    assert describe_others(facts, us(26), us(30)) == ""


@pytest.mark.parametrize("seed", range(3))
def test_others_can_have_taken_much_of_all_windows_or_not(seed: int) -> None:
    """Held to all ways to spread quarters of seconds over the looks, where there are few."""
    source = random.Random(seed)  # noqa: S311 - no secret
    told: Counter[bool] = Counter()
    for _ in range(200):
        ends_s = [0, *sorted(source.sample(range(1, 9), source.randint(1, 3)))]
        spans = list(pairwise(ends_s))
        quarters = [source.randint(0, 4 * (end - start)) // source.choice((1, 2, 4)) for start, end in spans]
        seen = [
            event(end, "machine", busy=1.0, others=taken / 4 / (end - start))
            for (start, end), taken in zip(spans, quarters, strict=True)
        ]
        edges = sorted(source.sample(range(9), source.choice((2, 4, 6))))
        windows = list(zip(edges[::2], edges[1::2], strict=True))
        facts = history((), (), [cluster(), seen]).facts
        fast = could_take(facts, [(us(start), us(end)) for start, end in windows])
        assert fast is _is_possible(windows, spans, quarters), (windows, spans, quarters)
        told[fast] += 1
    assert min(told.values()) > 20


def _is_possible(windows: list[tuple[int, int]], spans: list[tuple[int, int]], quarters: list[int]) -> bool:
    """By trying: each window takes a quarter of each of its seconds from the looks that it meets, in any order."""
    if not windows:
        return True
    (start, end), *rest = windows

    def ways(need: int, look: int, left: list[int]) -> bool:
        if look == len(spans):
            return need == 0 and _is_possible(rest, spans, left)
        shared = 4 * max(0, min(end, spans[look][1]) - max(start, spans[look][0]))
        for take in range(min(need, shared, left[look]) + 1):
            if ways(need - take, look + 1, [*left[:look], left[look] - take, *left[look + 1 :]]):
                return True
        return False

    return ways(end - start, 0, quarters)


def test_looks_say_over_which_time_they_go() -> None:
    seen = [event(65, "machine", busy=1.0, others=0.1, over_s=5.0), event(75, "machine", busy=1.0, others=0.1)]
    facts = history((), (), [cluster(), phases(), seen]).facts
    assert others_cpu(facts, us(60), us(65)) == pytest.approx(0.1)
    assert others_cpu(facts, us(50), us(60)) == 0
    assert others_cpu(facts, us(65), us(75)) == pytest.approx(0.1)


def test_a_blink_names_no_one() -> None:
    names = [{"gcc": 0.9}, {"blip": 0.6, "blop": 0.4}, {"sshd": 0.01}]
    seen = [
        event(at_s, "machine", busy=1.0, others=others, by=by)
        for at_s, others, by in zip((5, 5.02, 10), (0.9, 1.0, 0.6), names, strict=True)
    ]
    facts = history((), (), [cluster(), phases(), seen]).facts
    assert describe_others(facts, us(1), us(5.02)).endswith("then (gcc)")
    assert describe_others(facts, us(6), us(10)).endswith("processors then"), "sshd took a sixtieth of it"
