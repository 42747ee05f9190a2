"""Where messages are routed to, against two other ways: regular expressions, and a search that follows each binding."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from rabbitmq_resilience.workload.matching import Bound, ExchangeType, Reached, Router, topic_matches, words

WORDS = ("", "a", "b", "ab")
keys = st.lists(st.sampled_from(WORDS), max_size=4).map(".".join)
patterns = st.lists(st.sampled_from([*WORDS, "*", "#", "#"]), max_size=4).map(".".join)
headers = st.dictionaries(st.sampled_from(["h", "i"]), st.sampled_from(["1", "2"]))
TYPES: tuple[ExchangeType, ...] = ("direct", "topic", "fanout", "headers", "consistent_hash")


def matches_by_expression(pattern: str, key: str) -> bool:
    """Each word ends with a dot here, so that no word and an empty one are told apart."""
    expressions = {"*": r"[^.]*\.", "#": r"(?:[^.]*\.)*"}
    expression = "".join(expressions.get(word, re.escape(f"{word}.")) for word in words(pattern))
    return re.fullmatch(expression, "".join(f"{word}." for word in words(key))) is not None


@given(patterns, keys)
@example("#", "")
@example("*", "")
@example("", "")
@example("a.#", "a")
@example("#.b.#", "a.b.b")
@example("*.#", "a.")
def test_topics_match_as_regular_expressions_do(pattern: str, key: str) -> None:
    assert topic_matches(words(pattern), words(key)) == matches_by_expression(pattern, key)


@pytest.mark.parametrize(
    ("pattern", "key", "expected"),
    [
        ("eur.*", "eur.1", True),
        ("eur.*", "eur", False),
        ("eur.*", "eur.1.2", False),
        ("eur.#", "eur", True),
        ("eur.#", "eur.1.2", True),
        ("#.2", "eur.1.2", True),
        ("#.2", "eur.1", False),
        ("eur*", "eur1", False),
        ("", "", True),
        ("", "a", False),
    ],
)
def test_topics_of_the_specification(pattern: str, key: str, expected: bool) -> None:
    assert topic_matches(words(pattern), words(key)) is expected


def takes(kind: str, bound: Bound, key: str, told: Mapping[str, str]) -> bool:
    if kind == "topic":
        return matches_by_expression(bound.routing_key, key)
    if kind == "headers":
        found = sum(told.get(name) == value for name, value in bound.headers)
        return found == len(bound.headers) if bound.match == "all" else found > 0
    return kind in ("fanout", "consistent_hash") or bound.routing_key == key


def destinations(
    exchanges: Mapping[str, tuple[ExchangeType, str | None]],
    bindings: Sequence[Bound],
    exchange: str,
    message: tuple[str, Mapping[str, str]],
    seen: set[str],
) -> set[tuple[str, str]]:
    """By following each binding in turn."""
    if exchange in seen:
        return set()
    seen.add(exchange)
    key, told = message
    kind, alternate = exchanges[exchange]
    mine = [bound for bound in bindings if bound.exchange == exchange and takes(kind, bound, key, told)]
    found: set[tuple[str, str]] = set()
    for bound in mine:
        if bound.to_exchange:
            found |= destinations(exchanges, bindings, bound.destination, message, seen)
        elif kind == "consistent_hash":
            found.add(("shard of", exchange))
        else:
            found.add(("queue", bound.destination))
    if not mine and alternate is not None:
        found |= destinations(exchanges, bindings, alternate, message, seen)
    return found


@st.composite
def routings(draw: st.DrawFn) -> tuple[dict[str, tuple[ExchangeType, str | None]], list[Bound]]:
    names = ["x", "y", "z"]
    exchanges = {name: (draw(st.sampled_from(TYPES)), draw(st.none() | st.sampled_from(names))) for name in names}
    bindings = []
    for _ in range(draw(st.integers(0, 8))):
        name = draw(st.sampled_from(names))
        kind = exchanges[name][0]
        to_exchange = kind != "consistent_hash" and draw(st.booleans())
        target = draw(st.sampled_from(names if to_exchange else ["q1", "q2", "q3"]))
        asked = tuple(sorted(draw(headers).items())) if kind == "headers" else ()
        match = draw(st.sampled_from(["all", "any"])) if kind == "headers" else "all"
        bindings.append(Bound(name, target, to_exchange, draw(patterns if kind == "topic" else keys), asked, match))
    return exchanges, bindings


@given(routings(), keys, headers)
def test_messages_go_where_following_each_binding_leads(
    routing: tuple[dict[str, tuple[ExchangeType, str | None]], list[Bound]], key: str, told: dict[str, str]
) -> None:
    exchanges, bindings = routing
    router = Router(exchanges, bindings)
    for exchange in exchanges:
        found = destinations(exchanges, bindings, exchange, (key, told), set())
        expected = Reached(
            frozenset(name for what, name in found if what == "queue"),
            frozenset(name for what, name in found if what != "queue"),
        )
        assert router.reached(exchange, key, told) == expected


def test_the_default_exchange_leads_to_the_queue_of_that_name() -> None:
    assert Router({}, []).reached("", "q7", {}) == Reached(frozenset({"q7"}))


def test_an_alternate_exchange_takes_only_what_nothing_takes() -> None:
    exchanges: dict[str, tuple[ExchangeType, str | None]] = {"x": ("direct", "rest"), "rest": ("fanout", None)}
    router = Router(exchanges, [Bound("x", "q1", False, "a"), Bound("rest", "q2", False, "")])
    assert router.reached("x", "a", {}).queues == {"q1"}
    assert router.reached("x", "b", {}).queues == {"q2"}


def test_headers_ask_for_all_or_any() -> None:
    asked = (("kind", "tick"), ("zone", "eu"))
    bindings = [Bound("x", "q1", False, "", asked), Bound("x", "q2", False, "", asked, "any")]
    router = Router({"x": ("headers", None)}, bindings)
    assert router.reached("x", "", {"kind": "tick", "zone": "eu"}).queues == {"q1", "q2"}
    assert router.reached("x", "", {"kind": "tick"}).queues == {"q2"}
    assert not router.reached("x", "", {"kind": "trade"}).queues
