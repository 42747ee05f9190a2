"""Write the record of a made-up run: an hour of rolling restarts with 100 queues, at the case study's full scale.

Its directory is like that of ``suites/test_rolling_restarts.py::test_throughout`` at scale 1. In each round every node
is stopped and started, one after another, and then the leaders are spread again. A consumer of its own reads the
messages of each publisher. Messages at the time of a restart are confirmed late or never, and delivered twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from benchmarks.hour import RECOVERY_S, STEADY_S, Array, Hour
from rabbitmq_resilience.history.events import Event, event_of
from rabbitmq_resilience.history.history import DELIVERIES, PUBLISHES, Outcome
from rabbitmq_resilience.history.manifest import seal
from rabbitmq_resilience.history.metrics import SERIES
from rabbitmq_resilience.history.routes import Routes
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.workload.counters import Count, Counters
from rabbitmq_resilience.workload.load import Load, Role, WorkerClients, deliveries_path, grouped, publishes_path

ORIGIN_US = 3_600_000_000
#: The length of the stretches in which the brokers' metrics are written.
STRETCH_S = 600

QUEUE_METRICS = ("ready", "unacked")
MEMBER_METRICS = ("raft_commit_index", "raft_written_index", "raft_snapshot_index", "raft_commit_latency")
NODE_METRICS = {
    "scraped": 1.0,
    "memory_used": 3e9,
    "memory_limit": 9e9,
    "disk_free": 2e11,
    "disk_limit": 5e7,
    "alarm_memory": 0.0,
    "alarm_disk": 0.0,
    "connections": 70.0,
    "open_files": 400.0,
    "open_files_limit": 65_536.0,
    "replication_received": 7e6,
    "replication_sent": 7e6,
}


def record(run: RunDirectory, hour: Hour) -> None:
    fault_file.save(hour.scenario, run.fault_file)
    _write_events(run.events_file, _events(hour))
    _load(hour).save(run.history)
    Routes.plain(hour.queues).save(run.history)
    counters = Counters(run.history, workers=2 * hour.pairs, create=True)
    load = _load(hour)
    for publishers, consumers in zip(load.processes("publisher"), load.processes("consumer"), strict=True):
        unknown = _publish(run.history, hour, publishers)
        received = _deliver(run.history, hour, consumers)
        for i in publishers.clients:
            for count, value in (("SENT", hour.each), ("RECORDED", hour.each), ("CONFIRMED", hour.each - unknown[i])):
                counters.set(i, Count[count], value)
            counters.set(i, Count.UNKNOWN, unknown[i])
            counters.set(hour.pairs + i, Count.RECORDED, received[i])
        for process in (publishers, consumers):
            _write_events(
                run.history / f"{process.name}.jsonl",
                (e for i in process.clients for e in _worker_events(hour, f"{process.role}-{i}", hour.home(i))),
            )
    counters.close()
    _write_metrics(run.metrics_file, hour)
    seal(run.path)


def _load(hour: Hour) -> Load:
    workload = hour.scenario.generated
    shared = Load.model_fields.keys() & type(workload).model_fields.keys() - {"queues"}
    stated = {name: getattr(workload, name) for name in shared}
    groups = grouped(hour.pairs, alone=())
    together: dict[Role, Any] = {"publisher": groups, "consumer": groups}
    return Load(
        run=1, seed=hour.scenario.seed, vhost="hour", addresses=(), queues=hour.names, shared=together, **stated
    )


def _at(at_s: float) -> int:
    return ORIGIN_US + round(at_s * 1e6)


def _event(at_s: float, kind: str, **fields: Any) -> Event:
    return event_of({"t_us": _at(at_s), "kind": kind, **fields})


def _write_events(path: Path, events: Iterator[Event]) -> None:
    ordered = sorted(events, key=lambda event: event.t_us)
    path.write_text(
        "".join(json.dumps({"n": n, **e.as_fields()}, separators=(",", ":")) + "\n" for n, e in enumerate(ordered)),
        encoding="utf-8",
    )


# ---- messages


def _publish(folder: Path, hour: Hour, process: WorkerClients) -> Mapping[int, int]:
    """Write the publishes of a process, and return {publisher: the number of its messages that are never confirmed}.

    These are a tenth of the messages in the first second of a restart of its node. The others are confirmed late.
    """
    unknown: dict[int, int] = {}
    parts = []
    for i in process.clients:
        sequence, sent_s, struck = _sent(hour, i)
        home = hour.home(i)
        lost = struck & (sequence % 10 == 0)
        unknown[i] = int(np.count_nonzero(lost))
        parts.append(
            {
                "publisher": np.full(hour.each, i, np.uint32),
                "route": np.full(hour.each, i % hour.queues, np.uint32),
                "sequence": sequence.astype(np.uint32),
                "due_us": _us(sent_s),
                "sent_us": _us(sent_s),
                "outcome": np.where(lost, int(Outcome.UNKNOWN), int(Outcome.CONFIRMED)).astype(np.uint8),
                "outcome_us": _us(sent_s + 0.005 + struck),
                "node": np.where(hour.away(home, sent_s), (home + 1) % len(hour.nodes), home).astype(np.uint16),
            }
        )
    _write(publishes_path(folder, process.name, 0), PUBLISHES, parts, "outcome_us", hour.rows_together)
    return unknown


def _deliver(folder: Path, hour: Hour, process: WorkerClients) -> Mapping[int, int]:
    """Write the deliveries of a process, and return {consumer: the number of its deliveries}.

    Messages from a stopped node are delivered again, marked as redelivered.
    """
    received: dict[int, int] = {}
    parts = []
    for i in process.clients:
        sequence, sent_s, struck = _sent(hour, i)
        again = np.flatnonzero(struck)
        received[i] = hour.each + len(again)
        apart_s = np.arange(hour.each) * 1e-6
        received_s = np.maximum.accumulate(sent_s + 0.008 + struck - apart_s) + apart_s  # later messages wait, too
        clients = {name: np.full(received[i], i, np.uint32) for name in ("consumer", "publisher")}
        parts.append(
            {
                **clients,
                "queue": np.full(received[i], i % hour.queues, np.uint32),
                "sequence": np.concatenate((sequence, sequence[again])).astype(np.uint32),
                "received_us": _us(np.concatenate((received_s, received_s[again] + 1))),
                "redelivered": np.arange(received[i]) >= hour.each,
                "intact": np.ones(received[i], dtype=bool),
            }
        )
    _write(deliveries_path(folder, process.name, 0), DELIVERIES, parts, "received_us", hour.rows_together)
    return received


def _sent(hour: Hour, i: int) -> tuple[Array, Array, Array]:
    """Return the messages of a publisher: sequences, seconds of sending, and whether a restart of its node hits."""
    sequence = np.arange(hour.each)
    sent_s = sequence * (hour.phases_s["drain"] / hour.each)
    home = hour.home(i)
    return sequence, sent_s, hour.away(home, sent_s) & ~hour.away(home, sent_s - 1)


def _us(at_s: Array) -> Array:
    return ORIGIN_US + (at_s * 1e6).astype(np.int64)


def _write(path: Path, schema: pa.Schema, parts: Sequence[Mapping[str, Array]], by: str, rows_together: int) -> None:
    """Write one stream with the rows of several clients, in the order in which their process learned of them."""
    order = np.argsort(np.concatenate([part[by] for part in parts]), kind="stable")
    columns = (np.concatenate([part[field.name] for part in parts])[order] for field in schema)
    table = pa.table([pa.array(c, f.type) for c, f in zip(columns, schema, strict=True)], schema=schema)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        stream.write_table(table, max_chunksize=rows_together)


# ---- events


def _events(hour: Hour) -> Iterator[Event]:
    zones = {node: node[0] for node in hour.nodes}
    fields = {"topology": "three_nodes_three_zones", "partition_handling": "pause_minority", "net_ticktime_s": 5}
    yield _event(0, "cluster", nodes=zones, broker_version="3.10.8", driver="local", **fields)
    leaders = {name: hour.nodes[hour.home(i)] for i, name in enumerate(hour.names)}
    declared = {name: {"type": "quorum", "members": hour.nodes, "leader": leaders[name]} for name in hour.names}
    yield _event(0, "queues", queues=declared)
    rate_per_s = hour.scenario.generated.rate_per_s
    yield _event(STEADY_S, "load", begins_us=_at(STEADY_S), rate_per_s=rate_per_s, variable_rate=[])
    for phase, at_s in hour.phases_s.items():
        yield _event(at_s, "phase", phase=phase)
    yield _event(hour.phases_s["recovery"] + RECOVERY_S, "recovery", complete=True, detail="")
    drained = {"confirmed": hour.messages, "received": hour.messages, "unconsumed": 0}
    yield _event(hour.phases_s["end"] - 1, "drain", complete=True, detail="", **drained)
    for number, step in enumerate(hour.scenario.schedule):
        yield from _fault(number, step)
    yield from _observations(hour, leaders)


def _fault(number: int, step: AnyFault) -> Iterator[Event]:
    down = [step.node] if isinstance(step, Stop) else []
    effect = {"nodes_down": down, "links_cut": [], "links_slow": [], "sudden": False, "intermittent": False}
    effect |= {"nodes_alarmed": [], "alarm": "", "operation": not isinstance(step, Stop)}
    begin_s = STEADY_S + (step.at_s or 0)
    states = {"injecting": 0.0, "injected": 0.5, "proven": 0.6, "healing": 2.0, "healed": 2.1, "heal_proven": 2.2}
    for state, after_s in states.items():
        detail = f"the process of {down[0]} is gone" if down and state == "proven" else ""
        fields = {"step": number, "fault": step.fault, "state": state, "effect": effect, "detail": detail}
        yield _event(begin_s + after_s, "fault", **fields)


def _observations(hour: Hour, leaders: Mapping[str, str]) -> Iterator[Event]:
    end_s = hour.phases_s["end"]
    half_s = np.arange(0, end_s, 0.5)
    away = {node: hour.away(i, half_s) for i, node in enumerate(hour.nodes)}
    for look, at_s in enumerate(half_s.tolist()):
        yield _event(at_s, "nodes", states={node: "down" if away[node][look] else "up" for node in hour.nodes})
        if look % 2:
            continue
        up = [node for node in hour.nodes if not away[node][look]]
        rows = {
            name: {
                "ready": (look + i) % 5 * 30,
                "unacked": (look + i) % 7 * 10,
                "leader": leader if leader in up else up[i % len(up)],
                "members": len(hour.nodes),
                "online": len(up),
                "behind": 0,
            }
            for i, (name, leader) in enumerate(leaders.items())
        }
        memory = {node: 3_000_000_000 + look * 10_000 for node in up}
        yield _event(at_s, "sample", node=up[0], queues=rows, memory_bytes=memory, partitions={})


def _worker_events(hour: Hour, worker: str, home: int) -> Iterator[Event]:
    def event(at_s: float, change: str, node: str) -> Event:
        return _event(at_s, "worker", worker=worker, event=change, node=node, detail="")

    nodes = hour.nodes
    yield event(0, "started", nodes[home])
    yield event(0.2, "connected", nodes[home])
    for stopped_s in hour.stops_s(home).tolist():
        yield event(stopped_s + 0.1, "connection_lost", nodes[home])
        yield event(stopped_s + 0.6, "connected", nodes[(home + 1) % len(nodes)])
    yield event(hour.phases_s["end"], "stopped", nodes[home])


# ---- metrics of the brokers


def _write_metrics(path: Path, hour: Hour) -> None:
    """Write the metrics by stretches, and in each stretch by metric, as ``history.scraped`` does."""
    end_s = hour.phases_s["end"]
    with pq.ParquetWriter(path, SERIES, compression="zstd") as file:
        for start_s in range(0, end_s, STRETCH_S):
            at_s = np.arange(start_s, min(start_s + STRETCH_S, end_s))
            for metric in (*NODE_METRICS, *QUEUE_METRICS, *MEMBER_METRICS):
                file.write_table(pa.concat_tables(_curves(hour, metric, at_s)))


def _curves(hour: Hour, metric: str, at_s: Array) -> Iterator[pa.Table]:
    for node, name in enumerate(hour.nodes):
        served_s = at_s[~hour.away(node, at_s)]
        if metric in NODE_METRICS:
            yield _series(metric, name, "", served_s, np.full(len(served_s), NODE_METRICS[metric]))
        for i, queue in enumerate(hour.names if metric not in NODE_METRICS else ()):
            if metric in MEMBER_METRICS:
                yield _series(metric, name, queue, served_s, _raft(hour, metric, served_s))
            elif hour.home(i) == node:
                yield _series(metric, name, queue, served_s, np.zeros(len(served_s)))


def _raft(hour: Hour, metric: str, at_s: Array) -> Array:
    """Return a Raft metric; indexes follow the messages, and are renewed every 5 s."""
    if metric == "raft_commit_latency":
        return np.full(len(at_s), 0.004)
    renewed_s = np.minimum(at_s // 5 * 5, hour.phases_s["drain"])
    index: Array = np.floor(renewed_s * (hour.each / hour.phases_s["drain"])) * 2
    return index


def _series(metric: str, node: str, queue: str, at_s: Array, values: Array) -> pa.Table:
    same = [pa.repeat(text, len(at_s)) for text in (metric, node, queue)]
    return pa.table([*same, ORIGIN_US + at_s * 1_000_000, values], schema=SERIES)
