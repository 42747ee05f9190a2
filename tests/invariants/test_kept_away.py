"""Publishers that steps killed or cut off: what stands still without them is not the brokers' doing."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import pytest

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.checkers.times import Times, periods
from rabbitmq_resilience.checkers.unreachable_clients import kept_away
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import (
    THREE,
    Row,
    apart,
    cluster,
    event,
    fault,
    history,
    load,
    node_states,
    phases,
    publish,
    queues,
    us,
)

STEP = fault(20, 50, name="kill_client")


def killed(start_s: float, end_s: float, *, publisher: int = 0) -> list[Event]:
    told = [(start_s, "killed", 0), (end_s, "started", 1), (end_s + 0.5, "connected", 1)]
    worker = f"publisher-{publisher}"
    return [event(at_s, "worker", worker=worker, event=what, node="", life=life) for at_s, what, life in told]


def cut_off(start_s: float, end_s: float, *nodes: str, step: int = 0) -> list[Event]:
    return fault(start_s, end_s, step=step, cut=apart(["publisher:0"], nodes, one_way=True))


def rows(*spans_s: tuple[float, float], queue: int = 0, publisher: int = 0) -> list[Row]:
    """A message each tenth of a second."""
    at_s = [start + n / 10 for start, end in spans_s for n in range(round(10 * (end - start)))]
    return [publish(n, t, queue=queue, publisher=publisher) for n, t in enumerate(at_s)]


BALANCED = {"balancer:0": ("a1", "b1"), "balancer:1": ("a1", "b1")}
Spans = list[tuple[float, float]]


def balancers_gone(
    start_s: float, end_s: float, *names: str, nodes: Sequence[str] = ("a1", "b1"), step: int = 0
) -> list[Event]:
    return fault(start_s, end_s, step=step, name="kill_balancer", cut=apart(names, nodes), sudden=True)


def all_away(
    *events: Sequence[Event], addresses: Mapping[str, Sequence[str]] | None = None
) -> tuple[dict[int, Spans], Spans]:
    """Of those that are told by themselves, and of all others."""
    seen = sorted([cluster(addresses=addresses), *(e for part in events for e in part)], key=lambda e: e.t_us)
    found = kept_away(Facts(seen))

    def spans(when: Times) -> Spans:
        return [(start - us(0), end - us(0)) for start, end in periods(when)]

    return {number: spans(when) for number, when in found.of.items()}, spans(found.others)


def away_of(*events: Sequence[Event]) -> dict[int, Spans]:
    told, others = all_away(*events)
    assert others == []
    return told


def test_away_is_who_was_killed_until_it_is_started() -> None:
    assert away_of() == {}
    assert away_of(killed(20, 31), killed(40, 42), killed(50, 52, publisher=12)) == {
        0: [(20e6, 31e6), (40e6, 42e6)],
        12: [(50e6, 52e6)],
    }
    assert away_of(killed(20, 31)[:1]) == {0: [(20e6, NEVER_US)]}
    consumer = [event(20, "worker", worker="consumer-0", event="killed")]
    assert away_of(consumer) == {}


def test_away_is_who_was_cut_off_from_every_node_by_all_steps_together() -> None:
    assert away_of(cut_off(20, 50, *THREE)) == {0: [(20e6, 50e6)]}
    assert away_of(cut_off(20, 50, "a1", "b1")) == {}
    assert away_of(cut_off(20, 50, "a1", "b1"), cut_off(30, 60, "c1", step=1)) == {0: [(30e6, 50e6)]}
    consumer = fault(20, 50, cut=apart(["consumer:0"], THREE))
    assert away_of(consumer) == {}


def test_all_are_away_where_all_balancers_are_gone_or_lead_to_no_one() -> None:
    both = balancers_gone(20, 50, "balancer:0", "balancer:1")
    assert all_away(both, addresses=BALANCED) == ({}, [(20e6, 50e6)])
    assert all_away(balancers_gone(20, 50, "balancer:0"), addresses=BALANCED) == ({}, [])
    in_turn = balancers_gone(20, 50, "balancer:0"), balancers_gone(40, 60, "balancer:1", step=1)
    assert all_away(*in_turn, addresses=BALANCED) == ({}, [(40e6, 50e6)])
    one_way_left = balancers_gone(20, 50, "balancer:0"), balancers_gone(20, 50, "balancer:1", nodes=["b1"], step=1)
    assert all_away(*one_way_left, addresses=BALANCED) == ({}, [])


def test_one_is_away_who_has_no_way_by_any_balancer() -> None:
    its_own = cut_off(20, 50, "balancer:1")
    assert all_away(its_own, addresses=BALANCED) == ({}, [])
    assert all_away(cut_off(20, 50, *BALANCED), addresses=BALANCED) == ({0: [(20e6, 50e6)]}, [])
    other_died = balancers_gone(30, 60, "balancer:0", step=1)
    assert all_away(its_own, other_died, addresses=BALANCED) == ({0: [(30e6, 50e6)]}, [])


def test_nodes_without_clients_are_no_way() -> None:
    assert all_away(cut_off(20, 50, "a1"), addresses={"a1": ["a1"]}) == ({0: [(20e6, 50e6)]}, [])


DOWN: Mapping[str, Any] = {"unlike": {"c1": [(20, 55, "down")]}}


def test_a_node_that_is_away_is_no_way() -> None:
    """From the others the publisher is cut off."""
    its_own, killed_node = cut_off(20, 50, "a1", "b1"), fault(20, 50, step=1, down=["c1"])
    assert all_away(its_own, killed_node, node_states(**DOWN)) == ({0: [(20e6, 50e6)]}, [])
    to_a_balancer = balancers_gone(20, 50, "balancer:0", nodes=["a1", "b1"])
    behind = {"balancer:0": THREE}
    assert all_away(to_a_balancer, killed_node, node_states(**DOWN), addresses=behind) == ({}, [(20e6, 50e6)])


def test_a_node_that_pauses_with_reason_is_no_way() -> None:
    """It is cut off together with the publisher."""
    cut = fault(20, 50, cut=[*apart(["c1"], ["a1", "b1"]), *apart(["publisher:0"], ["a1", "b1"])], sudden=True)
    seen = node_states(unlike={"c1": [(21, 55, "paused")]})
    away, others = all_away(cut, seen, phases())
    assert (list(away), others) == ([0], [])
    assert away[0][0][0] <= 21.5e6
    assert away[0][-1][1] >= 50e6


def test_where_all_nodes_that_take_clients_are_away_no_one_can_publish() -> None:
    killed_node = fault(20, 50, down=["c1"])
    assert all_away(killed_node, node_states(**DOWN), addresses={"c1": ["c1"]}) == ({}, [(20e6, 55e6)])
    assert all_away(killed_node, node_states(**DOWN)) == ({}, [])


def test_either_way_of_a_link_between_client_and_balancer_is_the_clients() -> None:
    for link in (("publisher:0", "balancer:0"), ("balancer:0", "publisher:0")):
        cut = fault(20, 50, cut=[link])
        assert all_away(cut, addresses={"balancer:0": THREE}) == ({0: [(20e6, 50e6)]}, [])


def of_own_zones(*, publishers: int) -> Event:
    fields = {"rate_per_s": 10, "variable_rate": [], "publishers": publishers, "reconnect": "own_zone"}
    return event(10, "load", begins_us=us(10), **fields)


def test_who_keeps_to_a_zone_is_away_while_no_node_of_it_serves() -> None:
    killed_node = fault(20, 50, down=["b1"])
    seen = node_states(unlike={"b1": [(20, 55, "down")]})
    own = of_own_zones(publishers=4)
    assert all_away(killed_node, seen, [own]) == ({1: [(20e6, 55e6)]}, [])
    assert all_away(killed_node, seen, [load(10, 10)]) == ({}, [])
    others = fault(20, 50, down=["b1", "c1"]), node_states(unlike={n: [(20, 55, "down")] for n in ("b1", "c1")})
    assert all_away(*others, [own])[0].keys() == {1, 2}


def test_who_keeps_to_a_zone_is_away_while_it_pauses_with_reason() -> None:
    cut = fault(20, 50, cut=apart(["c1"], ["a1", "b1"]), sudden=True)
    seen = node_states(unlike={"c1": [(21, 55, "paused")]})
    away, others = all_away(cut, seen, phases(), [of_own_zones(publishers=3)])
    assert list(away) == [2]
    assert others == []
    assert away[2][0][0] <= 21.5e6
    assert away[2][-1][1] >= 50e6


@pytest.mark.parametrize(("names", "verdict"), [(list(BALANCED), Verdict.VALID), (["balancer:0"], Verdict.INVALID)])
def test_queues_stand_still_without_balancers(names: list[str], verdict: Verdict) -> None:
    silent = rows((0, 20), (51, 90))
    made = [cluster(addresses=BALANCED), phases(), queues("q1"), node_states(), load(10, 10)]
    told = history(silent, (), [*made, balancers_gone(20, 50, *names)])
    assert Availability().check(told).verdict is verdict
    assert Throughput().check(told).verdict is verdict


@pytest.mark.parametrize(("back_s", "verdict"), [(30, Verdict.VALID), (45, Verdict.INVALID)])
def test_the_rate_has_its_grace_while_clients_go_another_way(back_s: float, verdict: Verdict) -> None:
    made = [cluster(addresses=BALANCED), phases(), queues("q1"), node_states(), load(10, 10)]
    told = history(rows((0, 20), (back_s, 90)), (), [*made, balancers_gone(20, 60, "balancer:0")])
    assert Throughput().check(told).verdict is verdict


def judged(invariant: Availability | Throughput, published: list[Row], *events: Sequence[Event]) -> Finding:
    made = [cluster(), phases(), queues("q1"), node_states(), load(10, 10 * len({r["publisher"] for r in published}))]
    return invariant.check(history(published, (), [*made, *events]))


@pytest.mark.parametrize("events", [[STEP, killed(20, 51)], [cut_off(20, 50, *THREE)]])
def test_a_queue_stands_still_without_its_only_publisher(events: Sequence[Sequence[Event]]) -> None:
    silent = rows((0, 20), (51, 90))
    finding = judged(Availability(), silent, *events)
    assert finding.verdict is Verdict.VALID
    assert finding.coverage is not None
    assert finding.coverage.judged < 50
    assert judged(Throughput(), silent, *events).verdict is Verdict.VALID
    assert judged(Availability(), silent).verdict is Verdict.INVALID
    assert judged(Throughput(), silent).verdict is Verdict.INVALID


def test_a_queue_with_another_publisher_goes_on() -> None:
    silent = [*rows((0, 20), (51, 90)), *rows((0, 20), (51, 90), publisher=1)]
    assert judged(Availability(), silent, STEP, killed(20, 51)).verdict is Verdict.INVALID


def test_a_queue_stands_still_no_longer_than_its_grace_after_its_publisher_is_back() -> None:
    assert judged(Availability(), rows((0, 20), (87.5, 90)), STEP, killed(20, 51)).verdict is Verdict.INVALID
    assert judged(Availability(), rows((0, 20), (80, 90)), STEP, killed(20, 51)).verdict is Verdict.VALID


def test_the_rate_has_its_grace_after_a_publisher_is_back() -> None:
    assert judged(Throughput(), rows((0, 20), (65, 90)), STEP, killed(20, 51)).verdict is Verdict.VALID
    assert judged(Throughput(), rows((0, 20), (72, 90)), STEP, killed(20, 51)).verdict is Verdict.INVALID
