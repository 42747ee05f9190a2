"""What a run tells of its brokers, from histories that are written by hand."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from rabbitmq_resilience.extensions.sweeps.measures import MEASURES
from rabbitmq_resilience.extensions.sweeps.of_brokers import depth_over_time
from rabbitmq_resilience.extensions.sweeps.seen import JudgedRun, Over
from rabbitmq_resilience.history.events import SampleEvent
from tests.invariants.literal import (
    THREE,
    Row,
    cluster,
    event,
    fault,
    history,
    node_states,
    phases,
    publish,
    queues,
    sample,
    told,
)
from tests.sweeps.test_compare_command import PLAYED


def measured(
    name: str,
    *events: Any,
    over: Over = "steady",
    publishes: Iterable[Row] = (),
    metrics: Iterable[Sequence[Row]] = (),
    states: Any = None,
) -> float | None:
    whole = [cluster(), queues("q1"), phases(), states or node_states(), *events]
    seen = JudgedRun(history(publishes, (), whole, metrics=metrics), over, PLAYED, {})
    return MEASURES[name].of(seen)


def memory(at_s: float, **mb: float) -> SampleEvent:
    return replace(sample(at_s), memory_bytes={node: round(value * 2**20) for node, value in mb.items()})


def test_brokers_are_known_by_their_own_account_of_the_span_alone() -> None:
    cores = [told("cores", node, lambda at: 0.5 if 0 <= at <= 10 else 9.0) for node in THREE]
    assert measured("brokers_cores", metrics=cores) == pytest.approx(1.5)
    assert measured("brokers_cores") is None
    half = [*cores[:1], told("cores", "b1", lambda at: 0.5 if at > 5 else None), *cores[2:]]
    down = node_states(unlike={"b1": [(-1, 5, "down")]})
    whole = measured("brokers_cores", metrics=half)
    assert whole == pytest.approx(1.5), "one that was not asked went on"
    assert measured("brokers_cores", metrics=half, states=down) == pytest.approx(1 + 0.5 * 11 / 21), "one that is down"
    assert measured("brokers_cores", metrics=cores[:2]) is None, "one that runs told nothing"
    two = node_states(THREE[:2])
    assert measured("brokers_cores", metrics=cores, states=two) is None, "whether the third runs is unknown"


def test_messages_are_counted_for_each_second_of_their_processors() -> None:
    confirmed = [publish(number, number / 100) for number in range(1000)]
    cores = [told("cores", node, 0.25) for node in THREE]
    assert measured("messages_per_core_s", publishes=confirmed, metrics=cores) == pytest.approx(100 / 0.75, rel=0.02)
    assert measured("messages_per_core_s", publishes=confirmed) is None


def test_memory_is_that_of_all_brokers_in_the_middle_of_the_span() -> None:
    samples = [memory(at, a1=100 + at, b1=100.0, c1=50) for at in range(-3, 60)]
    silent = [memory(at + 0.5, a1=100 + at, b1=100.0) for at in range(-3, 60)]
    assert measured("memory_mb", *samples, *silent) == pytest.approx(255)
    assert measured("memory_mb", *silent) is None, "nobody told of all of them"
    assert measured("memory_mb") is None


def idle(at_s: float, *connected: int) -> list[Any]:
    return [event(at_s, "idle", worker=f"idle-{n}", connected=c, wanted=500) for n, c in enumerate(connected)]


def test_a_connection_takes_what_memory_grew_by_for_each() -> None:
    began = event(-4, "worker", worker="publisher-0", event="connected", node="a1")
    of_the_run_before, before = memory(-6, a1=900, b1=900, c1=900), memory(-5, a1=100, b1=100, c1=20)
    after = [memory(-2, a1=150, b1=140, c1=20), memory(5, a1=180, b1=170, c1=20)]
    there = [*idle(-3, 10, 0), *idle(-1, 500, 500)]
    taken_kb = pytest.approx(150 * 1.024)
    assert measured("connection_kb", began, of_the_run_before, before, *after, *there) == taken_kb
    assert measured("connection_kb", began, *after, *there) is None, "nobody looked before"
    one_silent = replace(before, memory_bytes={"a1": 100 * 2**20})
    assert measured("connection_kb", began, one_silent, *after, *there) is None, "a broker did not tell of its memory"
    assert measured("connection_kb", began, before, *after, *idle(-1, 5, 5)) is None, "ten connections tell nothing"
    assert measured("connection_kb", began, before, *after) is None


def test_what_was_declared_before_the_load_is_counted_a_second() -> None:
    took = [
        event(-9, "set_up", what="queues", count=50, took_s=2.0),
        event(-8, "set_up", what="bindings", count=900, took_s=3.0),
    ]
    assert (measured("queues_per_s", *took), measured("bindings_per_s", *took)) == (25, 300)
    assert measured("bindings_per_s", took[0]) is None


def test_nodes_took_it_for_a_partition_that_paused_or_reported_one() -> None:
    assert measured("parted_nodes") == 0
    paused = node_states(unlike={"c1": [(20, 30, "paused")]})
    assert measured("parted_nodes", states=paused) == 1
    killed = node_states(unlike={"c1": [(20, 24, "down"), (24, 30, "paused")]})
    assert measured("parted_nodes", states=killed) == 0, "a broker that starts looks so as well"
    parted = replace(sample(25), partitions={"c1": ["a1"], "a1": ["c1"]})
    assert measured("parted_nodes", parted, states=paused) == 2
    assert measured("parted_nodes", replace(parted, t_us=0)) == 0, "before the steady phase it was another run's"


def told_by(node: str, at_s: float, leaders: Mapping[str, str | None]) -> SampleEvent:
    rows = {queue: {"ready": 0, "unacked": 0, "leader": leader} for queue, leader in leaders.items()}
    return replace(sample(at_s), node=node, queues=rows)


def ill(*at_s: float) -> list[SampleEvent]:
    """Looks that tell of a queue that ``b1`` leads."""
    return [told_by("a1", at, {"q1": "b1", "q2": "a1"}) for at in at_s]


def test_others_have_cleaned_up_when_none_reports_a_queue_that_is_led_by_who_went() -> None:
    gone = node_states(unlike={"b1": [(12.2, 20, "down")]})
    before, late = ill(11), ill(13)
    clean = told_by("a1", 15.5, {"q1": None, "q2": "a1"})
    assert measured("cleaned_up_s", *before, *late, clean, states=gone) == pytest.approx(3.5)
    deleted = told_by("c1", 14, {"q2": "a1"})
    assert measured("cleaned_up_s", *before, *late, deleted, states=gone) == pytest.approx(2)
    never = [*before, *ill(13, 15, 17, 19), told_by("a1", 21, {})]
    assert measured("cleaned_up_s", *never, states=gone) == math.inf, "it was back"
    assert measured("cleaned_up_s", *before, *late) is None, "nobody went"
    led_none = told_by("a1", 11, {"q1": "a1"})
    assert measured("cleaned_up_s", led_none, told_by("a1", 13, {"q1": "a1"}), states=gone) is None, "nothing to clean"
    empty = [told_by("a1", 12.7, {}), told_by("a1", 14, {"q1": "b1"}), told_by("a1", 16.2, {"q1": None})]
    assert measured("cleaned_up_s", *before, *empty, states=gone) == pytest.approx(4.2), "it was told of once more"


def test_when_no_one_looked_it_is_not_known_when_they_cleaned_up() -> None:
    gone = node_states(unlike={"b1": [(12.2, 30, "down")]})
    before, clean = ill(11), told_by("a1", 21, {"q1": None})
    assert measured("cleaned_up_s", *before, *ill(13), clean, states=gone) is None
    assert measured("cleaned_up_s", *before, *ill(13, 16.5), clean, states=gone) == pytest.approx(9)
    assert measured("cleaned_up_s", *before, clean, states=gone) is None
    assert measured("cleaned_up_s", *before, *ill(13, 17, 21), states=gone) is None, "perhaps before it was back"


def test_a_queue_that_a_node_leads_again_while_it_starts_was_cleaned_up_before() -> None:
    before, cleaned = ill(11)[0], told_by("a1", 14.2, {"q1": None})
    again = told_by("c1", 29.9, {"q1": "b1"})
    killed = node_states(unlike={"b1": [(12.2, 24, "down"), (24, 30, "paused")]})
    assert measured("cleaned_up_s", before, cleaned, again, states=killed) == pytest.approx(2.2)
    late = [*ill(14.2, 18, 22), told_by("a1", 25, {"q1": None})]
    assert measured("cleaned_up_s", before, *late, states=killed) == math.inf, "it was started before"
    halted = node_states(unlike={"b1": [(12.2, 24, "suspended")]})
    assert measured("cleaned_up_s", before, cleaned, again, states=halted) == pytest.approx(2.2)


def test_a_node_that_paused_is_away_until_its_links_heal() -> None:
    before, cleaned = ill(11)[0], told_by("a1", 14.2, {"q1": None})
    again = told_by("c1", 29.9, {"q1": "b1"})
    paused = node_states(unlike={"b1": [(12.2, 30, "paused")]})
    cut = fault(11, 28, cut=[("b1", "a1"), ("b1", "c1")])
    other = fault(11, 13, step=1, name="latency", slow=[("a1", "c1")], slow_s=0.1)
    assert measured("cleaned_up_s", before, cleaned, again, *cut, *other, states=paused) == pytest.approx(2.2)
    assert measured("cleaned_up_s", before, cleaned, states=paused) == pytest.approx(2.2), "nothing was cut"
    for_good = node_states(unlike={"b1": [(12.2, 99, "paused")]}, end_s=20)
    assert measured("cleaned_up_s", before, *ill(14, 17, 19), states=for_good) == math.inf, "it never came back"


def test_what_queues_held_at_the_most_is_not_reported_where_no_one_looked_for_long() -> None:
    def held(at_s: float, ready: int | None) -> SampleEvent:
        return replace(sample(at_s), queues={"q1": {"ready": ready, "unacked": 0}})

    looks = [held(at, 5 if at == 3 else 1) for at in range(-2, 12)]
    assert measured("depth_max", *looks) == 5
    assert measured("depth_max") is None, "nobody looked"
    rare = [look for look in looks if look.t_us not in {held(at, 0).t_us for at in (4, 5, 6, 7)}]
    assert measured("depth_max", *rare) == 5, "5 s without a look"
    away = [held(at, None if 4 <= at < 9 else 1) for at in range(-2, 12)]
    assert measured("depth_max", *away) is None, "the queue's broker was away for more"
    early = [held(at, 1) for at in range(-2, 4)]
    assert measured("depth_max", *early) is None, "nobody looked to the end"
    whole = history((), (), [cluster(), queues("q1"), phases(), node_states(), *away])
    told = depth_over_time(JudgedRun(whole, "steady", PLAYED, {}))
    assert [held for _, held in told].count(None) == 1
    assert [b[0] - a[0] for a, b in pairwise(told)].count(3.0) == 2, "the gap is marked in its middle"
