import threading
from itertools import count

import pytest

from rabbitmq_resilience.tools.waiting import WaitTimeout, interrupted_by, wait_until
from tests.clock import waits_by_clock
from tests.messages import Messages


def test_returns_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clock = waits_by_clock(monkeypatch)
    numbers = count()

    assert wait_until(lambda: next(numbers), timeout_s=5, what="three", poll_s=0.001, until=lambda n: n == 3) == 3
    assert clock.now_s == pytest.approx(1000.003)


def test_looks_once_even_without_time() -> None:
    assert wait_until(lambda: "here", timeout_s=0, what="it") == "here"


def test_error_carries_the_last_state_seen(message: Messages, monkeypatch: pytest.MonkeyPatch) -> None:
    clock = waits_by_clock(monkeypatch)
    with pytest.raises(WaitTimeout) as raised:
        wait_until(lambda: "half", timeout_s=0.02, what="a full cup", poll_s=0.005, until=lambda s: s == "full")
    assert (raised.value.last_seen, raised.value.timeout_s) == ("half", 0.02)
    assert clock.now_s == pytest.approx(1000.02)
    message(raised.value)


def test_errors_of_the_look_pass_through() -> None:
    with pytest.raises(ZeroDivisionError):
        wait_until(lambda: 1 // 0, timeout_s=1, what="nothing")


def test_what_is_waited_for_ends_where_a_check_raises(monkeypatch: pytest.MonkeyPatch) -> None:
    waits_by_clock(monkeypatch)
    looks = count()

    def check() -> None:
        if next(looks) > 2:
            raise LookupError("no more")

    with interrupted_by(check):
        wait_until(lambda: "here", timeout_s=1, what="it")
        with pytest.raises(LookupError, match="no more"):
            wait_until(lambda: False, timeout_s=30, what="nothing", poll_s=0.001)
    wait_until(lambda: "here", timeout_s=1, what="it, to clean up")


def test_other_threads_go_on_as_those_that_heal() -> None:
    def check() -> None:
        raise LookupError("no more")

    seen = list[str]()
    with interrupted_by(check):
        thread = threading.Thread(target=lambda: seen.append(wait_until(lambda: "here", timeout_s=1, what="it")))
        thread.start()
        thread.join()
    assert seen == ["here"]
