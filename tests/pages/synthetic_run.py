"""A run that never happened, for looking at pages and for tests: a zone cut off, a slow link, a kill."""

from __future__ import annotations

import itertools
import json
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from rabbitmq_resilience.history.history import (
    DELIVERIES,
    DELIVERIES_SUFFIX,
    PUBLISHES,
    PUBLISHES_SUFFIX,
    Outcome,
    StreamWriter,
)
from rabbitmq_resilience.history.metrics import SERIES
from rabbitmq_resilience.history.run_directory import RunDirectory

START_US = 5_000_000_000
NODES = {"a1": "a", "a2": "a", "b1": "b", "b2": "b", "c1": "c"}
STEADY_S, CUT_S, HEAL_S, SLOW_S, FAST_S, KILL_S, START_S, END_S = 10, 12, 32, 18, 23, 36, 44, 80

FAULT_FILE = """\
version: 1
title: Zone b is cut off while confirms are in flight
broker: ">=3.8,<4.3"
seed: 4711
topology: five_nodes_three_zones
workload: {kind: confirmed_publish, queue_type: quorum, queues: 4, publishers: 4, consumers: 4, rate_per_s: 800}
phases: {steady_s: 10, recovery_s: 60, drain_s: 60}
schedule:
  - {at_s: 2, for_s: 20, fault: partition, between: ["zone:b", "rest"]}
  - {at_s: 8, for_s: 5, fault: latency, links: "zone:a -> zone:c", latency_ms: 120, jitter_ms: 30}
  - {at_s: 26, for_s: 8, fault: kill, node: "leader:q1"}
invariants:
  no_loss: {}
  availability: {stall_s_max: 15}
  recovery: {within_s: 30}
"""


def write_synthetic_run(
    root: Path, *, publishers: int = 4, rate_per_s: int = 200, verdict: str = "INVALID"
) -> RunDirectory:
    run = RunDirectory.create(root, "zone-b-is-cut-off-quorum")
    run.fault_file.write_text(FAULT_FILE, encoding="utf-8")
    run.events_file.write_text("".join(json.dumps(e) + "\n" for e in sorted(_events(), key=lambda e: e["t_us"])))
    random = np.random.default_rng(4711)
    for publisher in range(publishers):
        _write_messages(run.history, publisher, rate_per_s=rate_per_s, random=random)
    for node in NODES:
        (run.logs / f"{node}.log").write_text(f"{node} started\n", encoding="utf-8")
    run.write_verdict(synthetic_verdict(verdict))
    pq.write_table(_metrics(), run.metrics_file)
    return run


def _at(seconds: float) -> int:
    return START_US + int(seconds * 1e6)


