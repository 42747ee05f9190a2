"""A sweep file as somebody would write it, and the same with something changed."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import yaml

from rabbitmq_resilience.extensions.sweeps.sweep_file import Sweep, load

BASE: dict[str, Any] = {
    "version": 1,
    "title": "The base",
    "topology": "three_nodes_three_zones",
    "workload": {"queue_type": "quorum", "queues": 2, "publishers": 2, "consumers": 2, "rate_per_s": 300},
    "phases": {"steady_s": 5, "settled_s": 1},
    "schedule": [{"at_s": 1, "for_s": 5, "fault": "kill", "node": "a1"}],
    "invariants": {"no_loss": {}},
}
SWEEP: dict[str, Any] = {
    "version": 1,
    "title": "In flight",
    "base": BASE,
    "axes": [
        {"field": "workload.in_flight", "values": [1, 10, 100]},
        {
            "name": "queues",
            "settings": {
                "quorum": {"workload.queue_type": "quorum"},
                "mirrored": {"workload.queue_type": "mirrored", "workload.mirroring": {"ha_mode": "all"}},
            },
        },
    ],
    "repeats": 4,
    "measures": ["confirmed_per_s", "confirm_p99_ms"],
}


def with_changes(*changes: tuple[tuple[str | int, ...], Any]) -> dict[str, Any]:
    plain: Any = copy.deepcopy(SWEEP)
    for path, value in changes:
        place = plain
        for part in path[:-1]:
            place = place[part]
        place[path[-1]] = value
    return dict(plain)


def loaded(folder: Path, plain: object) -> Sweep:
    path = folder / "mine.sweep.yaml"
    path.write_text(yaml.safe_dump(plain, sort_keys=False))
    return load(path)
