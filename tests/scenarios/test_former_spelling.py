"""Read fault files in the spelling of version 0.1: they mean the same, and say what to write."""

from __future__ import annotations

import pytest
import yaml

from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.fault_file import FaultFileError
from rabbitmq_resilience.scenario.model import Scenario

WHOLE = """
version: 1
title: A broker dies
topology: three_nodes_three_zones
workload: {{queues: 1}}
phases: {{steady_s: 5, recovery_s: 60, drain_s: 60}}
schedule:
  - {{at_s: 1, for_s: 1, fault: kill, node: a1}}
invariants: {{no_loss: {{}}, recovery: {{}}, availability: {{}}}}
expect:
  - {{broker: "<3.11", verdict: INVALID, invariant: recovery, {fields}}}
"""
PRESENT = WHOLE.format(fields="invariants_also: [availability], intermittent: true")


def test_the_former_spelling_means_the_same_and_is_warned_of() -> None:
    former = WHOLE.format(fields="also: [availability], always: false")
    with pytest.warns(FutureWarning) as warned:
        found = fault_file.parse(former, source="a.fault.yaml")
    assert found == fault_file.parse(PRESENT)
    texts = [str(one.message) for one in warned]
    assert len(texts) == 2
    assert all(text.startswith("a.fault.yaml, line 11: expect.0.") for text in texts)
    assert "write invariants_also" in texts[0]
    assert "write intermittent: true" in texts[1]


def test_a_record_of_a_run_is_read_without_a_warning() -> None:
    former = WHOLE.format(fields="also: [availability], always: false")
    assert fault_file.parse(former, driver=None) == fault_file.parse(PRESENT, driver=None)


def test_a_scenario_is_written_in_the_present_spelling() -> None:
    text = fault_file.dump(fault_file.parse(PRESENT))
    assert "intermittent: true" in text
    assert fault_file.parse(text) == fault_file.parse(PRESENT)


@pytest.mark.parametrize("fields", ["also: [order], invariants_also: []", "always: false, intermittent: true"])
def test_both_spellings_at_once_are_refused(fields: str) -> None:
    with pytest.raises(FaultFileError, match="which is there too"):
        fault_file.parse(WHOLE.format(fields=fields), driver=None)


STEPS = """
version: 1
title: A load balancer dies
topology: three_nodes_two_balancers
workload: {{queues: 1, publishers: 2, consumers: 2}}
schedule:
  - {{at_s: 1, for_s: 1, {step}}}
invariants: {{no_loss: {{}}, recovery: {{}}}}
"""


LOSES = "loss_percent: 5"
AGAIN = "fault: netem, links: a1 -> b1"


@pytest.mark.parametrize(
    ("former", "present", "advice"),
    [
        ("fault: kill_balancer, balancer: 'balancer:0'", "fault: kill, node: 'balancer:0'", ""),
        ("fault: pause_balancer, balancer: all", "fault: pause, node: 'balancer:all'", ""),
        (
            "fault: packet_loss, percent: 5",
            "by: iptables, loss_percent: 5",
            "fault: netem, by: iptables, loss_percent: 5",
        ),
        ("fault: packet_loss, percent: 5, by: netem", "loss_percent: 5", "fault: netem, loss_percent: 5"),
        ("fault: packet_delay, delay_ms: 50, jitter_ms: 10", "delay_ms: 50, jitter_ms: 10", "fault: netem"),
        ("fault: packet_rate, rate_kbit_per_s: 256", "rate_kbit_per_s: 256", "fault: netem"),
        ("fault: packet_corrupt, percent: 2.5", "corrupt_percent: 2.5", "fault: netem, corrupt_percent: 2.5"),
        ("fault: packet_duplicate, percent: 10", "duplicate_percent: 10", "fault: netem, duplicate_percent: 10"),
    ],
)
def test_former_faults_mean_the_same_and_are_warned_of(former: str, present: str, advice: str) -> None:
    if advice:
        former, present = f"{former}, links: a1 -> b1", f"{AGAIN}, {present}"
    with pytest.warns(FutureWarning) as warned:
        found = fault_file.parse(STEPS.format(step=former), source="a.fault.yaml", driver="docker")
    assert found == fault_file.parse(STEPS.format(step=present), driver="docker")
    name = former.split(",")[0].removeprefix("fault: ")
    (text,) = (str(one.message) for one in warned)
    told = f"write {advice or present}; {name} goes in the next release"
    assert text == f"a.fault.yaml, line 7: schedule.0.fault: {told}"
    assert fault_file.parse(STEPS.format(step=former), driver=None) == found
    assert Scenario.model_validate(yaml.safe_load(STEPS.format(step=former))) == found
    assert fault_file.parse(fault_file.dump(found), driver="docker") == found
