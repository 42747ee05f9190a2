"""Who was held back by the brokers' own account, as it is counted, said and drawn."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.consequences import consequences
from rabbitmq_resilience.checkers.held_back import HeldBack, held_back
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.report.charts import charts
from rabbitmq_resilience.report.impact import impact
from rabbitmq_resilience.report.series import series
from tests.invariants.literal import cluster, event, fault, history, phases, publish, queues, us
from tests.messages import Messages


def look(at_s: float, *flow_queues: str, **connections: int) -> Any:
    return event(at_s, "flow_states", node="a1", connections=connections, flow_queues=list(flow_queues))


def told(*looks: Any) -> Any:
    return history([publish(n, 1 + n) for n in range(80)], (), [cluster(), queues("q1"), phases(), *looks])


def test_no_one_was_asked() -> None:
    assert held_back(history()) is None
    assert held_back(told()) is None
    assert held_back(told(look(91, flow=5))) is None, "only after publishing"
    assert "held_back" not in (consequences(told()) or {})


def test_counted(message: Messages) -> None:
    looks = [look(5, running=4), look(10, "q1", "q2", running=1, flow=3), look(15, flow=1, blocked=2, blocking=1)]
    found = held_back(told(*looks, look(20, running=4)))
    assert found == {
        "looks": 4,
        "connections": 4,
        "flow": {"most": 3, "ratio": 0.5},
        "blocked": {"most": 3, "ratio": 0.25},
        "queues": {"most": 2, "ratio": 0.25},
    }
    whole = consequences(told(*looks, look(20, running=4)))
    assert whole is not None and whole["held_back"] == found
    message(list(impact({"consequences": whole}))[-1])


def test_drawn_where_there_was_any() -> None:
    assert charts(series(tuple, tuple, [look(5, running=4), look(10, running=4)]))["panels"] == []
    (panel,) = charts(series(tuple, tuple, [look(5, running=4), look(10, flow=3), look(15, running=4)]))["panels"]
    assert (panel["title"], panel["unit"]) == ("Held back by brokers", "count")
    assert {curve["name"]: curve["values"] for curve in panel["curves"]} == {"connections in flow": [0, 3, 0]}


def test_nothing_is_said_where_no_one_was_held_back() -> None:
    whole = consequences(told(look(5, running=4)))
    assert whole is not None and whole["held_back"]["flow"] == {"most": 0, "ratio": 0}
    assert not [sentence for sentence in impact({"consequences": whole}) if "Brokers" in sentence]


def check(*events: Any, **bounds: Any) -> Finding:
    return HeldBack(**bounds).check(told(*events))


def regularly(**unlike: Any) -> list[Any]:
    """A look every 5 s, of four connections that run but for those stated by number ("_3": {"flow": 1})."""
    return [look(5 * n, **unlike.get(f"_{n}", {"running": 4})) for n in range(18)]


def test_sane() -> None:
    finding = check(*regularly(_3={"flow": 4}))
    assert (finding.verdict, finding.numbers["flow_ratio"]) == (Verdict.VALID, 0.0556)
    assert finding.coverage is not None and finding.coverage.judged == 90


@pytest.mark.parametrize("state", ["blocked", "blocking"])
def test_pathological_a_connection_is_blocked(state: str, message: Messages) -> None:
    finding = check(*regularly(_3={state: 2, "flow": 1}))
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
    assert "6%" in finding.summary
    (example,) = finding.examples
    message(example)
    assert "+15.000 s" in example
    assert "flow 1" in example
    assert check(*regularly(_3={state: 2}), blocked_ratio_max=None).verdict is Verdict.VALID


def test_flow_has_bounds_where_they_are_stated() -> None:
    looks = regularly(_3={"flow": 4}, _4={"flow": 1})
    assert check(*looks, flow_ratio_max=0.112).verdict is Verdict.VALID
    assert check(*looks, flow_ratio_max=0.111).verdict is Verdict.INVALID
    queue = [*regularly(), look(7, "q1", running=4)]
    assert check(*queue).verdict is Verdict.VALID
    assert check(*queue, queues_ratio_max=0).verdict is Verdict.INVALID


def test_unknown_where_there_are_too_many_queues_to_ask_for() -> None:
    looks = [event(5 * n, "flow_states", node="a1", connections={"running": 4}) for n in range(18)]
    assert check(*looks).verdict is Verdict.VALID
    assert check(*looks, queues_ratio_max=0).verdict is Verdict.UNKNOWN


def test_an_alarm_on_purpose_does_not_count() -> None:
    looks = regularly(_7={"blocked": 4}, _9={"blocked": 1})
    alarm = fault(32, 40, name="alarm", alarm="memory", alarmed=["b1"])
    assert check(*looks, *alarm).verdict is Verdict.VALID
    assert check(*looks, *alarm, grace_s=5).verdict is Verdict.INVALID
    assert check(*looks, *fault(32, 40, name="kill", down=["b1"])).verdict is Verdict.INVALID


def test_unknown_where_no_broker_reported(message: Messages) -> None:
    assert check().verdict is Verdict.UNKNOWN
    assert HeldBack().check(history()).verdict is Verdict.UNKNOWN
    silent = [one for one in regularly() if not us(31) < one.t_us < us(51)]
    finding = check(*silent)
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "25 s" in finding.summary
    assert "+30.000 s" in finding.summary
    assert check(*silent[:-4], *regularly(_17={"blocked": 1})[-4:]).verdict is Verdict.INVALID


def in_turn(silent: Sequence[Collection[str]]) -> list[Any]:
    """A look every 5 s at which these nodes told nothing of themselves."""
    return [
        event(5 * n, "flow_states", node="a1", connections={"running": 4}, flow_queues=[], silent=sorted(names))
        for n, names in enumerate(silent)
    ]


def test_unknown_where_a_broker_that_ran_reported_nothing_of_itself(message: Messages) -> None:
    """Its connections are not among those that others tell of, nor its queues among those in flow."""

    def silent(*turns: tuple[str, ...]) -> list[Any]:
        return in_turn([turns[n % len(turns)] for n in range(18)])

    finding = check(*silent(("b1",)))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "b1" in finding.summary
    assert "90 s" in finding.summary
    assert finding.coverage is not None and finding.coverage.judged == 0
    assert check(*silent(("b1",)), look(7, blocked=1)).verdict is Verdict.INVALID
    parted = [("b1", "c1"), ("a1",), ("a1",)]
    assert check(*silent(*parted)).verdict is Verdict.VALID, "each was told of by itself"
    finding = check(*silent(*parted, ("a1",), ("a1",)))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "a1" in finding.summary
    assert "25" in finding.summary
    back = [*silent(("b1",))[:3], *silent(())[3:]]
    assert check(*back).verdict is Verdict.VALID, "it had just been started"


@given(st.lists(st.sets(st.sampled_from(["a1", "b1"])), min_size=18, max_size=18))
def test_a_node_that_is_not_reported_for_too_long_leaves_it_unknown(silent: list[set[str]]) -> None:
    """As a look at each window of a little more than 20 s finds."""
    looks = [{5 * n for n, names in enumerate(silent) if node not in names} for node in ("a1", "b1")]
    blind = any(
        not [at for at in told if begun < at < begun + 20.5]
        for told in looks
        for begun in (step / 2 for step in range(140))
        if begun + 20.5 <= 90
    )
    assert check(*in_turn(silent)).verdict is (Verdict.UNKNOWN if blind else Verdict.VALID)


COUNTS = st.fixed_dictionaries({}, optional={state: st.integers(0, 3) for state in ("running", "flow", "blocked")})


@given(
    st.lists(COUNTS, min_size=18, max_size=18), st.none() | st.floats(0, 1), st.none() | st.floats(0, 1), st.booleans()
)
def test_the_same_as_by_hand(
    counts: list[dict[str, int]], blocked: float | None, flow: float | None, alarmed: bool
) -> None:
    alarm = fault(32, 40, name="alarm", alarm="memory", alarmed=["b1"]) if alarmed else []
    looks = [look(5 * n, **count) for n, count in enumerate(counts)]
    finding = check(*looks, *alarm, blocked_ratio_max=blocked, flow_ratio_max=flow)
    judged = [count for n, count in enumerate(counts) if not (alarmed and 32 <= 5 * n < 55)]
    wrong = False
    for state, bound in (("blocked", blocked), ("flow", flow)):
        share = sum(1 for count in judged if count.get(state, 0) > 0) / len(judged)
        wrong |= bound is not None and round(share, 4) > bound
    assert (finding.verdict is Verdict.INVALID) == wrong


@pytest.mark.parametrize(("until_s", "verdict"), [(60, Verdict.VALID), (75, Verdict.UNKNOWN)])
def test_the_time_after_the_last_alarm_must_be_seen(until_s: float, verdict: Verdict) -> None:
    """Publishing lasts until 90 s, and 15 s after the alarm do not count."""
    alarm = fault(20, until_s, name="alarm", alarm="memory", alarmed=["a1"])
    assert check(*regularly(), alarm).verdict is verdict


def test_one_look_of_many_thousands_is_not_rounded_to_none(message: Messages) -> None:
    until_s = 5 * 20_100
    times = phases(steady=0.0, chaos=10.0, recovery=20.0, drain=until_s + 5.0, end=until_s + 10.0)
    looks = [
        event(5 + 5 * i, "flow_states", node="a1", connections={"blocked": int(i == 50)}, flow_queues=[])
        for i in range(20_100)
    ]
    finding = HeldBack().check(history([publish(0)], (), [cluster(), queues("q1"), times, *looks]))
    assert finding.verdict is Verdict.INVALID
    message(finding.summary)
