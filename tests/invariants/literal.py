"""Histories written by hand: rows and events by the second, from an origin that all of them share."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa

from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.events import Event, SampleEvent, event_of
from rabbitmq_resilience.history.history import DELIVERIES, Outcome, StreamWriter
from rabbitmq_resilience.history.metrics import SERIES
from rabbitmq_resilience.history.routes import OWED

ORIGIN_US = 1_000_000_000
THREE = ("a1", "b1", "c1")
FOUR = ("a1", "a2", "b1", "b2")
FIVE = ("a1", "a2", "b1", "b2", "c1")

#: 10 s steady, 60 s of faults, 20 s of recovery.
PHASES = {"steady": 0.0, "chaos": 10.0, "recovery": 70.0, "drain": 90.0, "end": 95.0}

Row = dict[str, Any]


def us(at_s: float) -> int:
    return ORIGIN_US + round(at_s * 1e6)


def publish(
    sequence: int,
    at_s: float = 1,
    outcome: Outcome = Outcome.CONFIRMED,
    *,
    publisher: int = 0,
    queue: int = 0,
    lane: int = 0,
) -> Row:
    return {
        "publisher": publisher,
        "queue": queue,
        "lane": lane,
        "sequence": sequence,
        "due_us": us(at_s),
        "sent_us": us(at_s),
        "outcome": outcome,
        "outcome_us": us(at_s + 0.005),
        "node": 0,
    }


def deliver(sequence: int, at_s: float = 1.1, *, again: bool = False, **fields: Any) -> Row:
    row = {"consumer": 0, "publisher": 0, "queue": 0, "intact": True, **fields}
    return row | {"sequence": sequence, "received_us": us(at_s), "redelivered": again}


def event(at_s: float, kind: str, **fields: Any) -> Event:
    return event_of({"t_us": us(at_s), "kind": kind, **fields})


def cluster(
    nodes: Sequence[str] = THREE,
    *,
    version: str = "3.10.8",
    mode: str = "pause_minority",
    preferred: Sequence[str] = (),
    recover: str = "autoheal",
    driver: str = "local",
    khepri: bool = False,
    net_ticktime_s: float = 4,
    detector_poll_s: float | None = None,
    addresses: Mapping[str, Sequence[str]] | None = None,
) -> Event:
    zones = {node: node[0] for node in nodes}
    return event(
        0,
        "cluster",
        topology="literal",
        nodes=zones,
        partition_handling=mode,
        pause_if_all_down={"nodes": list(preferred), "recover": recover} if preferred else None,
        net_ticktime_s=net_ticktime_s,
        broker_version=version,
        khepri=khepri,
        detector_poll_s=detector_poll_s,
        driver=driver,
        addresses=addresses or {},
    )


def queues(*names: str, kind: str = "quorum", members: Sequence[str] = THREE) -> Event:
    return event(0, "queues", queues={n: {"type": kind, "members": list(members), "leader": members[0]} for n in names})


def phases(**at_s: float) -> list[Event]:
    return [event(at, "phase", phase=phase) for phase, at in (at_s or PHASES).items()]


def fault(
    start_s: float,
    end_s: float,
    *,
    step: int = 0,
    name: str = "partition",
    down: Sequence[str] = (),
    cut: Iterable[tuple[str, str]] = (),
    slow: Iterable[tuple[str, str]] = (),
    slow_s: float = 0,
    starved: Sequence[str] = (),
    sudden: bool = False,
    intermittent: bool = False,
    alarm: str = "",
    alarmed: Sequence[str] = (),
    operation: bool = False,
    becomes: str = "",
    damaged: Sequence[str] = (),
    type_damaged: str = "",
    emptied: Sequence[str] = (),
    deleted: str = "",
    feature_flags: bool = False,
    may_serve: bool = False,
    states: Sequence[str] = ("injecting", "injected", "proven", "healing", "healed", "heal_proven"),
) -> list[Event]:
    """A step that acts from ``start_s`` to ``end_s``; ``states`` are those that it reached."""
    effect: dict[str, Any] = {
        "nodes_down": list(down),
        "links_cut": list(map(list, cut)),
        "links_slow": list(map(list, slow)),
        "slow_s": slow_s,
        "nodes_starved": list(starved),
        "sudden": sudden,
        "intermittent": intermittent,
    }
    if operation:
        effect["operation"] = True
    if becomes:
        effect["becomes"] = becomes
    if damaged:
        effect["nodes_damaged"] = list(damaged)
    if type_damaged:
        effect["type_damaged"] = type_damaged
    if emptied:
        effect["nodes_emptied"] = list(emptied)
    if deleted:
        effect["queue_deleted"] = deleted
    if feature_flags:
        effect["feature_flags"] = True
    if may_serve:
        effect["nodes_may_serve"] = True
    if alarm:
        effect |= {"alarm": alarm, "nodes_alarmed": list(alarmed)}
    ends = ("healing", "healed", "heal_proven", "heal_unproven")
    return [
        event(end_s if s in ends else start_s, "fault", step=step, fault=name, state=s, effect=effect, detail="")
        for s in states
    ]


def load(
    begins_s: float,
    rate_per_s: float | None,
    *steps: tuple[float | None, float],
    processing_ms: float = 0,
    priorities: Sequence[int] = (),
    confirm_timeout_s: float | None = None,
) -> Event:
    """The target rate, and the steps (messages/s, seconds) that are played from ``begins_s`` on."""
    rows = [{"rate_per_s": rate, "for_s": for_s} for rate, for_s in steps]
    fields = {
        "rate_per_s": rate_per_s,
        "variable_rate": rows,
        "processing_ms": processing_ms,
        "variable_processing": [],
        "priorities": list(priorities),
        "confirm_timeout_s": confirm_timeout_s,
    }
    return event(begins_s, "load", begins_us=us(begins_s), **fields)


def blocked(start_s: float, end_s: float | None, *, worker: str = "publisher-0", end: str = "unblocked") -> list[Event]:
    """A publisher that the broker blocks, until what is called ``end`` happens to it; None: for good."""
    told = [(start_s, "blocked")] + ([] if end_s is None else [(end_s, end)])
    return [event(at_s, "worker", worker=worker, event=what, node="a1", detail="") for at_s, what in told]


def apart(one: Sequence[str], other: Sequence[str], *, one_way: bool = False) -> list[tuple[str, str]]:
    """The links between two sides."""
    there = [(a, b) for a in one for b in other]
    return there if one_way else there + [(b, a) for a, b in there]


def node_states(
    nodes: Sequence[str] = THREE,
    unlike: Mapping[str, Sequence[tuple[float, float, str]]] | None = None,
    *,
    end_s: float = 95,
) -> list[Event]:
    """Sightings every half second: all up, but for ``unlike``: {node: [(from_s, to_s, state)]}."""
    return [
        event(half / 2, "nodes", states={node: _state((unlike or {}).get(node, ()), half / 2) for node in nodes})
        for half in range(int(2 * end_s))
    ]


def _state(spans: Sequence[tuple[float, float, str]], at_s: float) -> str:
    return next((state for start_s, end_s, state in spans if start_s <= at_s < end_s), "up")


def sample(at_s: float, *, leader: str | None = "a1", online: int = 3, names: Sequence[str] = ("q1",)) -> SampleEvent:
    row = {"ready": 0, "unacked": 0, "leader": leader, "members": 3, "online": online}
    return SampleEvent(t_us=us(at_s), queues={name: row for name in names})


def history(
    publishes: Iterable[Row] = (),
    deliveries: Iterable[Row] = (),
    events: Iterable[Any] = (),
    *,
    batch_rows: int = 1000,
    metrics: Iterable[Sequence[Row]] = (),
) -> History:
    """``events``: events and lists of them, in any order; ``metrics``: lists as ``told`` gives them."""
    flat = [e for part in events for e in (part if isinstance(part, list) else [part])]
    published = _batches(list(publishes), OWED, batch_rows)
    delivered = _batches(list(deliveries), DELIVERIES, batch_rows)
    table = pa.Table.from_pylist([row for rows in metrics for row in rows], schema=SERIES)
    return History(lambda: published, lambda: delivered, sorted(flat, key=lambda e: e.t_us), lambda *_: table)


def told(
    metric: str,
    node: str,
    value: float | Callable[[float], float | None],
    *,
    queue: str = "",
    start_s: int = 0,
    end_s: int = 96,
) -> list[Row]:
    """One metric of a node, or of a queue on it, second by second; nothing is told where ``value`` gives None."""
    values = {at: value(at) if callable(value) else value for at in range(start_s, end_s)}
    return [
        {"metric": metric, "node": node, "queue": queue, "t_us": us(at), "value": told_value}
        for at, told_value in values.items()
        if told_value is not None
    ]


def _batches(rows: list[Row], schema: pa.Schema, batch_rows: int) -> list[pa.RecordBatch]:
    pieces = [rows[i : i + batch_rows] for i in range(0, len(rows), batch_rows)]
    return [pa.RecordBatch.from_pylist([row | {} for row in piece], schema=schema) for piece in pieces]


def write_stream(path: Path, schema: pa.Schema, rows: Sequence[Row]) -> None:
    """A stream of a run directory, whole."""
    writer = StreamWriter(path, schema)
    if rows:
        writer.append({name: [row[name] for row in rows] for name in schema.names})
    writer.close()
