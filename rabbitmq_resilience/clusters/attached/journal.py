"""What was done to a cluster that is not ours and is not healed yet, in a file.

A line is on the disk before the act it tells of, so that ``rabbitmq-resilience heal`` knows of it whatever becomes of
this process. The watchdogs on the machines know it too.
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


def state_folder() -> Path:
    """Of this user on this machine."""
    return Path(os.environ.get(STATE) or Path.home() / ".local" / "state") / "rabbitmq-resilience"


def cluster_state(cluster: str) -> Path:
    """Where something is kept of clusters of that name, and of no other; files add what they are."""
    name = quote(cluster, safe="@")
    if len(name) > _NAME_LENGTH_MAX:
        name = f"{name[:_NAME_LENGTH_MAX]}.{hashlib.sha256(cluster.encode()).hexdigest()}"[-_NAME_LENGTH_MAX:]
    return state_folder() / name


def journal_file(cluster: str) -> Path:
    """The journal of the clusters of that name, of this user on this machine."""
    folder = cluster_state(cluster)
    return folder.with_name(f"{folder.name}.jsonl")


class Journal:
    """Lines of ``{"at", "act", "node", "state", ...}``; ``state`` is "begun" or "healed". Several clusters may have one
    name: ``nodes`` are all of this one, by Erlang name, ``place`` is where they are, where names do not tell (of a
    Kubernetes), and ``file`` the cluster file. Clusters with no node in common are different ones."""

    def __init__(self, path: Path, *, nodes: Collection[str] = (), place: str = "", file: str = "") -> None:
        self.path = path
        self.place = place
        self._nodes = frozenset(nodes)
        self._origin = {"nodes": sorted(nodes), "place": place, "file": file}
        self._lock = threading.Lock()

    @contextmanager
    def held(self) -> Iterator[bool]:
        """For as long as a run or a healing lasts: whether no other of this user has it. Where nothing can be written,
        nothing can be done either, see ``begun``."""
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
        """Raises OSError: what cannot be written down is not done."""
        self._write(act=act, node=node, state="begun", heals_by_itself_s=round(heals_by_itself_s))

    def healed(self, act: str, node: str) -> None:
        self._write(act=act, node=node, state="healed")

    def unhealed(self) -> list[dict[str, Any]]:
        """The last line of each act on each node of this cluster that is not healed. What is no line is in
        ``unreadable``."""
        last: dict[tuple[str, str, str], dict[str, Any]] = {}
        for row in self._rows().values():
            if row is not None and self._is_ours(row):
                last[row["act"], row["node"], row.get("place", "")] = row
        return [row for row in last.values() if row.get("state") == "begun"]

    def unreadable(self) -> list[str]:
        """Where lines are that say nothing, as what they were to say may not be healed."""
        return [f"line {number} of {self.path}" for number, row in self._rows().items() if row is None]

    def left(self) -> list[str]:
        """In words, what is not healed or cannot be read."""
        texts = [self.told(row) for row in self.unhealed()]
        return [*texts, *(f"{where}, which cannot be read" for where in self.unreadable())]

    def told(self, row: Mapping[str, Any]) -> str:
        place = row.get("place", "")
        where = f" in {place}" if place and place != self.place else ""
        return f"{row['act']} at {row['node']}{where} since {row.get('at')}"

    def clear(self) -> None:
        """Nothing is left of whatever cluster has this name."""
        with self._lock:
            self.path.unlink(missing_ok=True)

    def is_settled(self) -> bool:
        """Whether no line tells of something that is not healed, of whatever cluster of this name."""
        return not Journal(self.path).left()

    def _is_ours(self, row: Mapping[str, Any]) -> bool:
        nodes = {*row.get("nodes", ()), row["node"]}
        return not self._nodes or not self._nodes.isdisjoint(nodes)

    def _rows(self) -> dict[int, dict[str, Any] | None]:
        """By the number of their line; None for what is none."""
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
    named = isinstance(row, dict) and all(isinstance(row.get(name), str) for name in ("act", "node", "state"))
    return row if named else None
