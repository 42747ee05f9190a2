"""What faults record of their effect, for the checkers to reason on."""

from __future__ import annotations

import json
from dataclasses import fields
from typing import Any, cast

import pytest

from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.latency import LatencyInjection
from rabbitmq_resilience.nemesis.limit import LimitInjection
from rabbitmq_resilience.nemesis.netem import Netem
from rabbitmq_resilience.nemesis.stress import StressInjection

NOBODY = cast(Any, None)
LINKS = frozenset({Link("a1", "b1")})


@pytest.mark.parametrize(("jitter_ms", "slow_s"), [(0, 3.0), (500, 3.5)])
def test_a_latency_shows_by_how_much_messages_are_late_at_most(jitter_ms: int, slow_s: float) -> None:
    assert LatencyInjection(NOBODY, LINKS, 3000, jitter_ms).effect == Effect(links_slow=LINKS, slow_s=slow_s)
    delay = Netem(at_s=1, for_s=9, links="a1 -> b1", delay_ms=300, jitter_ms=jitter_ms // 10)
    assert delay.change.effect_on(LINKS) == Effect(links_slow=LINKS, slow_s=round(0.3 + jitter_ms / 10_000, 3))


def test_limited_and_stressed_nodes_are_starved() -> None:
    for injection in (
        LimitInjection(NOBODY, ("b1",), cpus=0.1, memory_bytes=None),
        StressInjection(NOBODY, ("b1",), NOBODY, 9),
    ):
        assert injection.effect == Effect(nodes_starved=("b1",))


def test_a_node_whose_memory_is_limited_may_end() -> None:
    effect = LimitInjection(NOBODY, ("b1",), cpus=None, memory_bytes=1).effect
    assert effect == Effect(nodes_starved=("b1",), nodes_down=("b1",), nodes_may_serve=True)


def test_it_is_read_back_as_it_was_written() -> None:
    effect = Effect(links_slow=LINKS, slow_s=3.5, nodes_starved=("b1",))
    assert Effect.of_fields(effect.as_fields()) == effect
    early = {name: value for name, value in effect.as_fields().items() if name not in ("slow_s", "nodes_starved")}
    assert Effect.of_fields(early) == Effect(links_slow=LINKS)


WHOLE = Effect(
    nodes_down=("a1",),
    links_cut=frozenset({Link("b1", "a1"), Link("a1", "publisher:0")}),
    links_slow=LINKS,
    slow_s=0.5,
    nodes_starved=("b1",),
    sudden=True,
    intermittent=True,
    nodes_alarmed=("c1",),
    alarm="disk",
    operation=True,
    becomes="4.0.5",
    nodes_damaged=("b1",),
    type_damaged="quorum",
    nodes_emptied=("c1",),
    queue_deleted="q1",
    nodes_may_serve=True,
    feature_flags=True,
)


def test_every_field_is_written_in_its_order_and_read_again() -> None:
    assert all(getattr(WHOLE, field.name) != field.default for field in fields(Effect))
    assert json.dumps(WHOLE.as_fields()) == (
        '{"nodes_down": ["a1"], "links_cut": [["a1", "publisher:0"], ["b1", "a1"]], "links_slow": [["a1", "b1"]], '
        '"slow_s": 0.5, "nodes_starved": ["b1"], "sudden": true, "intermittent": true, "nodes_alarmed": ["c1"], '
        '"alarm": "disk", "operation": true, "becomes": "4.0.5", "nodes_damaged": ["b1"], '
        '"type_damaged": "quorum", "nodes_emptied": ["c1"], "queue_deleted": "q1", "feature_flags": true, '
        '"nodes_may_serve": true}'
    )
    assert Effect.of_fields(json.loads(json.dumps(WHOLE.as_fields()))) == WHOLE


def test_an_empty_one_has_all_fields_but_the_youngest() -> None:
    damage = ("nodes_damaged", "type_damaged", "nodes_emptied")
    youngest = ("becomes", *damage, "queue_deleted", "feature_flags", "nodes_may_serve")
    assert [*Effect().as_fields()] == [field.name for field in fields(Effect) if field.name not in youngest]
    assert Effect.of_fields({}) == Effect()
