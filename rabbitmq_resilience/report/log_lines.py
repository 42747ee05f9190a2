"""Select the log lines of brokers around the time of a finding, so that a page can show them next to it.

Times are those of the logs, by the brokers' own clocks.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

#: The most lines that are shown with a finding, and the most characters of each.
LINES_MAX, CHARACTERS_MAX = 12, 220
#: The time before and after a moment that is searched; an earlier fault extends it.
BEFORE_S, AFTER_S = 3.0, 25.0
#: Lines of a node within this time that differ only in names and numbers count as one.
SAME_S = 2.0

_HEAD = re.compile(r"^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\.\d+[+-]\d\d:\d\d) \[(\w+)\] <[\d.]+> ?(.*)$")
_MOMENT = re.compile(r"\+(\d+(?:\.\d+)?) s\b")
#: Brokers log this when they lose or find each other, pause, heal a split, elect leaders or lack a resource.
_NOTABLE = re.compile(
    r"not responding|rabbit on node|\bnode \S+ (?:down|up)\b|partition|\bpaus|minority|autoheal|inconsistent|alarm|"
    r"terminat|crash|-> leader|Stopping RabbitMQ|Starting RabbitMQ|Server startup complete|timed? ?out|no quorum",
    re.IGNORECASE,
)
#: Brokers log this all the time during a load.
_NOISE = re.compile(r"AMQP connection|authenticated|client-provided name|pending publisher confirms|vhost '\S+' \(desc")
_VIRTUAL_HOST = re.compile(r" in vhost '[^']*'|\b\d{8}T\d{6}Z-[\w-]*(?=_)_?")
_PARTICULAR = re.compile(r"'[^']*'|<[^>]*>|\d+")
_GRAVE = frozenset({"warning", "error", "critical", "alert", "emergency"})


@dataclass(frozen=True)
class Entry:
    """An entry of a broker's log, with its lines joined. ``at_s``: seconds since the begin of the run."""

    at_s: float
    node: str
    level: str
    text: str

    @property
    def weight(self) -> int:
        """Return how much the entry may explain, from 0 on."""
        if _NOISE.search(self.text):
            return 0
        return 2 * bool(_NOTABLE.search(self.text)) + (self.level in _GRAVE)

    def __str__(self) -> str:
        return f"+{self.at_s:.1f} s  {self.node}  [{self.level}] {self.text}"


def read(files: Mapping[str, Path], *, started_at: str) -> list[Entry]:
    """Return the entries of the logs of nodes, in order; ``started_at`` is when the run began, in ISO 8601."""
    origin_s = datetime.fromisoformat(started_at).timestamp()
    found: list[Entry] = []
    for node, file in files.items():
        found += _entries(node, file.read_text(encoding="utf-8", errors="replace").splitlines(), origin_s)
    return sorted(found, key=lambda entry: entry.at_s)


def _entries(node: str, lines: Iterable[str], origin_s: float) -> Iterator[Entry]:
    """Yield the entries of one log. Lines that follow with the same head belong to the entry before."""
    head, texts = ("", ""), list[str]()
    for line in (*lines, ""):
        parts = _HEAD.match(line)
        if parts is None and line:
            texts.append(line)
            continue
        now, text = ((parts[1], parts[2]), parts[3]) if parts else (("", ""), "")
        if now != head:
            if head[0]:
                at_s = datetime.fromisoformat(head[0]).timestamp() - origin_s
                yield Entry(at_s, node, head[1], _shortened(texts))
            head, texts = now, []
        texts.append(text)


def _shortened(texts: Iterable[str]) -> str:
    """Return the lines of an entry as one, without the virtual host, whose name is that of the run."""
    text = _VIRTUAL_HOST.sub("", " ".join(" ".join(texts).split()))
    return text if len(text) <= CHARACTERS_MAX else f"{text[: CHARACTERS_MAX - 1]}…"


def moments_s(texts: Iterable[str]) -> list[float]:
    """Return the moments that texts name, such as "+6.973 s", in seconds since the begin of the run."""
    return [float(moment_s) for text in texts for moment_s in _MOMENT.findall(text)]


def around(entries: Sequence[Entry], at_s: float, faults_s: Iterable[float]) -> list[str]:
    """Return the lines around a moment that explain most, in order.

    ``faults_s``: when faults began. The search starts at the last fault before the moment.
    """
    start_s = max([begun_s for begun_s in faults_s if begun_s <= at_s], default=at_s) - BEFORE_S
    near = [entry for entry in entries if start_s <= entry.at_s <= at_s + AFTER_S and entry.weight]
    counted: list[tuple[Entry, int]] = []
    last: dict[tuple[str, str], int] = {}
    for entry in near:
        kind = entry.node, _PARTICULAR.sub("", entry.text)
        place = last.get(kind)
        if place is not None and entry.at_s - counted[place][0].at_s <= SAME_S:
            counted[place] = counted[place][0], counted[place][1] + 1
        else:
            last[kind] = len(counted)
            counted.append((entry, 0))
    chosen = sorted(counted, key=lambda one: (-one[0].weight, abs(one[0].at_s - at_s)))[:LINES_MAX]
    return [
        f"{entry} (and {more} more like it)" if more else str(entry)
        for entry, more in sorted(chosen, key=lambda one: one[0].at_s)
    ]