def _events() -> list[dict[str, Any]]:
    def event(at_s: float, kind: str, **fields: Any) -> dict[str, Any]:
        return {"t_us": _at(at_s), "kind": kind, **fields}

    cut = {"links_cut": [p for a, b in itertools.product(("b1", "b2"), ("a1", "a2", "c1")) for p in ([a, b], [b, a])]}
    slow = {"links_slow": [["a1", "c1"], ["a2", "c1"]]}
    killed = {"nodes_down": ["a1"]}
    events = [
        event(
            0,
            "cluster",
            topology="five_nodes_three_zones",
            nodes=NODES,
            broker_version="3.10.8",
            driver="local",
            partition_handling="pause_minority",
            net_ticktime_s=5,
        )
    ]
    for at_s, phase in ((0.2, "steady"), (STEADY_S, "chaos"), (START_S, "recovery"), (62, "drain"), (END_S, "end")):
        events.append(event(at_s, "phase", phase=phase))
    steps = [{"rate_per_s": 800, "for_s": 8}, {"rate_per_s": 1200, "for_s": 12}, {"rate_per_s": 400, "for_s": 6}]
    events.append(event(STEADY_S, "load", begins_us=_at(STEADY_S), rate_per_s=800, variable_rate=steps))
    for at_s, change in ((40, "blocked"), (46, "unblocked")):
        events.append(event(at_s, "worker", worker="publisher-0", event=change, node="a1", detail=""))
    for step, (fault, start_s, end_s, effect, detail) in enumerate(
        (
            ("partition", CUT_S, HEAL_S, cut, "zone:b cut off from the rest"),
            ("latency", SLOW_S, FAST_S, slow, "zone:a -> zone:c 120 ms, jitter 30 ms"),
            ("kill", KILL_S, START_S, killed, "a1, leader of q1"),
        )
    ):
        for at_s, state in (
            (start_s - 0.1, "injecting"),
            (start_s, "injected"),
            (start_s + 0.5, "proven" if fault != "latency" else "unproven"),
            (end_s - 0.1, "healing"),
            (end_s, "healed"),
            (end_s + 1, "heal_proven"),
        ):
            events.append(event(at_s, "fault", step=step, fault=fault, state=state, effect=effect, detail=detail))
    for tick in range(END_S * 2):
        at_s = tick / 2
        b = "paused" if CUT_S + 5.5 <= at_s < HEAL_S + 2 else "up"
        a1 = "down" if KILL_S <= at_s < START_S else "paused" if START_S <= at_s < START_S + 4 else "up"
        events.append(event(at_s + 0.03, "nodes", states={"a1": a1, "a2": "up", "b1": b, "b2": b, "c1": "up"}))
    for at_s in range(END_S):
        if CUT_S < at_s < CUT_S + 6:
            continue
        backlog = max(0, min(at_s - KILL_S, 50 - at_s)) * 220
        queues = {
            f"q{i}": {"ready": backlog if i == 1 else 3, "unacked": 40 + at_s % 7 * 5, "leader": "a1"}
            for i in range(1, 5)
        }
        memory = {node: int(1.4e8 + 4e5 * at_s + 3e7 * (backlog > 0) + 5e6 * i) for i, node in enumerate(NODES)}
        events.append(event(at_s + 0.3, "sample", queues=queues, memory_bytes=memory))
    return events


def _metrics() -> pa.Table:
    """Memory comes near the watermark while a1 is down, and raises the alarm of b1; a1 has a gap."""

    def values(i: int, node: str, at_s: int) -> dict[str, float]:
        full = KILL_S <= at_s < START_S
        used = 1.4e8 + 4e5 * at_s + 1.5e8 * full + 5e6 * i
        return {
            "memory_used": used,
            "memory_limit": 3e8,
            "alarm_memory": float(full and node == "b1"),
            "alarm_disk": 0,
            "replication_received": 8e5 + 2e4 * i + 4e5 * full,
        }

    rows = [
        {"metric": metric, "node": node, "queue": "", "t_us": _at(at_s), "value": value}
        for i, node in enumerate(NODES)
        for at_s in range(END_S)
        if node != "a1" or not KILL_S <= at_s < START_S + 4
        for metric, value in values(i, node, at_s).items()
    ]
    return pa.Table.from_pylist(rows, schema=SERIES)


