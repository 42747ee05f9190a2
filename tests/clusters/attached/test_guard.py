"""What a guard makes of what it is told, and of whoever tells nothing or something else than it should."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached import guard as guarding
from rabbitmq_resilience.extensions.attached.cluster_model import AbortWhen, BoundedMetric
from rabbitmq_resilience.extensions.attached.guard import AbortedError, Guard
from rabbitmq_resilience.sut.broker.management import Alarm, ApiError, ApiUnreachable
from rabbitmq_resilience.tools.waiting import wait_until
from tests.messages import Messages

FINE: set[Alarm] = set()
ALARMED = {("rabbit@h2", "disk")}


class Api:
    """Of a node whose answer may change."""

    def __init__(self, answer: Any) -> None:
        self.answer = answer

    def alarms(self, **_: Any) -> Any:
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer


def guard(*apis: Any, ours: Callable[[], list[tuple[str, str]]] = list) -> Guard:
    return Guard(AbortWhen(alarm=True), apis, ours)


def ended(watching: Guard) -> str:
    try:
        watching.check()
    except AbortedError as error:
        return str(error)
    return ""


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(guarding, "LOOKED_EVERY_S", 0.02)
    monkeypatch.setattr(guarding, "BLIND_S_MAX", 0.4)


@pytest.mark.parametrize(
    ("bounds", "values", "told"),
    [
        ({"above": 2.5}, ["1.0", "9.9"], "9.9, above 2.5"),
        ({"above": 2.5}, ["9.9", "NaN"], "9.9, above 2.5"),
        ({"above": 2.5}, ["NaN", "9.9"], "9.9, above 2.5"),
        ({"below": 2.5}, ["NaN", "1.0"], "1, below 2.5"),
        ({"above": 2.5}, ["+Inf"], "inf, above 2.5"),
        ({"above": 2.5, "below": 0.5}, ["1.0", "0.1"], "0.1, below 0.5"),
        ({"above": 2.5, "below": 0.5}, ["0.5", "2.5"], ""),
    ],
)
def test_each_value_is_held_to_its_bound_by_itself(
    bounds: dict[str, float], values: list[str], told: str, message: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    measured(monkeypatch, values)
    text = beyond(bounds)
    assert told in text
    assert bool(told) == bool(text)
    if text:
        message(text)


@pytest.mark.parametrize(
    ("values", "told"),
    [
        ([], "no value"),
        (["NaN"], "1 of its 1"),
        (["NaN", "1.0"], "1 of its 2"),
    ],
)
def test_what_is_no_number_is_not_taken_for_a_good_one(
    values: list[str], told: str, message: Messages, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The quantile of a histogram to which nothing was added is NaN: a shop where nobody buys."""
    measured(monkeypatch, values)
    monkeypatch.setattr(guarding, "BLIND_S_MAX", 0.0)
    text = beyond({"above": 2.5})
    assert told in text
    message(text)


def measured(monkeypatch: pytest.MonkeyPatch, values: list[str]) -> None:
    """Let each query of a Prometheus be answered by these values."""

    class Prometheus:
        def __init__(self, *_: object, **__: object) -> None:
            """It is asked nothing yet."""

        def custom_query(self, _: str) -> list[dict[str, Any]]:
            return [{"metric": {}, "value": [1, value]} for value in values]

    monkeypatch.setattr(guarding, "PrometheusConnect", Prometheus)


def beyond(bounds: dict[str, float]) -> str:
    """Why a guard does not let a run begin, empty if it does."""
    metric = BoundedMetric(prometheus="http://prometheus:9090", query="up", **bounds)
    try:
        Guard(AbortWhen(metrics=(metric,)), []).close()
    except AbortedError as error:
        return str(error)
    return ""


