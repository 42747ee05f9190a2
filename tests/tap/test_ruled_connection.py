"""Pass frames on by rules: a slow model says the same, and nothing but what rules name waits or changes."""

from __future__ import annotations

import random
from itertools import groupby

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.tap.amqp_methods import NAMED, Side
from rabbitmq_resilience.tap.method_rules import ActiveRule, MethodRule
from rabbitmq_resilience.tap.ruled_connection import RuledConnection
from tests.tap.drawn_frames import drawn_frames
from tests.tap.frames import ALIVE, PROTOCOL, content, cut, frame, method, refusal
from tests.tap.reference.slow_rules import BROKER, CLIENT
from tests.tap.rules_compared import Passed, compare, joined

PUBLISH, DELIVER, ACK, DECLARE = (60, 40), (60, 60), (60, 80), (50, 10)
CLOSE_OK = (20, 41)


@given(st.randoms(use_true_random=False))
def test_a_slow_model_sends_the_same(chance: random.Random) -> None:
    assert compare(chance)[0] == []


@given(st.randoms(use_true_random=False), st.lists(st.integers(0, 5000), max_size=40))
def test_without_a_rule_each_piece_goes_on_at_once(chance: random.Random, borders: list[int]) -> None:
    """Also where rules are for another process, were ended, or have met as many methods as they may."""
    rules = [MethodRule(method="basic.deliver", treatment="drop", times=None, processes=["other"])] * 2
    passed = Passed(*rules, MethodRule(method="basic.publish", treatment="hold", for_s=9))
    passed.rules[1].active, passed.rules[2].count = False, 1
    for side in (0, 1):
        for piece in cut(PROTOCOL + b"".join(drawn_frames(chance, side)), borders):
            assert passed.send(side, piece) == [(1 - side, piece)]
    assert passed.connection.due_s is None


@pytest.mark.parametrize("side", [CLIENT, BROKER])
def test_a_hold_keeps_its_channel_and_direction_only(side: int) -> None:
    name = "basic.publish" if side == CLIENT else "basic.deliver"
    ids = PUBLISH if side == CLIENT else DELIVER
    passed = Passed(MethodRule(method=name, treatment="hold", for_s=5))
    held = [method(1, ids), *content(1, b"held")]
    assert [passed.send(side, each, now_s=1) for each in held] == [[], [], []]
    for other in (method(2, ids), *content(2, b"goes on"), ALIVE, method(2, ACK)):
        assert passed.send(side, other, now_s=2) == [(1 - side, other)]
    back = method(1, ACK)
    assert passed.send(1 - side, back, now_s=2) == [(side, back)]
    later = method(1, ACK)
    assert passed.send(side, later, now_s=3) == []
    assert passed.connection.held_bytes(Side(side)) == len(b"".join([*held, later]))
    assert passed.connection.held_bytes(Side(1 - side)) == 0
    assert passed.connection.due_s == 6
    assert passed.at(5.9) == []
    assert joined(passed.at(6)) == [(1 - side, b"".join([*held, later]))]
    assert passed.notes == [("held", 1), ("let go", 1)]
    assert passed.rules[0].count == 1


def test_each_method_is_held_from_when_it_came() -> None:
    passed = Passed(MethodRule(method="confirms", treatment="hold", for_s=2, times=None))
    first, second = method(1, ACK, b"first"), method(1, ACK, b"second")
    assert passed.send(BROKER, first, now_s=0) + passed.send(BROKER, second, now_s=1) == []
    assert passed.at(2) == [(CLIENT, first)]
    assert passed.connection.due_s == 3
    assert passed.at(3) == [(CLIENT, second)]


def test_the_end_of_a_rule_lets_go_what_it_holds() -> None:
    passed = Passed(MethodRule(method="confirms", treatment="hold", for_s=9))
    assert passed.send(BROKER, method(1, ACK)) == []
    passed.rules[0].active = False
    assert passed.at(1) == [(CLIENT, method(1, ACK))]
    assert passed.connection.due_s is None


def test_nothing_of_a_channel_goes_on_that_was_answered_at_the_same_moment() -> None:
    """Both directions are held until then, and the first that is let go closes the channel."""
    holds = [MethodRule(method=name, treatment="hold", for_s=5) for name in ("basic.qos", "confirms")]
    passed = Passed(*holds, MethodRule(method="queue.declare", treatment="answer", code=404, text="no"))
    assert passed.send(CLIENT, method(1, (60, 10)) + method(1, DECLARE)) + passed.send(BROKER, method(1, ACK)) == []
    assert passed.at(5) == [
        (CLIENT, refusal(1, 404, "no", DECLARE)),
        (BROKER, method(1, (60, 10)) + refusal(1, 200, "closed", (0, 0))),
    ]


