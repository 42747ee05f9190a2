"""A small scenario on real brokers that are scraped, judged again without any of them."""

from __future__ import annotations

import pyarrow.compute as pc
import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.events import FaultEvent, MachineEvent
from rabbitmq_resilience.history.metrics import METRICS, SERIES
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.runner.judging import judge_run
from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.workload.workload_model import Workload
from tests.run_scenarios import run_validated

pytestmark = [pytest.mark.core, pytest.mark.usefixtures("measurable")]

#: More than these brokers store, and less than any disk of today.
STORED_BYTES_MAX = 500_000_000
MEASURED = ("memory", "alarms", "followers", "unacked")


def test_what_brokers_say_is_kept_and_judged_again_without_a_server(
    own_testbed: RunContext, monkeypatch: pytest.MonkeyPatch
) -> None:
    scenario = Scenario(
        title="Measured",
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=Workload(queues=2, publishers=2, consumers=2, rate_per_s=200),
        phases=Phases(steady_s=4, recovery_s=60, settled_s=2),
        schedule=(Kill(at_s=1, for_s=10, node="c1"),),  # a busy machine misses one scrape a second, and not seven
        invariants=Invariants.model_validate(
            {"disk": {"taken_bytes_max": STORED_BYTES_MAX}, **{name: {} for name in ("no_loss", *MEASURED)}}
        ),
        metrics=True,
    )
    result = run_validated(scenario, own_testbed)
    table = result.run.metrics()

    assert table.schema.equals(SERIES)
    assert set(table["metric"].to_pylist()) == {metric.name for metric in METRICS}
    assert set(table["node"].to_pylist()) == {"a1", "b1", "c1"}
    assert {"", "q1", "q2"} <= set(table["queue"].to_pylist())
    events = result.run.events()
    assert events[0].t_us < pc.min(table["t_us"]).as_py() + 1_000_000
    assert pc.max(table["t_us"]).as_py() < events[-1].t_us + 1_000_000
    assert not result.run.scraped.exists()
    # On a busy machine brokers answer scrapes late, so that what they measure of themselves may be UNKNOWN.
    assert result.verdict is not Verdict.INVALID, result.story()
    sections = (result.document["assumptions"], result.document["invariants"])
    not_valid = {name for section in sections for name, row in section.items() if row["verdict"] != "VALID"}
    assert not_valid <= {"disk", *MEASURED}, result.story()
    assert result.document["numbers"]["replicated_bytes"] > 0
    assert 0 < result.document["numbers"]["memory_ratio_max"] < 1

    stored = [event.stored_bytes for event in events if isinstance(event, MachineEvent)]
    assert all(look.keys() == {"a1", "b1", "c1"} and min(look.values()) > 0 for look in stored)
    assert len(stored) > 2
    assert 0 < result.document["invariants"]["disk"]["numbers"]["taken_bytes_max"] < STORED_BYTES_MAX

    killed, healing = (
        next(e.t_us for e in events if isinstance(e, FaultEvent) and e.state == state)
        for state in ("injected", "healing")
    )
    meanwhile = pc.and_(pc.greater(table["t_us"], killed + 3_000_000), pc.less(table["t_us"], healing))
    seen = table.filter(pc.and_(meanwhile, pc.equal(table["metric"], "memory_used")))
    assert set(seen["node"].to_pylist()) == {"a1", "b1"}

    monkeypatch.setenv("PROMETHEUS", "/nowhere")
    again = judge_run(result.run)
    assert again.document["invariants"] == result.document["invariants"]
    assert again.document["numbers"] == result.document["numbers"]