@pytest.mark.core
@pytest.mark.usefixtures("quick")
@pytest.mark.parametrize(
    ("answer", "told"),
    [
        (None, "ClusterError"),
        (KeyError("name"), "KeyError: 'name'"),
        (ApiError(404, "http://h1", "nothing"), "http://h1 answered 404: nothing"),
        (ApiUnreachable("http://h1", "timed out"), "http://h1 "),
        (RuntimeError("what nobody has thought of"), "RuntimeError: what nobody has thought of"),
    ],
    ids=["no answer", "key", "refused", "unreachable", "unthought of"],
)
def test_whatever_goes_wrong_in_a_look_is_a_look_that_failed(answer: Any, told: str, message: Messages) -> None:
    api = Api(answer)
    with guard(api) as watching:
        assert not ended(watching), "not at once"
        wait_until(lambda: ended(watching), timeout_s=30, what="the guard to give up")
        assert told in ended(watching)
        message(ended(watching))


@pytest.mark.core
@pytest.mark.usefixtures("quick")
def test_a_look_that_fails_does_not_hide_the_next(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    monkeypatch.setattr(guarding, "BLIND_S_MAX", 60.0)
    api = Api(None)
    with guard(api) as watching:
        api.answer = ALARMED
        wait_until(lambda: ended(watching), timeout_s=30, what="the guard to see the alarm")
        assert "rabbit@h2" in ended(watching)
        message(ended(watching))
        api.answer = FINE
        assert ended(watching), "it was so once"


@pytest.mark.core
@pytest.mark.usefixtures("quick")
def test_a_look_that_never_ends_ends_the_run(message: Messages) -> None:
    """As of a server that sends a byte now and then."""
    go_on = threading.Event()

    class Hanging(Api):
        def alarms(self, **_: Any) -> Any:
            answer = self.answer
            if answer is None:
                go_on.wait()
            return answer

    api = Hanging(FINE)
    with guard(api) as watching:
        api.answer = None
        try:
            wait_until(lambda: ended(watching), timeout_s=30, what="the guard to give up")
            message(ended(watching))
        finally:  # the guard's end waits for the look
            go_on.set()


@pytest.mark.core
@pytest.mark.usefixtures("quick")
def test_a_thread_that_has_ended_ends_the_run(monkeypatch: pytest.MonkeyPatch, message: Messages) -> None:
    monkeypatch.setattr(threading, "excepthook", lambda _: None)
    api = Api(FINE)
    with guard(api) as watching:
        api.answer = SystemExit()
        wait_until(lambda: ended(watching), timeout_s=30, what="the guard to give up")
        message(ended(watching))


def test_an_alarm_is_seen_that_only_one_node_knows_of(message: Messages) -> None:
    """As where the first is cut off from the others."""
    unreachable = Api(ApiUnreachable("http://h3", "timed out"))
    with message.of(AbortedError):
        guard(Api(FINE), unreachable, Api(ALARMED))


def test_an_alarm_of_ours_does_not_end_it_and_hides_no_other_of_the_same_node(message: Messages) -> None:
    both = ALARMED | {("rabbit@h2", "memory")}
    with guard(Api(both), ours=lambda: [("rabbit@h2", "memory"), ("rabbit@h2", "disk")]) as watching:
        assert not ended(watching)
    with message.of(AbortedError):
        guard(Api(both), ours=lambda: [("rabbit@h2", "memory"), ("rabbit@h1", "disk")])


def test_a_command_is_not_reported_as_there_may_be_a_secret_in_it(
    monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    with message.of(AbortedError) as aborted:
        Guard(AbortWhen(check=": hunter2; echo closed; exit 3"), [])
    monkeypatch.setattr(guarding, "ANSWER_TIMEOUT_S", 0.1)
    monkeypatch.setattr(guarding, "BLIND_S_MAX", 0.0)
    with message.of(AbortedError) as blind:
        Guard(AbortWhen(check=": hunter2; sleep 5"), [])
    assert "hunter2" not in f"{aborted.value} {blind.value}"