def test_a_part_of_a_frame_goes_on_once_no_rule_is_in_effect() -> None:
    passed = Passed(MethodRule(method="confirms", treatment="drop"))
    begun = frame(3, 1, bytes(100))
    assert passed.send(CLIENT, begun[:50]) == []
    assert passed.send(BROKER, method(1, ACK)) == [(BROKER, begun[:50])]
    assert passed.send(CLIENT, begun[50:]) == [(BROKER, begun[50:])]


def test_a_dropped_message_goes_with_its_content_and_nothing_else() -> None:
    passed = Passed(MethodRule(method="basic.publish", treatment="drop", times=2))
    for body in (b"", b"x" * 100):
        for each in (method(1, PUBLISH), *content(1, body, pieces=3)):
            assert passed.send(CLIENT, each) == []
    kept = [method(1, PUBLISH), *content(1, b"third", pieces=2), method(2, DECLARE)]
    assert joined(passed.send(CLIENT, b"".join(kept))) == [(BROKER, b"".join(kept))]
    assert passed.notes == [("dropped", 1)] * 2


def test_a_dropped_content_that_never_comes_whole_does_not_take_the_next_method() -> None:
    passed = Passed(MethodRule(method="basic.publish", treatment="drop"))
    header, *_ = content(1, bytes(100))
    passed.send(CLIENT, method(1, PUBLISH) + header)
    assert joined(passed.send(CLIENT, method(1, (20, 40)))) == [(BROKER, method(1, (20, 40)))]


def test_an_answered_channel_opens_again_at_once_and_mixes_no_lives() -> None:
    passed = Passed(MethodRule(method="queue.declare", treatment="answer", code=404, text="no"))
    assert passed.send(CLIENT, method(1, DECLARE, b"old")) == [
        (CLIENT, refusal(1, 404, "no", DECLARE)),
        (BROKER, refusal(1, 200, "closed", (0, 0))),
    ]
    opened, declared = method(1, (20, 10), b"\x00"), method(1, DECLARE, b"new")
    assert passed.send(CLIENT, method(1, PUBLISH) + b"".join(content(1, b"on its way"))) == []
    assert passed.send(BROKER, method(1, DELIVER) + b"".join(content(1, b"on its way"))) == []
    assert passed.send(CLIENT, method(1, CLOSE_OK) + opened + declared) == []
    assert passed.send(BROKER, method(1, ACK)) == []
    assert joined(passed.send(BROKER, method(1, CLOSE_OK))) == [(BROKER, opened + declared)]
    assert passed.send(BROKER, method(1, (20, 11))) == [(CLIENT, method(1, (20, 11)))]


def test_both_sides_may_close_a_channel_that_is_answered() -> None:
    """The one that asked gets its agreement too."""
    passed = Passed(MethodRule(method="queue.declare", treatment="answer", code=404, text="no"))
    passed.send(CLIENT, method(1, DECLARE))
    assert passed.send(CLIENT, refusal(1, 200, "", (0, 0))) == [(CLIENT, method(1, CLOSE_OK))]
    assert passed.send(BROKER, refusal(1, 406, "", (0, 0))) == [(BROKER, method(1, CLOSE_OK))]
    assert passed.send(BROKER, method(1, CLOSE_OK)) + passed.send(CLIENT, method(1, CLOSE_OK)) == []
    assert passed.send(CLIENT, method(1, DECLARE)) == [(BROKER, method(1, DECLARE))]


def test_a_close_that_is_held_is_agreed_to_when_the_channel_is_answered() -> None:
    hold = MethodRule(method="confirms", treatment="hold", for_s=9)
    passed = Passed(hold, MethodRule(method="queue.declare", treatment="answer", code=404, text="no"))
    assert passed.send(BROKER, method(1, ACK) + refusal(1, 406, "", (0, 0))) == []
    out = passed.send(CLIENT, method(1, DECLARE))
    assert joined(out) == [
        (CLIENT, refusal(1, 404, "no", DECLARE)),
        (BROKER, refusal(1, 200, "closed", (0, 0)) + method(1, CLOSE_OK)),
    ]


def test_an_answer_waits_for_the_end_of_a_frame_on_its_way() -> None:
    """The rule is new, and half a frame of the broker has passed."""
    passed = Passed()
    body = frame(3, 2, bytes(90))
    passed.send(BROKER, body[:40])
    passed.rules.append(ActiveRule(MethodRule(method="queue.declare", treatment="answer", code=404, text="no")))
    assert joined(passed.send(CLIENT, method(1, DECLARE))) == [(BROKER, refusal(1, 200, "closed", (0, 0)))]
    assert joined(passed.send(BROKER, body[40:])) == [(CLIENT, body[40:] + refusal(1, 404, "no", DECLARE))]


