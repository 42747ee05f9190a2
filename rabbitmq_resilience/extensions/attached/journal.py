"""Keep in a file which acts on a cluster that is not ours are not healed yet.

A line is on the disk before its act, so ``rabbitmq-resilience heal`` knows of the act even if this process dies. The
watchdogs on the machines know it too.
"""

from __future__ import annotations

import fcntl
import hashlib
import json
import os
import threading
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import quote

STATE = "XDG_STATE_HOME"
_NAME_LENGTH_MAX = 200
_STATES = ("begun", "healed")


def state_folder() -> Path:
    """Return the folder for state of this user on this machine."""
    return Path(os.environ.get(STATE) or Path.home() / ".local" / "state") / "rabbitmq-resilience"


def cluster_state(cluster: str) -> Path:
    """Return the path for state of clusters of that name, and of no other; files add their suffix to it."""
    name = quote(cluster, safe="@")
    if len(name) > _NAME_LENGTH_MAX:
        name = f"{name[:_NAME_LENGTH_MAX]}.{hashlib.sha256(cluster.encode()).hexdigest()}"[-_NAME_LENGTH_MAX:]
    return state_folder() / name


def journal_file(cluster: str) -> Path:
    """Return the path of this user's journal on this machine for clusters of that name."""
    folder = cluster_state(cluster)
    return folder.with_name(f"{folder.name}.jsonl")


class Journal:
    """A file with lines of ``{"at", "act", "node", "state", ...}``; ``state`` is "begun" or "healed".

    Several clusters may have one name; those with no node in common are different ones. ``nodes``: all nodes of this
    cluster, by Erlang name. ``place``: where they are if their names do not show it (in Kubernetes). ``file``: the
    cluster file.
    """

    def __init__(self, path: Path, *, nodes: Collection[str] = (), place: str = "", file: str = "") -> None:
        self.path = path
        self.place = place
        self._nodes = frozenset(nodes)
        self._origin = {"nodes": sorted(nodes), "place": place, "file": file}
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[bool]:
        """Hold the journal's lock during a run or a healing; yield False if another process of this user holds it.

        If the lock file cannot be written, yield True: ``begun`` then refuses every act.
        """
        try:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            file = self.path.with_name(f"{self.path.name}.lock").open("w")
        except OSError:
            yield True
            return
        with file:
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                yield False
            else:
                yield True

    def begun(self, act: str, node: str, *, heals_by_itself_s: float) -> None:
        """Record that an act begins. Raise OSError if that cannot be written; the act must not be done then."""
        self._write(act=act, node=node, state="begun", heals_by_itself_s=round(heals_by_itself_s))

    def healed(self, act: str, node: str) -> None:
        self._write(act=act, node=node, state="healed")

    def unhealed(self) -> list[dict[str, Any]]:
        """Return the last line of each act that is not healed, for each node of this cluster.

        Lines that cannot be read are in ``unreadable``.
        """
        last: dict[tuple[str, str, str], dict[str, Any]] = {}
        for row in self._rows().values():
            if row is not None and self._is_ours(row):
                last[row["act"], row["node"], row.get("place", "")] = row
        return [row for row in last.values() if row.get("state") == "begun"]

    def unreadable(self) -> list[str]:
        """Return, in words, the places of lines that cannot be read; their acts may not be healed."""
        return [f"line {number} of {self.path}" for number, row in self._rows().items() if row is None]

    def left(self) -> list[str]:
        """Return, in words, what is not healed, and which lines cannot be read."""
        texts = [self.text_of(row) for row in self.unhealed()]
        return [*texts, *(f"{where}, which cannot be read" for where in self.unreadable())]

    def left_elsewhere(self) -> list[str]:
        """Return, in words, what this user's journals say is not healed of other clusters, with the command that heals
        it."""
        found = []
        for path in sorted(state_folder().glob("*.jsonl")):
            for row in Journal(path).unhealed():
                if path != self.path or not self._is_ours(row):
                    command = f"rabbitmq-resilience heal {row.get('file') or 'THE FILE OF THAT RUN'}"
                    found.append(f"{self.text_of(row)} ({path}); unless its run is still active, heal it: {command}")
        return found

    def text_of(self, row: Mapping[str, Any]) -> str:
        place = row.get("place", "")
        where = f" in {place}" if place and place != self.place else ""
        return f"{row['act']} at {row['node']}{where} since {row.get('at')}"

    def clear(self) -> None:
        """Delete the journal of all clusters of this name."""
        with self._lock:
            self.path.unlink(missing_ok=True)

    def is_settled(self) -> bool:
        """Return whether everything is healed, and every line readable, for all clusters of this name."""
        return not Journal(self.path).left()

    def _is_ours(self, row: Mapping[str, Any]) -> bool:
        nodes = {*row.get("nodes", ()), row["node"]}
        return not self._nodes or not self._nodes.isdisjoint(nodes)

    def _rows(self) -> dict[int, dict[str, Any] | None]:
        """Return the lines by their number; None for a line that cannot be read."""
        try:
            lines = self.path.read_bytes().split(b"\n")
        except FileNotFoundError:
            return {}
        return {number: _row(line) for number, line in enumerate(lines, 1) if line.strip()}

    def _write(self, **fields: Any) -> None:
        row = {"at": datetime.now(UTC).isoformat(timespec="seconds"), **fields, **self._origin}
        with self._lock:
            self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
            with self.path.open("a+b") as file:
                whole = True
                if file.tell():
                    file.seek(-1, os.SEEK_END)
                    whole = file.read(1) == b"\n"
                file.write((b"" if whole else b"\n") + json.dumps(row).encode() + b"\n")
                file.flush()
                os.fsync(file.fileno())


def _row(line: bytes) -> dict[str, Any] | None:
    try:
        row = json.loads(line.decode("utf-8"))
    except ValueError:
        return None
    if not isinstance(row, dict) or row.get("state") not in _STATES:
        return None
    nodes, texts = row.get("nodes", []), [row.get("act"), row.get("node"), row.get("place", ""), row.get("file", "")]
    readable = isinstance(nodes, list) and all(isinstance(text, str) for text in [*nodes, *texts])
    return row if readable else None
