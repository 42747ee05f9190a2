"""A run that never happened, at the full scale of the case study: an hour of rolling restarts under 100 queues.

Its directory is like that of ``suites/test_rolling_restarts.py::test_throughout`` at scale 1: in each round every node
is stopped and started, one after another, and then the leaders are spread again. Every queue has a publisher and a
consumer of its own; what a restart touches is confirmed late, or never, and delivered twice.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.parquet as pq

from faults import fault_file
from faults.catalogue import AnyFault
from faults.rebalance import Rebalance
from faults.scenario import Invariants, Phases, Scenario
from faults.stop import Stop
from reports.events import Event
from reports.history import DELIVERIES, DELIVERIES_SUFFIX, PUBLISHES, PUBLISHES_SUFFIX, Outcome
from reports.metrics import SERIES
from reports.run_directory import RunDirectory
from topologies.catalogue import load
from workloads.spec import Workload

ORIGIN_US = 3_600_000_000
STEADY_S, RECOVERY_S, SETTLED_S, DRAIN_S = 10, 10, 50, 20
ROUND_S, TURN_S, AWAY_S, BACK_S = 60, 15, 2, 7
#: How often workers write what they have, be it ever so little (``workloads.publisher``, ``workloads.consumer``).
FLUSH_S = 0.1
#: Of what the brokers say of themselves, so much is taken and written at once.
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

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Hour:
    """``rounds`` of a minute each, in which ``messages`` go through ``queues``."""

    messages: int = 25_000_000
    queues: int = 100
    rounds: int = 60

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        return load("three_nodes_three_zones").node_names

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f"q{i + 1}" for i in range(self.queues))

    @property
    def chaos_s(self) -> int:
        return self.rounds * ROUND_S

    @cached_property
    def phases_s(self) -> Mapping[str, int]:
        chaos_end = STEADY_S + self.chaos_s
        drain = chaos_end + RECOVERY_S + SETTLED_S
        return {"steady": 0, "chaos": STEADY_S, "recovery": chaos_end, "drain": drain, "end": drain + DRAIN_S}

    @property
    def each(self) -> int:
        """Messages of each publisher."""
        return self.messages // self.queues

    @property
    def rows_together(self) -> int:
        """What a worker has to write at once."""
        return max(1, round(self.each * FLUSH_S / self.phases_s["drain"]))

    def home(self, client: int) -> int:
        return client % len(self.nodes)

    def stops_s(self, node: int) -> Array:
        """When that node is stopped, in each round; it is back ``BACK_S`` later."""
        return STEADY_S + node * TURN_S + ROUND_S * np.arange(self.rounds)

    def away(self, node: int, at_s: Array) -> npt.NDArray[np.bool_]:
        """At which of the moments the node does not serve."""
        since_s = (at_s - STEADY_S - node * TURN_S) % ROUND_S
        stopped: npt.NDArray[np.bool_] = (since_s < BACK_S) & (at_s >= STEADY_S) & (at_s < STEADY_S + self.chaos_s)
        return stopped

    @cached_property
    def scenario(self) -> Scenario:
        rate_per_s = self.messages // self.phases_s["drain"]
        workload = {"queues": self.queues, "publishers": self.queues, "consumers": self.queues}
        judged = ("no_loss", "order", "availability", "recovery", "throughput", "partition_mode", "backlog", "memory")
        return Scenario(
            title=f"Rolling restarts for {self.rounds} min, recorded by hand",
            seed=4711,
            topology=load("three_nodes_three_zones"),
            workload=Workload.model_validate({**workload, "queue_type": "quorum", "rate_per_s": rate_per_s}),
            phases=Phases(steady_s=STEADY_S, chaos_s=self.chaos_s),
            metrics=True,
            schedule=tuple(self._schedule()),
            invariants=Invariants.model_validate(
                {name: {} for name in (*judged, "alarms", "leaders_spread", "followers", "unacked")}
            ),
        )

    def _schedule(self) -> Iterator[AnyFault]:
        for begin_s in range(0, self.chaos_s, ROUND_S):
            for i, node in enumerate(self.nodes):
                yield Stop(at_s=begin_s + i * TURN_S, for_s=AWAY_S, node=node)
            yield Rebalance(at_s=begin_s + len(self.nodes) * TURN_S, for_s=AWAY_S)


def record(run: RunDirectory, hour: Hour) -> None:
    fault_file.save(hour.scenario, run.fault_file)
    _write_events(run.events_file, _events(hour))
    for i in range(hour.queues):
        _publish(run.history, hour, i)
        _deliver(run.history, hour, i)
        for kind in ("publisher", "consumer"):
            _write_events(run.history / f"{kind}-{i}.jsonl", _worker_events(hour, f"{kind}-{i}", hour.home(i)))
    _write_metrics(run.metrics_file, hour)


def _at(at_s: float) -> int:
    return ORIGIN_US + round(at_s * 1e6)


def _event(at_s: float, kind: str, **fields: Any) -> Event:
    return {"t_us": _at(at_s), "kind": kind, **fields}


def _write_events(path: Path, events: Iterator[Event]) -> None:
    ordered = sorted(events, key=lambda event: event["t_us"])
    path.write_text("".join(json.dumps(event, separators=(",", ":")) + "\n" for event in ordered), encoding="utf-8")


# ---- messages


def _sent_s(hour: Hour, sequence: Array) -> Array:
    return sequence * (hour.phases_s["drain"] / hour.each)


def _publish(folder: Path, hour: Hour, i: int) -> None:
    """Of what is sent in the first second of a restart of its node, a tenth is never confirmed; the rest is late."""
    sequence, sent_s, struck = _sent(hour, i)
    home = hour.home(i)
    lost = struck & (sequence % 10 == 0)
    columns = {
        "publisher": np.full(hour.each, i),
        "queue": np.full(hour.each, i),
        "sequence": sequence,
        "sent_us": _us(sent_s),
        "outcome": np.where(lost, int(Outcome.UNKNOWN), int(Outcome.CONFIRMED)),
        "outcome_us": _us(sent_s + 0.005 + struck),
        "node": np.where(struck, (home + 1) % len(hour.nodes), home),
    }
    _write(folder / f"publisher-{i}.0{PUBLISHES_SUFFIX}", PUBLISHES, columns, "outcome_us", hour.rows_together)


def _deliver(folder: Path, hour: Hour, i: int) -> None:
    """What a consumer had from a node that is stopped comes again, marked as redelivered."""
    sequence, sent_s, struck = _sent(hour, i)
    again = np.flatnonzero(struck)
    total = hour.each + len(again)
    received_s = np.maximum.accumulate(sent_s + 0.008 + struck)  # in order: what comes after waits too
    columns = {
        **{name: np.full(total, i) for name in ("consumer", "publisher", "queue")},
        "sequence": np.concatenate((sequence, sequence[again])),
        "received_us": _us(np.concatenate((received_s, received_s[again] + 1))),
        "redelivered": np.arange(total) >= hour.each,
        "intact": np.ones(total, dtype=bool),
    }
    _write(folder / f"consumer-{i}.0{DELIVERIES_SUFFIX}", DELIVERIES, columns, "received_us", hour.rows_together)


def _sent(hour: Hour, i: int) -> tuple[Array, Array, Array]:
    """The messages of a publisher: sequence, second of sending, and whether a restart of its node strikes it."""
    sequence = np.arange(hour.each)
    sent_s = sequence * (hour.phases_s["drain"] / hour.each)
    home = hour.home(i)
    return sequence, sent_s, hour.away(home, sent_s) & ~hour.away(home, sent_s - 1)


def _us(at_s: Array) -> Array:
    return ORIGIN_US + (at_s * 1e6).astype(np.int64)


def _write(path: Path, schema: pa.Schema, columns: Mapping[str, Array], by: str, rows_together: int) -> None:
    """One stream, in the order in which its worker learned of each row."""
    order = np.argsort(columns[by], kind="stable")
    table = pa.table([pa.array(columns[field.name][order]).cast(field.type) for field in schema], schema=schema)
    with pa.OSFile(str(path), "wb") as file, pa.ipc.new_stream(file, schema) as stream:
        stream.write_table(table, max_chunksize=rows_together)


# ---- events


def _events(hour: Hour) -> Iterator[Event]:
    zones = {node: node[0] for node in hour.nodes}
    told = {"topology": "three_nodes_three_zones", "partition_handling": "pause_minority", "net_ticktime_s": 5}
    yield _event(0, "cluster", nodes=zones, broker_version="3.10.8", driver="local", **told)
    leaders = {name: hour.nodes[hour.home(i)] for i, name in enumerate(hour.names)}
    declared = {name: {"type": "quorum", "members": hour.nodes, "leader": leaders[name]} for name in hour.names}
    yield _event(0, "queues", queues=declared)
    rate_per_s = hour.scenario.workload.rate_per_s
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
    effect |= {"nodes_alarmed": [], "alarm": ""}
    begin_s = STEADY_S + (step.at_s or 0)
    states = {"injecting": 0.0, "injected": 0.5, "proven": 0.6, "healing": 2.0, "healed": 2.1, "heal_proven": 2.2}
    for state, after_s in states.items():
        detail = f"the process of {down[0]} is gone" if down and state == "proven" else ""
        told = {"step": number, "fault": step.fault, "state": state, "effect": effect, "detail": detail}
        yield _event(begin_s + after_s, "fault", **told)


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


# ---- what the brokers say of themselves


def _write_metrics(path: Path, hour: Hour) -> None:
    """A stretch after the other and in it a metric after the other, as ``reports.scraped`` writes them."""
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
    """An index that goes with the messages, told anew every 5 s."""
    if metric == "raft_commit_latency":
        return np.full(len(at_s), 0.004)
    told_s = np.minimum(at_s // 5 * 5, hour.phases_s["drain"])
    index: Array = np.floor(told_s * (hour.each / hour.phases_s["drain"])) * 2
    return index


def _series(metric: str, node: str, queue: str, at_s: Array, values: Array) -> pa.Table:
    same = [pa.repeat(text, len(at_s)) for text in (metric, node, queue)]
    return pa.table([*same, ORIGIN_US + at_s * 1_000_000, values], schema=SERIES)