def test_an_answer_waits_for_the_end_of_a_message_on_its_way() -> None:
    passed = Passed(MethodRule(method="queue.declare", treatment="answer", code=404, text="no"))
    header, first, last = content(1, bytes(60), pieces=2)
    passed.send(BROKER, method(1, DELIVER) + header + first)
    assert joined(passed.send(CLIENT, method(1, DECLARE))) == [(BROKER, refusal(1, 200, "closed", (0, 0)))]
    assert joined(passed.send(BROKER, last + method(1, ACK))) == [(CLIENT, last + refusal(1, 404, "no", DECLARE))]


def test_an_error_of_the_connection_ends_it_towards_both() -> None:
    passed = Passed(MethodRule(method="queue.declare", treatment="answer", code=541, text="no"))
    assert sorted(passed.send(CLIENT, method(3, DECLARE))) == [
        (CLIENT, refusal(0, 541, "no", DECLARE)),
        (BROKER, refusal(0, 541, "closed", DECLARE)),
    ]
    assert passed.send(CLIENT, method(4, DECLARE) + ALIVE) == []
    assert passed.send(BROKER, method(0, (10, 50))) == [(BROKER, method(0, (10, 51)))]
    passed.send(CLIENT, method(0, (10, 51)))
    assert not passed.connection.closed_for
    passed.send(BROKER, method(0, (10, 51)))
    assert passed.connection.closed_for


@pytest.mark.parametrize("treatment", ["hold", "drop"])
def test_damage_loses_nothing_that_waits(treatment: str) -> None:
    rule = MethodRule(method="confirms", treatment=treatment, for_s=9, times=2)  # type: ignore[arg-type]
    passed = Passed(rule, MethodRule(method="basic.get", treatment="hold", for_s=9))
    sent = {BROKER: method(1, ACK) + method(1, DECLARE) + method(2, ACK), CLIENT: method(1, (60, 70)) + ALIVE[:4]}
    for side, data in sent.items():
        passed.send(side, data)
    passed.send(BROKER, b"\x01\x00damaged")
    dropped = {method(1, ACK), method(2, ACK)} if treatment == "drop" else set()
    gone = dict(joined(passed.out))
    assert gone[BROKER] == sent[CLIENT]
    for each in {method(1, ACK), method(1, DECLARE), method(2, ACK), b"\x01\x00damaged"} - dropped:
        assert each in gone[CLIENT]
    assert passed.send(CLIENT, b"on") == [(BROKER, b"on")]


def test_the_end_of_a_side_lets_go_what_is_kept_of_it() -> None:
    passed = Passed(MethodRule(method="basic.publish", treatment="hold", for_s=9))
    sent = method(1, PUBLISH) + b"".join(content(1, b"held")) + ALIVE[:5]
    assert passed.send(CLIENT, sent) == []
    passed.connection.ended(Side.CLIENT)
    assert joined(passed.out) == [(BROKER, sent)]
    assert passed.notes == [("held", 1), ("let go", 1)]
    assert passed.connection.due_s is None


def test_rules_are_met_once_over_all_connections() -> None:
    first, second = Passed(MethodRule(method="confirms", treatment="drop")), Passed()
    second.connection = RuledConnection(
        "b", first.rules, lambda side, data: second.out.append((int(side), data)), print
    )
    assert first.send(BROKER, method(1, ACK)) == []
    assert second.send(BROKER, method(1, ACK)) == [(CLIENT, method(1, ACK))]


@pytest.mark.parametrize(
    ("problem", "fields"),
    [
        ("write confirms", {"method": "basic.ack", "treatment": "drop"}),
        ("did you mean basic.consume-ok", {"method": "basic.consumeok", "treatment": "drop"}),
        ("cannot kill", {"method": "confirms", "treatment": "kill"}),
        ("above 0", {"method": "confirms", "treatment": "hold"}),
        ("above 0", {"method": "confirms", "treatment": "drop", "times": 0}),
        ("does not answer", {"method": "confirms", "treatment": "answer", "code": 404}),
        ("no error 200", {"method": "queue.declare", "treatment": "answer", "code": 200}),
        ("no channel is open", {"method": "channel.open", "treatment": "answer", "code": 404}),
        ("at most 255", {"method": "queue.declare", "treatment": "answer", "code": 404, "text": "ä" * 128}),
    ],
)
def test_a_rule_that_cannot_be_done_is_refused(problem: str, fields: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=problem):
        MethodRule(**fields)  # type: ignore[arg-type]


def test_each_method_has_the_side_that_sends_it() -> None:
    sides = {side: {name for name, sent in NAMED.items() if sent.sender is side} for side in Side}
    assert {"connection.start-ok", "basic.publish", "acknowledgements", "channel.open"} <= sides[Side.CLIENT]
    assert {"connection.start", "connection.tune", "basic.deliver", "basic.get-empty", "confirms"} <= sides[Side.BROKER]
    assert [name for name, _ in groupby(sorted([*sides[Side.CLIENT], *sides[Side.BROKER]]))] == sorted(NAMED)
