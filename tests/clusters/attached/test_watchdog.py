"""When watchdogs heal, as they are told."""

from __future__ import annotations

from typing import Any, cast

import pytest

from rabbitmq_resilience.clusters.attached import watchdog
from rabbitmq_resilience.clusters.attached.machine import Machine


class Shell:
    """A machine that notes what it is asked."""

    state = "/run/rabbitmq-resilience"

    def __init__(self) -> None:
        self.after_s = list[int]()

    def run(self, _script: str, folder: str, after_s: str, *_arguments: str) -> str:
        assert folder == "/run/rabbitmq-resilience/h1-broker"
        self.after_s.append(int(after_s))
        return ""


def test_what_takes_its_time_is_not_healed_before_it_is_done() -> None:
    shell = Shell()
    machine = cast(Machine, cast(Any, shell))
    with watchdog.doing(machine, "h1-broker", heal="start", for_s=5):
        assert shell.after_s == [5 + 120 + 30]
    assert shell.after_s == [155, 35], "from now on"


def test_where_it_fails_somebody_still_watches() -> None:
    shell = Shell()
    with (
        pytest.raises(RuntimeError),
        watchdog.doing(cast(Machine, cast(Any, shell)), "h1-broker", heal="start", for_s=5),
    ):
        raise RuntimeError
    assert shell.after_s == [155]
