"""Write for people at the terminal: a live line while a scenario runs, and a short story if it failed."""

from __future__ import annotations

import shutil
import time
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TextIO

from rabbitmq_resilience.history.commands import near, recheck_command, rerun_command
from rabbitmq_resilience.report.impact import impact, outage_text
from rabbitmq_resilience.report.wording import coverage_text, duration_text, expectation_text, verdict_word
from rabbitmq_resilience.tools.closing import Closing

#: How often a line is written to a stream that is no terminal.
PLAIN_EVERY_S = 10.0
REDRAW_EVERY_S = 0.2
RATE_OVER_S = 2.0
EXAMPLES_SHOWN = 3


@dataclass(frozen=True)
class Status:
    """The state of a run at a moment. ``sent``, ``confirmed`` and ``received`` count messages since the start.
    ``depth`` counts messages in all queues; None while no node reports it. ``faults`` are the active faults."""

    phase: str
    elapsed_s: float
    sent: int = 0
    confirmed: int = 0
    received: int = 0
    depth: int | None = None
    nodes_up: int = 0
    nodes: int = 0
    faults: tuple[str, ...] = ()


@dataclass(frozen=True)
class MessageRates:
    """Messages per second over the last moments."""

    sent_per_s: float = 0.0
    confirmed_per_s: float = 0.0
    received_per_s: float = 0.0


class LiveLine(Closing):
    """A writer of ``Status`` to a stream. On a terminal it draws one line again and again; elsewhere it writes a line
    every ten seconds and at each new phase. ``show`` may be called at any rate, from one thread. A stream that fails is
    not written to again, since watching must not end a run."""

    def __init__(self, stream: TextIO, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._stream: TextIO | None = stream
        self._clock = clock
        self._terminal = stream.isatty()
        self._seen: deque[tuple[float, Status]] = deque()
        self._written_s = float("-inf")
        self._phase = ""

    def show(self, status: Status) -> None:
        """Write the status, unless the last line is too recent."""
        now_s = self._clock()
        self._seen.append((now_s, status))
        while len(self._seen) > 2 and now_s - self._seen[1][0] >= RATE_OVER_S:
            self._seen.popleft()
        every_s = REDRAW_EVERY_S if self._terminal else PLAIN_EVERY_S
        if now_s - self._written_s < every_s and status.phase == self._phase:
            return
        self._written_s, self._phase = now_s, status.phase
        line = status_line(status, self._rates())
        if self._terminal:
            columns = shutil.get_terminal_size().columns
            self._write(f"\r\x1b[2K{line[: columns - 1]}")
        else:
            self._write(f"{line}\n")

    def note(self, text: str) -> None:
        """Write a line that stays. On a terminal the live line goes on below it."""
        clear = "\r\x1b[2K" if self._terminal else ""
        self._write(f"{clear}{text}\n")
        self._written_s = float("-inf") if self._terminal else self._written_s

    def close(self) -> None:
        """Leave the terminal's line empty."""
        if self._terminal and self._phase:
            self._write("\r\x1b[2K")

    def _rates(self) -> MessageRates:
        (then_s, then), (now_s, now) = self._seen[0], self._seen[-1]
        if now_s <= then_s:
            return MessageRates()
        totals = ((now.sent, then.sent), (now.confirmed, then.confirmed), (now.received, then.received))
        return MessageRates(*((after - before) / (now_s - then_s) for after, before in totals))

    def _write(self, text: str) -> None:
        if self._stream is None:
            return
        try:
            self._stream.write(text)
            self._stream.flush()
        except (OSError, ValueError):
            self._stream = None


def status_line(status: Status, rates: MessageRates) -> str:
    """Return one line, in plain ASCII if the faults' names are."""
    minutes, seconds = divmod(int(status.elapsed_s), 60)
    depth = "?" if status.depth is None else f"{status.depth:,}"
    parts = [
        f"{status.phase:<8} {minutes:02}:{seconds:02}",
        f"nodes {status.nodes_up}/{status.nodes}",
        f"sent {rates.sent_per_s:,.0f}/s  confirmed {rates.confirmed_per_s:,.0f}/s  "
        f"received {rates.received_per_s:,.0f}/s",
        f"depth {depth}",
    ]
    if status.faults:
        parts.append(f"FAULT {', '.join(status.faults)}")
    return " | ".join(parts)


def outcome_line(verdict: Mapping[str, Any], directory: Path) -> str:
    """Return one line on how a run ended: the verdict, the scenario, its duration, its longest outage and its page."""
    duration_s = verdict.get("duration_s")
    took = "" if duration_s is None else f", {duration_text(duration_s)}"
    out = "".join(f", {text}" for text in [outage_text(verdict)] if text)
    title = verdict.get("title") or directory.name
    return f"{verdict_word(verdict):<8} {title}{took}{out}: {near(directory) / 'report.html'}"


def story(verdict: Mapping[str, Any], directory: Path) -> str:
    """Return a few lines on why a run is not VALID, from the content of ``verdict.json``.

    They have the findings that did not hold, their first examples, and the commands to play and to judge the run again.
    A VALID run gets one line, unless its scenario expected another verdict (``as_expected`` is False).
    """
    word = verdict_word(verdict)
    head = f"{word}: {verdict.get('title') or directory.name}"
    if word == "VALID" and verdict.get("as_expected") is not False:
        return head
    under = ", ".join(f"{name} {verdict[key]}" for name, key in _CIRCUMSTANCES if verdict.get(key) is not None)
    return "\n".join(
        [
            head,
            *(f"  {line}" for line in (under, expectation_text(verdict)) if line),
            *_broken(verdict),
            *(f"  outage: {text}" for text in list(impact(verdict))[:1]),
            *(f"  note: {note}" for note in verdict.get("notes") or ()),
            f"  see       {directory / 'report.html'}",
            f"  again     {verdict.get('rerun') or rerun_command(directory)}",
            f"  rejudge   {recheck_command(directory)}",
        ]
    )


_CIRCUMSTANCES = (("broker", "broker_version"), ("driver", "driver"), ("seed", "seed"))


def _broken(verdict: Mapping[str, Any]) -> Iterator[str]:
    """Yield lines for each finding that is INVALID, then for each that is UNKNOWN."""
    findings = [item for kind in ("invariants", "assumptions") for item in (verdict.get(kind) or {}).items()]
    for word in ("INVALID", "UNKNOWN"):
        for name, finding in findings:
            if verdict_word(finding) != word:
                continue
            covered = coverage_text(finding)
            judged = f" (judged {covered})" if covered else ""
            yield f"  {name} is {word}{judged}: {finding.get('summary', 'no reason was given')}"
            examples = list(finding.get("examples") or ())
            yield from (f"      {example}" for example in examples[:EXAMPLES_SHOWN])
            if len(examples) > EXAMPLES_SHOWN:
                yield f"      and {len(examples) - EXAMPLES_SHOWN} more on the page"
