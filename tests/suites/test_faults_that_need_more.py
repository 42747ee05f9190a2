"""Scenarios of machines that need more than a container engine: each variant has one, which is skipped without it."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.nemesis.netem import CHANGES
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.tools.distributions import ToolMissingError
from suites import test_machines as machines


def test_each_change_of_packets_has_a_scenario() -> None:
    assert {field for fields in machines.PACKETS.values() for field in fields} >= set(CHANGES)


@pytest.mark.parametrize("how", machines.PACKETS)
def test_a_scenario_is_skipped_with_what_is_missing(how: str) -> None:
    def play(scenario: Scenario) -> Result:
        assert scenario.needs == {"pumba", "netem"}
        raise ToolMissingError("the kernel has no sch_netem")

    with pytest.raises(pytest.skip.Exception, match="no sch_netem"):
        machines.test_packets_are_disturbed(how, "quorum", 5, play)
