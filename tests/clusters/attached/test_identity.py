"""Whether it is the same broker that answers and that would be acted on."""

from __future__ import annotations

from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached import identity
from rabbitmq_resilience.extensions.attached.foreign_broker import MachineProcess
from rabbitmq_resilience.extensions.attached.identity import strangers
from tests.clock import waits_by_clock
from tests.messages import Messages

NODE = "rabbit@h1"


class There:
    """A machine that has been up for 1,000 s, with a broker that was started 900 s ago, and what an API tells."""

    description = "pod shop/rabbit-0"

    def __init__(
        self, *, pid: str = "21", uptime_ms: int = 899_000, process: object = MachineProcess(21, 10_000, "S")
    ) -> None:
        self.row = {"name": NODE, "os_pid": pid, "uptime": uptime_ms}
        self.its = process

    def run(self, script: str) -> str:
        assert "/proc/uptime" in script
        return "1000.00\n"

    def process(self) -> object:
        return self.its

    def get(self, what: str, *, params: Any) -> list[dict[str, Any]]:
        assert what == "nodes"
        assert "os_pid" in params["columns"]
        return [{"name": "rabbit@h2", "os_pid": "22", "uptime": 5}, self.row]


def told(there: Any) -> list[str]:
    return list(strangers({NODE: there}, {NODE: there}, {NODE: there}))


@pytest.mark.parametrize("uptime_ms", [871_000, 900_000, 929_000])
def test_the_same_process_of_the_same_age_is_no_stranger(uptime_ms: int) -> None:
    assert told(There(uptime_ms=uptime_ms)) == []


@pytest.mark.parametrize(
    "there",
    [There(pid="22"), There(uptime_ms=80_000), There(uptime_ms=950_000), There(pid="22", uptime_ms=5)],
    ids=["number", "younger", "older", "both"],
)
def test_another_number_or_age_is_one(there: There, message: Messages) -> None:
    (text,) = told(there)
    assert text.startswith("rabbit@h1 ")
    message(text)


def test_one_that_answers_and_is_not_found_there_is_one(message: Messages) -> None:
    (text,) = told(There(process=None))
    message(text)
    there: Any = There(process=None)
    (by_commands,) = strangers({NODE: there}, {}, {NODE: there})
    message(by_commands)


def test_one_that_shows_nothing_is_waited_for_and_then_reported(
    monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    clock = waits_by_clock(monkeypatch)
    began_s = clock.now_s
    silent = There()
    silent.row = {"name": NODE}
    (text,) = told(silent)
    assert clock.now_s - began_s == pytest.approx(identity.REPORTED_WITHIN_S)
    message(text)


def test_a_process_that_only_has_a_name_is_believed() -> None:
    assert told(There(process=object())) == []
