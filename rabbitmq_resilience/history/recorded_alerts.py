"""Record which alerts of the user's rules were active in a run, and when their rules were evaluated.

``alerts.json`` in the run directory has all of it, on the clock of every record. An alert is *pending* from the first
evaluation at which its expression holds. It is *firing* once that has lasted for the ``for`` of its rule.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Literal

from pydantic import TypeAdapter, ValidationError

from rabbitmq_resilience.history.history import HistoryError
from rabbitmq_resilience.history.whole_files import write_whole

ALERTS_FILE = "alerts.json"
#: Evaluations were missed if two are further apart than twice their usual distance and this.
LATE_S = 3.0


@dataclass(frozen=True)
class Active:
    """An alert that was in one state at all evaluations from ``start_us`` to ``end_us``. ``labels`` are those that
    distinguish it from other alerts of its name."""

    alert: str
    state: Literal["pending", "firing"]
    labels: Mapping[str, str]
    start_us: int
    end_us: int

    def __str__(self) -> str:
        labels = ", ".join(f"{name} {value}" for name, value in sorted(self.labels.items()))
        return f"{self.alert} ({labels})" if labels else self.alert


@dataclass(frozen=True)
class RuleGroup:
    """Rules that are evaluated together every ``every_s``. ``evaluated_us``: the first and the last evaluation of each
    stretch without a gap."""

    name: str
    every_s: float
    alerts: Sequence[str]
    evaluated_us: Sequence[tuple[int, int]]

    @property
    def apart_us(self) -> float:
        """Return the largest distance of two evaluations that have no gap between them, in us."""
        return (2 * self.every_s + LATE_S) * 1e6


@dataclass(frozen=True)
class RecordedAlerts:
    """The rule groups of a run, and the alerts that were active. ``active`` is in the order of time."""

    groups: Sequence[RuleGroup]
    active: Sequence[Active]

    @property
    def names(self) -> frozenset[str]:
        """Return the names of all alerts that have rules."""
        return frozenset(name for group in self.groups for name in group.alerts)


_READER = TypeAdapter(RecordedAlerts)


def write_alerts(alerts: RecordedAlerts, path: Path) -> None:
    """Write the file whole or not at all."""
    write_whole(path, json.dumps(asdict(alerts), indent=1, ensure_ascii=False) + "\n")


def read_alerts(path: Path) -> RecordedAlerts | None:
    """Return the alerts of the file; None if there is no such file. Raise HistoryError if the file is damaged."""
    if not path.exists():
        return None
    try:
        return _READER.validate_json(path.read_bytes())
    except (OSError, ValidationError) as error:
        raise HistoryError(f"{path.name} cannot be read: {error}") from None
