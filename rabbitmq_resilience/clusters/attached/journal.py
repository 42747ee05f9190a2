"""What was done to a cluster that is not ours and is not healed yet, in a file.

A line is on the disk before the act it tells of, so that ``rabbitmq-resilience heal`` knows of it whatever becomes of
this process. The watchdogs on the machines know it too.
"""

from __future__ import annotations

import json
import os
import re
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

STATE = "XDG_STATE_HOME"


def state_folder() -> Path:
    """Of this user on this machine."""
    return Path(os.environ.get(STATE) or Path.home() / ".local" / "state") / "rabbitmq-resilience"


def journal_file(cluster: str) -> Path:
    """The journal of the cluster of that name, of this user on this machine."""
    return state_folder() / f"{re.sub(r'[^A-Za-z0-9_.@-]', '_', cluster)}.jsonl"


class Journal:
    """Lines of ``{"at", "act", "node", "key", "state"}``; ``state`` is "begun" or "healed"."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._lock = threading.Lock()

    def begun(self, act: str, node: str, *, heals_by_itself_s: float) -> None:
        """Raises OSError: what cannot be written down is not done."""
        self._write(act=act, node=node, state="begun", heals_by_itself_s=round(heals_by_itself_s))

    def healed(self, act: str, node: str) -> None:
        self._write(act=act, node=node, state="healed")

    def unhealed(self) -> list[dict[str, Any]]:
        """The last line of each act on each node that is not healed; of a line that broke off, nothing."""
        last: dict[tuple[str, str], dict[str, Any]] = {}
        try:
            lines = self.path.read_text(encoding="utf-8").splitlines()
        except FileNotFoundError:
            return []
        for line in lines:
            try:
                row = json.loads(line)
                last[row["act"], row["node"]] = row
            except (ValueError, KeyError, TypeError):
                continue
        return [row for row in last.values() if row.get("state") == "begun"]

    def clear(self) -> None:
        """Once all is healed."""
        with self._lock:
            self.path.unlink(missing_ok=True)

    def _write(self, **fields: Any) -> None:
        line = json.dumps({"at": datetime.now(UTC).isoformat(timespec="seconds"), **fields})
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self.path.open("a", encoding="utf-8") as file:
                file.write(line + "\n")
                file.flush()
                os.fsync(file.fileno())
