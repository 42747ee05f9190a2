"""Measure how well fault files made from brokers' logs match the schedules that were played.

The faults of recorded runs are read back from the runs' own logs. ``python -m benchmarks.read_back reports/runs
[MORE ...]`` prints a line for each step that was not read back, or was more than a second off, and the counts.

Brokers do not notice all faults. A cut shorter than ``net_ticktime``, slow links, and faults of clients leave no
distinct trace; these are counted separately. The begin of a cut is known to within a quarter of ``net_ticktime``, which
is a second if that is 4 s. A restarted process is visible only when it is up, which took up to ten seconds on busy
cores. Limit: of the steps that brokers notice, in runs with a ``net_ticktime`` up to 5 s, 90 % are read back to within
a second.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import combinations
from pathlib import Path

from rabbitmq_resilience.extensions.incidents.from_logs import evidence_of
from rabbitmq_resilience.extensions.incidents.occurrences import EvidenceError, Occurrence
from rabbitmq_resilience.history.event_log import read_events
from rabbitmq_resilience.history.events import ClusterEvent, Effect, Event, FaultEvent
from rabbitmq_resilience.history.run_directory import RunDirectory, RunDirectoryError

OFF_S_MAX = 1.0
READ_BACK_LEAST = 0.9
TICKTIME_S_MAX = 5

Links = frozenset[tuple[str, str]]


@dataclass(frozen=True)
class Played:
    """A step that was played or read back. ``links`` are its cut directed links, ``node`` is its node.

    ``begin`` and ``end`` are the ranges, in seconds, during which the step was injected and healed.
    """

    fault: str
    links: Links
    node: str
    begin: tuple[float, float]
    end: tuple[float, float]
    intermittent: bool = False

    @property
    def where(self) -> tuple[str, Links, str]:
        return self.fault, self.links, self.node

    @property
    def for_s(self) -> float:
        return self.end[0] - self.begin[0]

    def noticed(self, *, net_ticktime_s: float) -> str:
        """Return why brokers do not notice the step; '' if they do."""
        if self.fault in ("latency", "kill_client"):
            return "latency" if self.fault == "latency" else "a client's"
        if self.fault in ("partition", "disconnect", "flapping") and not self.links:
            return "a client's"
        if self.intermittent:
            return "flapping"
        silent = self.fault in ("partition", "pause")
        return "shorter than net_ticktime" if silent and self.for_s < 1.25 * net_ticktime_s else ""

    def off_s(self, back: Played, *, offset_s: float) -> float:
        """Return how far off ``back`` is at its begin or its end, the worse; this clock is ``offset_s`` behind."""
        begin_s = _outside(back.begin[0] - offset_s, self.begin)
        # the end of a rebalance has no meaning
        return begin_s if self.fault == "rebalance" else max(begin_s, _outside(back.end[0] - offset_s, self.end))


def _outside(at: float, within: tuple[float, float]) -> float:
    return max(within[0] - at, at - within[1], 0.0)


@dataclass(frozen=True)
class Answer:
    """The result for one step. ``off_s`` is how far its begin or end is off; None if it was not read back."""

    run: str
    step: Played
    unnoticed: str
    off_s: float | None
    net_ticktime_s: float


def played(events: Iterable[Event]) -> Iterator[Played]:
    """Yield the steps that a run played completely; several nodes of a step are steps of their own."""
    steps: dict[int, dict[str, FaultEvent]] = {}
    for event in events:
        if isinstance(event, FaultEvent):
            steps.setdefault(event.step, {}).setdefault(event.state, event)
    for seen in steps.values():
        if {"injected", "healed"} <= seen.keys():
            times = [seen[state].t_us / 1e6 for state in ("injecting", "injected", "healing", "healed")]
            effect = seen["healing"].effect or Effect()
            links = frozenset((a, b) for a, b in effect.links_cut if ":" not in a + b)
            for node in [*effect.nodes_down, *effect.nodes_alarmed] or [""]:
                begin, end = (times[0], times[1]), (times[2], times[3])
                yield Played(seen["healing"].fault, links, node, begin, end, effect.intermittent)


def read_back(occurrence: Occurrence) -> Iterator[Played]:
    sides = [frozenset(node.split("@")[0] for node in side) for side in occurrence.sides]
    pairs = [(a, b) for one, other in combinations(sides, 2) for a in one for b in other]
    links = frozenset(pairs if occurrence.fields.get("one_way") else [*pairs, *((b, a) for a, b in pairs)])
    end = occurrence.begin if occurrence.end is None else occurrence.end
    for node in [""] if len(sides) != 1 else sides[0]:
        yield Played(occurrence.fault, links, node, (occurrence.begin, occurrence.begin), (end, end))


def compared(run: RunDirectory) -> Iterator[Answer]:
    """Yield the results for the steps of a run. Raise EvidenceError if its logs are no evidence."""
    events = list(read_events(run.events_file))
    cluster = next((event for event in events if isinstance(event, ClusterEvent)), None)
    if cluster is None:
        return
    tick_s = cluster.net_ticktime_s
    found = [back for one in evidence_of([run.logs], net_ticktime_s=tick_s).occurrences for back in read_back(one)]
    pairs = _paired(list(played(events)), found)
    both = [(step, back) for step, back in pairs if back is not None]
    offset_s = _offset_s(both)
    for step, back in pairs:
        off_s = None if back is None else step.off_s(back, offset_s=offset_s)
        yield Answer(run.path.name, step, step.noticed(net_ticktime_s=tick_s), off_s, tick_s)
    for other in found:
        if all(other is not back for _, back in pairs):
            yield Answer(run.path.name, other, "was not played", None, tick_s)


def _offset_s(both: Sequence[tuple[Played, Played]]) -> float:
    """Return the offset between the clocks of the logs and the run that fits best: no event shows it exactly."""
    offsets = [
        at - known
        for step, back in both
        for at, within in ((back.begin[0], step.begin), (back.end[0], step.end))
        for known in within
    ]
    return min(offsets, key=lambda offset: sum(step.off_s(back, offset_s=offset) for step, back in both), default=0.0)


def _paired(steps: Sequence[Played], found: Sequence[Played]) -> list[tuple[Played, Played | None]]:
    """Return each step with the read-back step of the same fault and place, in the order of times."""
    left = list(found)
    pairs: list[tuple[Played, Played | None]] = []
    for step in sorted(steps, key=lambda step: step.begin):
        back = next((other for other in left if other.where == step.where), None)
        if back is not None:
            left.remove(back)
        pairs.append((step, back))
    return pairs


def _line(answer: Answer) -> str:
    step = answer.step
    where = step.node or " ".join(f"{a}->{b}" for a, b in sorted(step.links)[:4])
    what = answer.unnoticed or ("not read back" if answer.off_s is None else f"{answer.off_s:.1f} s off")
    return f"{what}: {step.fault} of {where}, {step.for_s:.1f} s, in {answer.run}"


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("runs", type=Path, nargs="+", help="folders that hold run directories")
    answers: list[Answer] = []
    for path in sorted(path for root in parser.parse_args().runs for path in root.iterdir() if path.is_dir()):
        try:
            answers += compared(RunDirectory.open(path))
        except (RunDirectoryError, EvidenceError, OSError) as error:
            print(f"left out: {path.name}: {error}")
    noticed = [answer for answer in answers if not answer.unnoticed]
    right = [answer for answer in noticed if answer.off_s is not None and answer.off_s <= OFF_S_MAX]
    for answer in [a for a in noticed if a not in right] + [a for a in answers if a.unnoticed == "was not played"]:
        print(_line(answer))
    counts = Counter(a.unnoticed + ("" if a.off_s is None else ", yet read back") for a in answers if a.unnoticed)
    print(f"{len(right)} of {len(noticed)} steps that brokers notice were read back to within {OFF_S_MAX:g} s")
    print("; ".join(f"{count} {what}" for what, count in counts.most_common()))
    short = [answer for answer in noticed if answer.net_ticktime_s <= TICKTIME_S_MAX]
    within = [answer for answer in short if answer in right]
    sys.exit(len(within) < READ_BACK_LEAST * len(short))


if __name__ == "__main__":
    main()
