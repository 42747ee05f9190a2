"""The record of everything but messages: JSON lines on the same clock as the history.

Every event has ``t_us`` and ``kind``. The kinds, with their fields:

===========  =======================================================================================
cluster      ``topology``, ``nodes`` ({node: zone}), ``partition_handling``, ``pause_if_all_down``
             ({"nodes", "recover"} where that is the handling, else None), ``net_ticktime_s``,
             ``broker_version``, ``khepri`` (whether metadata is in Raft), ``driver``,
             ``formed_in_s`` (of the cluster, which may have served other runs before), ``started_at``
             (UTC, ISO 8601)
queues       ``queues``: {queue: {"type", "members": [node], "leader": node}} as declared, in index order
load         ``begins_us``, the moment from which the load varies (the end of the steady phase); ``rate_per_s``
             and ``processing_ms`` (what holds before and after), ``variable_rate`` and
             ``variable_processing``: what is played from that moment on, [{"rate_per_s", "for_s"}] and
             [{"processing_ms", "for_s"}]; see ``reports.variation``. A rate of null has no limit
phase        ``phase``: steady, chaos, recovery, drain or end; the moment at which it begins
fault        ``step`` (int), ``fault`` (its name), ``state``, ``effect``, ``detail`` (text).
             States: injecting, injected, proven, unproven, healing, healed, heal_proven,
             heal_unproven, skipped (it never began; ``detail`` says why).
             ``effect``: {"nodes_down": [node], "links_cut": [[a, b]], "links_slow": [[a, b]],
             "sudden": bool, "intermittent": bool, "alarm": "memory" or "disk" where one is raised,
             "nodes_alarmed": [node]}. Links are directed, and an end may be a client (``publisher:0``).
             Sudden: connections died at once instead of being silent; intermittent: the links were cut and
             whole in turns; while any node is alarmed, brokers block who publishes
nodes        ``states``: {node: up|paused|suspended|down}; sampled every half second
sample       ``queues``: {queue: {"ready", "unacked", "leader", "members", "online", "behind"}}; behind
             are the mirrors that are there and not synchronised; ready and unacked are null where the
             broker gives no number;
             ``memory_bytes``: {node: int}; ``partitions``: {node: [node]}, from whom a node says that it
             was partitioned; sampled every second from a node that answers
recovery     ``complete`` (bool), ``detail``: what recovery still lacked
drain        ``complete`` (bool), ``confirmed``, ``received``, ``unconsumed``, ``detail``
declaration  ``item`` (kind and name, such as "queue declared-007"), ``node`` that was asked for it, ``state``:
             asked, and then created, refused or unanswered; ``detail``: the answer
metadata     ``nodes``: {node: [item]}, what each node has of the declared items by its own account after
             recovery; None for one that gave no answer
worker       ``worker``, ``event`` (started, connected, connection_lost, blocked, unblocked, stopped,
             killed), ``node``, ``detail``. Blocked: the broker takes nothing from a publisher, for an alarm
             of memory or disk, until unblocked
clocks       ``wall_us``: the moment in microseconds of wall time since 1970, which the Prometheus server has
machine      ``busy``, the part of all processors that was used, and ``others``, the part that was used by
             none of our processes (containers are not ours in this sense); sampled every 5 s
note         ``detail``: anything else worth telling
===========  =======================================================================================
"""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from reports.history import now_us

Event = dict[str, Any]

EVENTS_FILE = "events.jsonl"


class EventLog:
    """Appends events to a file; safe to share between threads. Each event is in the kernel on return."""

    def __init__(self, path: Path) -> None:
        self._lock = threading.Lock()
        self._file = path.open("a", encoding="utf-8", buffering=1)

    def record(self, kind: str, **fields: Any) -> Event:
        event: Event = {"t_us": now_us(), "kind": kind, **fields}
        with self._lock:
            self._file.write(json.dumps(event, separators=(",", ":")) + "\n")
        return event

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._file.close()


def read_events(*paths: Path) -> Iterator[Event]:
    """All events of the files in the order of their times; a last line cut short by a crash is left out."""
    events: list[Event] = []
    for path in paths:
        for line in path.read_text(encoding="utf-8").splitlines(keepends=True):
            if line.endswith("\n"):
                events.append(json.loads(line))
    yield from sorted(events, key=lambda event: event["t_us"])
