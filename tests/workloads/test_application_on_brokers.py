"""Programs that are not ours, behind a tap, on real brokers that fail: what is said of the programs is true."""

from __future__ import annotations

import io
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest

from rabbitmq_resilience.history.events import FaultEvent, NoteEvent
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.runner.run import RunContext, run_scenario
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.validation import validated
from rabbitmq_resilience.sut.pool import ClusterPool
from rabbitmq_resilience.workload.application_model import Variables
from tests.parts import ROOT

pytestmark = pytest.mark.plays

EXAMPLES = ROOT / "faults" / "examples"
PIKA = ROOT / "examples" / "applications" / "pika"
PROVEN = ["injecting", "injected", "proven", "healing", "healed", "heal_proven"]
RECKLESS = """
version: 1
title: Careless programs lose a broker
topology: three_nodes_three_zones
workload:
  kind: application
  queue_type: quorum
  processes:
    - {name: source, command: ["{python}", reckless.py, publish], stops: before_drain}
    - {name: sink, command: ["{python}", reckless.py, consume]}
    - {name: idler, command: ["{python}", reckless.py, quit]}
  flowing: {published: 20, delivered: 20}
phases: {steady_s: 4, recovery_s: 60, drain_s: 60}
schedule:
  - {at_s: 1, for_s: 12, fault: kill, node: "leader:jobs"}
invariants:
  no_loss: {}
  recovery: {within_s: 60}
  reconnects: {within_s: 15}
"""
HELD = """
version: 1
title: A worker subscribes slowly, and another is cut off
topology: three_nodes_three_zones
workload:
  kind: application
  queue_type: quorum
  processes:
    - {name: producer, command: ["{python}", shop.py, producer], stops: before_drain}
    - {name: worker, command: ["{python}", shop.py, worker], number: 3}
  flowing: {published: 20, delivered: 20}
phases: {steady_s: 4, recovery_s: 60, drain_s: 60}
schedule:
  - {at_s: 0, for_s: 20, fault: hold_method, method: basic.consume-ok, hold_s: 20, process: worker-1}
  - {at_s: 1, for_s: 2, fault: kill_client, client: "application:worker-1"}
  - {at_s: 4, for_s: 14, fault: partition, between: ["application:worker-0", all]}
invariants:
  no_loss: {}
  recovery: {within_s: 60}
  reconnects: {within_s: 15}
  consumers: {within_s: 15}
  settled: {}
"""
KILLED = """
version: 1
title: A worker is killed while it works
topology: one_node
workload:
  kind: application
  queue_type: quorum
  processes:
    - {name: producer, command: ["{python}", producer.py], environ: {RATE_PER_S: "10"}, stops: before_drain}
    - {name: worker, command: ["{python}", %s], environ: {WORK_S: "0.12"}}
  flowing: {published: 20, delivered: 10}
phases: {steady_s: 4, recovery_s: 60, drain_s: 60}
schedule:
  - {at_s: 1, for_s: 2, fault: kill_client, client: "application:worker-0"}
  - {at_s: 6, for_s: 2, fault: kill_client, client: "application:worker-0"}
invariants:
  no_loss: {}
  settled: {}
  committed: {}
"""


def played(scenario: Any, folder: Path) -> Result:
    """Play a scenario, and assert that each step was proven to begin and to end."""
    with ClusterPool() as pool:
        result = run_scenario(scenario, RunContext(pool, folder, io.StringIO()))
    states, details = defaultdict(list), defaultdict(list)
    for event in result.run.events():
        if isinstance(event, FaultEvent):
            states[event.step].append(event.state)
            details[event.step].append(event.detail)
    steps = len(scenario.schedule)
    assert {step: sorted(seen) for step, seen in states.items()} == dict.fromkeys(range(steps), sorted(PROVEN)), details
    return result


def verdicts(result: Result) -> dict[str, str]:
    """Return the verdict of each invariant, and of those assumptions that failed."""
    document = result.document
    failed = {name: one for name, one in document["assumptions"].items() if one["verdict"] != "VALID"}
    return {name: one["verdict"] for name, one in {**document["invariants"], **failed}.items()}


def test_the_shop_of_the_examples_survives_the_loss_of_its_leader(tmp_path: Path) -> None:
    result = played(fault_file.load(EXAMPLES / "application.fault.yaml"), tmp_path)
    assert set(verdicts(result).values()) == {"VALID"}, result.document
    assert result.document["verdict"] == "VALID"


def test_the_shop_comes_back_over_tls_too(tmp_path: Path) -> None:
    """Its client trusts the authorities of the file that SSL_CERT_FILE names, as many do. Properties are recorded."""
    scenario = fault_file.load(EXAMPLES / "application.fault.yaml")
    variables = Variables(ca_file="SSL_CERT_FILE")
    workload = scenario.workload.model_copy(update={"variables": variables, "properties": "values"})
    topology = scenario.topology.model_copy(update={"client_tls": True})
    changed = scenario.model_copy(update={"workload": workload, "topology": topology})
    result = played(validated(changed, driver="local"), tmp_path)
    assert set(verdicts(result).values()) == {"VALID"}, result.document
    assert [path for path in tmp_path.rglob("*") if path.is_file() and b"PRIVATE KEY" in path.read_bytes()] == []


def test_careless_programs_are_named_with_what_they_do(tmp_path: Path) -> None:
    """Nothing is confirmed, all messages are equal, and a process ends by itself: each is said, and nothing else."""
    scenario = fault_file.parse(RECKLESS, folder=Path(__file__).parent / "applications")
    result = played(scenario, tmp_path)
    up = result.document["invariants"]["stays_up"]
    assert up["verdict"] == "INVALID"
    assert up["summary"].startswith("1 process ended by itself; idler-0 ended with status 3 at ")
    assert up["summary"].endswith(": a worker without work gives up")
    assert verdicts(result)["reconnects"] == "VALID", result.document["invariants"]
    assert result.document["invariants"]["no_loss"]["verdict"] != "INVALID", result.document["invariants"]
    notes = [event.detail for event in result.run.events() if isinstance(event, NoteEvent)]
    assert [note for note in notes if note.startswith("source-0 published ") and "without confirms" in note]
    assert [note for note in notes if note.startswith("sink-0 got ") and "acknowledged when they are sent" in note]
    assert not [note for note in notes if "no queue was bound" in note]


def test_a_subscription_is_held_and_a_worker_cut_off_while_others_go_on(tmp_path: Path) -> None:
    result = played(fault_file.parse(HELD, folder=EXAMPLES), tmp_path)
    assert set(verdicts(result).values()) == {"VALID"}, result.document


@pytest.mark.parametrize(
    ("program", "verdict", "advice"),
    [("worker.py", "VALID", 0), ("worker_with_early_acks.py", "INVALID", 2)],
)
def test_a_worker_that_acknowledges_before_its_work_is_found(
    program: str, verdict: str, advice: int, tmp_path: Path
) -> None:
    """Only what it writes of its work shows that: on the wire nothing is lost, and all is settled."""
    result = played(fault_file.parse(KILLED % program, folder=PIKA), tmp_path)
    found = result.document["invariants"]["committed"]
    expected = {"no_loss": "VALID", "stays_up": "VALID", "settled": "VALID", "committed": verdict}
    assert verdicts(result) == expected, result.document["invariants"]
    notes = [event.detail for event in result.run.events() if isinstance(event, NoteEvent)]
    assert len([note for note in notes if note.startswith("worker-0 acknowledged ")]) == advice, notes
    assert ("its program never committed it" in found["summary"]) == (verdict == "INVALID")