def _write_messages(folder: Path, publisher: int, *, rate_per_s: int, random: np.random.Generator) -> None:
    sent_s = 0.3 + np.arange(0, 61.5, 1 / rate_per_s) + random.uniform(0, 0.002, int(np.ceil(61.5 * rate_per_s)))
    stalled = (
        (sent_s > CUT_S) & (sent_s < CUT_S + 6) if publisher in (1, 2) else (sent_s > KILL_S) & (sent_s < KILL_S + 2.5)
    )
    in_flight = stalled & (np.cumsum(stalled) <= 100)
    sent_s, in_flight = sent_s[~stalled | in_flight], in_flight[~stalled | in_flight]
    n = len(sent_s)
    latency_s = random.lognormal(-4.6, 0.5, n) * np.where((sent_s > SLOW_S) & (sent_s < FAST_S), 12, 1)
    latency_s[in_flight] += 6 if publisher in (1, 2) else 2.5
    outcome = np.where(in_flight & (random.random(n) < 0.2), int(Outcome.UNKNOWN), int(Outcome.CONFIRMED))
    outcome[(sent_s > 40) & (random.random(n) < 0.01)] = int(Outcome.NACKED)
    received_s = sent_s + latency_s + random.exponential(0.004, n) + np.where((sent_s > KILL_S) & (sent_s < 50), 1.5, 0)
    with_us = START_US + (np.stack([sent_s, sent_s + latency_s, received_s]) * 1e6).astype(np.int64)
    publishes = StreamWriter(folder / f"publisher-{publisher}{PUBLISHES_SUFFIX}", PUBLISHES)
    deliveries = StreamWriter(folder / f"consumer-{publisher}{DELIVERIES_SUFFIX}", DELIVERIES)
    same = np.full(n, publisher)
    for part in np.array_split(np.arange(n), 40):
        columns = {"publisher": same, "route": same, "sequence": np.arange(n), "node": np.zeros(n, dtype=int)}
        columns |= {"due_us": with_us[0], "sent_us": with_us[0], "outcome": outcome, "outcome_us": with_us[1]}
        publishes.append({name: values[part] for name, values in columns.items()})
        columns = {"consumer": same, "publisher": same, "queue": same, "sequence": np.arange(n)}
        columns |= {"received_us": with_us[2], "redelivered": in_flight, "intact": np.ones(n, dtype=bool)}
        deliveries.append({name: values[part] for name, values in columns.items()})
    publishes.close()
    deliveries.close()


def synthetic_verdict(verdict: str = "INVALID") -> dict[str, Any]:
    """``verdict.json`` of the synthetic run."""
    lost = 37 if verdict == "INVALID" else 0
    examples = [
        f"publisher 2, message {1002 + i}, published to q3 on b1 at 11.{90 + i} s, 0.1 s before partition was injected"
        for i in range(5)
    ]
    unproven = "1 of 3 faults was not proven: step 1, latency on a1->c1: the probe took 3 ms, not at least 120 ms"
    return {
        "verdict": verdict,
        "title": "Zone b is cut off while confirms are in flight",
        "seed": 4711,
        "broker_version": "3.10.8",
        "driver": "local",
        "started_at": "2026-11-21T10:36:43Z",
        "duration_s": 80.0,
        "expected": "VALID",
        "as_expected": verdict == "VALID",
        "invariants": {
            "no_loss": {
                "verdict": verdict,
                "summary": f"{lost} of 45,912 confirmed messages were never received after a complete drain",
                "numbers": {
                    "confirmed": 45912,
                    "lost": lost,
                    "unexpected": 0,
                    "recovered": 41,
                    "duplicates_redelivered": 206,
                },
                "examples": examples if lost else [],
            },
            "availability": {
                "verdict": "VALID",
                "summary": "The longest stall of confirms was 6.1 s, at most 15 s is allowed",
                "numbers": {"stall_s": 6.1, "queue": "q2"},
            },
            "recovery": {
                "verdict": "VALID",
                "summary": "All nodes and queues were whole 8.4 s after the last fault was healed",
                "numbers": {"recovered_after_s": 8.4, "watched_s": 36.0},
            },
            "throughput": {
                "verdict": "VALID",
                "summary": "71 % of the steady rate was kept while faults were active",
                "numbers": {"steady_per_s": 801.3, "chaos_per_s": 569.2, "ratio": 0.71},
            },
        },
        "assumptions": {
            "load": {"verdict": "VALID", "summary": "49,200 messages were published", "numbers": {"published": 49200}},
            "faults_proven": {
                "verdict": "UNKNOWN" if verdict == "UNKNOWN" else "VALID",
                "summary": unproven if verdict == "UNKNOWN" else "All 3 faults were proven",
                "numbers": {"faults": 3},
            },
        },
    }
