"""Collect each scenario's verdicts and numbers night by night, and find where the numbers changed.

A series holds one scenario on one machine with one driver and one version of the broker; machines are mixed only on
request. Other changes between nights (the suite's commit, the kernel) are marked.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from statistics import median
from typing import NamedTuple

from rabbitmq_resilience.extensions.nights.change_points import NIGHTS_MIN, NoLibraryError, change_points, noise
from rabbitmq_resilience.extensions.nights.night_file import Header, Night
from rabbitmq_resilience.runner.run_line import RunLine

#: The part of the processors taken by other programs from which a machine counts as busy.
BUSY_CPU_MIN = 0.25


class TrendMetric(NamedTuple):
    """A number of a run that is followed over nights: its field in a night's file, and whether more of it is worse."""

    name: str
    field: str
    more_is_worse: bool = True
    is_ratio: bool = False


METRICS = (
    TrendMetric("Longest outage", "outage_s"),
    TrendMetric("Confirm stall", "stall_s"),
    TrendMetric("Recovery", "recovered_s"),
    TrendMetric("Throughput kept", "kept_ratio", more_is_worse=False, is_ratio=True),
)

#: The sign of a verdict, the worst first. The worst one stands for all runs of a scenario in a night.
SIGNS: Mapping[str, str] = {
    "I": "INVALID, not expected",
    "N": "VALID, where a violation was expected",
    "U": "UNKNOWN",
    "K": "INVALID, a known violation",
    "V": "VALID",
    "-": "planned, and had no turn",
    "·": "left out",
    "": "not planned",
}


class TrendPlace(NamedTuple):
    """The driver, version and machine of runs whose numbers may be compared. ``machine``: empty if they are mixed."""

    driver: str
    broker_version: str
    machine: str


@dataclass(frozen=True)
class NightCell:
    """A scenario in one night."""

    sign: str
    plays: Sequence[RunLine] = ()

    @property
    def is_busy(self) -> bool:
        """Return whether other programs kept the machine busy during a run."""
        return any((play.others_cpu or 0) >= BUSY_CPU_MIN for play in self.plays)


class Point(NamedTuple):
    """The median of a night's runs. ``night``: its index."""

    night: int
    value: float


@dataclass(frozen=True)
class LevelChange:
    """A change of a level between two nights.

    ``before``: the index of the last night with a number of the old level. ``night``: the first one of the new level.
    ``marks``: what else changed between them."""

    metric: TrendMetric
    before: int
    night: int
    old: float
    new: float
    by_means: bool
    marks: Sequence[str]
    rerun_before: str
    rerun_after: str

    @property
    def is_worse(self) -> bool:
        """Return whether the new level is worse than the old one."""
        return (self.new > self.old) == self.metric.more_is_worse


@dataclass(frozen=True)
class MetricSeries:
    """One metric of a scenario over the nights of its place.

    ``noise``: how far nights usually lie from their level, as a part of it; None if unknown."""

    metric: TrendMetric
    points: Sequence[Point]
    changes: Sequence[LevelChange] = ()
    noise: float | None = None

    @property
    def nights_missing(self) -> int:
        """Return how many more nights are needed for a change to be found."""
        return max(0, NIGHTS_MIN - len(self.points))


@dataclass(frozen=True)
class ScenarioNights:
    """A scenario at one place, with a cell for each night of that place."""

    scenario: str
    title: str
    cells: Sequence[NightCell]
    lines: Sequence[MetricSeries]

    @property
    def changes(self) -> list[LevelChange]:
        """Return the changes of all metrics."""
        return [change for line in self.lines for change in line.changes]


class Mark(NamedTuple):
    """A difference of machine, kernel or suite from the night before. ``night``: its index."""

    night: int
    text: str


@dataclass(frozen=True)
class PlaceNights:
    """All nights of one place, oldest first, and the scenarios that were played there."""

    place: TrendPlace
    nights: Sequence[Header]
    marks: Sequence[Mark]
    histories: Sequence[ScenarioNights]


@dataclass(frozen=True)
class Trend:
    """The trend of all places. ``troubles``: what could not be read or done, for people."""

    groups: Sequence[PlaceNights]
    troubles: Sequence[str] = field(default_factory=list)


def trend(nights: Sequence[Night], *, mix_machines: bool = False) -> Trend:
    """Return the trend of ``nights``, which are in the order of time.

    Without the library for change points no changes are found, and ``troubles`` says so."""
    troubles: list[str] = []
    try:
        change_points([0, 1] * NIGHTS_MIN)
        finds = True
    except NoLibraryError as error:
        troubles.append(str(error))
        finds = False
    by_place: dict[TrendPlace, list[Night]] = {}
    for night in nights:
        for place in sorted({_place(night, play, mix_machines) for play in night.played}):
            by_place.setdefault(place, []).append(night)
    groups = [_group(place, found, mix_machines, finds) for place, found in sorted(by_place.items())]
    return Trend(groups, troubles)


def _place(night: Night, play: RunLine, mix_machines: bool) -> TrendPlace:
    machine = "" if mix_machines else night.header.machine.id
    return TrendPlace(play.driver or night.header.driver, play.broker_version or "unknown", machine)


def _group(place: TrendPlace, nights: Sequence[Night], mix_machines: bool, finds: bool) -> PlaceNights:
    headers = [night.header for night in nights]
    marks = [mark for i in range(1, len(headers)) for mark in _marks(i, headers[i - 1], headers[i])]
    plays: dict[str, list[list[RunLine]]] = {}
    for i, night in enumerate(nights):
        for play in night.played:
            if _place(night, play, mix_machines) == place and not play.drawn:
                plays.setdefault(play.scenario, [[] for _ in nights])[i].append(play)
    unplayed = [
        {**dict.fromkeys(night.not_reached, "-"), **{one.scenario: "·" for one in night.left_out}} for night in nights
    ]
    histories = [
        ScenarioNights(
            scenario,
            next(play.title for of_night in reversed(mine) for play in of_night),
            [NightCell(_sign(of_night) or unplayed[i].get(scenario, ""), of_night) for i, of_night in enumerate(mine)],
            [line for metric in METRICS if (line := _metric_series(metric, mine, marks, finds)).points],
        )
        for scenario, mine in plays.items()
    ]
    return PlaceNights(place, headers, marks, sorted(histories, key=lambda one: (one.title, one.scenario)))


def _marks(i: int, before: Header, now: Header) -> Iterator[Mark]:
    """Yield what else differs between two nights, and may change numbers within a series."""
    pairs = {
        "machine": (before.machine.id, now.machine.id),
        "processors": (str(before.machine.cpus), str(now.machine.cpus)),
        "processor": (before.machine.cpu_model, now.machine.cpu_model),
        "memory": (f"{before.machine.memory_gb:g} GB", f"{now.machine.memory_gb:g} GB"),
        "kernel": (before.machine.kernel, now.machine.kernel),
        "suite": (before.suite_version, now.suite_version),
        "suite commit": (short_commit(before.suite_commit), short_commit(now.suite_commit)),
    }
    yield from (Mark(i, f"{what} {old} → {new}") for what, (old, new) in pairs.items() if old != new)


def short_commit(commit: str | None) -> str:
    """Return the short commit, with the mark of a checkout that has changed files."""
    whole, dash, changed = (commit or "unknown").partition("-")
    return whole[:10] + dash + changed


def _sign(plays: Sequence[RunLine]) -> str:
    """Return the sign of the worst play; empty without one."""
    signs = {sign_of(play) for play in plays}
    return next((sign for sign in SIGNS if sign in signs), "")


def sign_of(play: RunLine) -> str:
    if play.verdict == "VALID":
        return "V" if play.as_expected else "N"
    if play.verdict == "UNKNOWN":
        return "U"
    return "K" if play.as_expected else "I"


def _metric_series(
    metric: TrendMetric, plays: Sequence[Sequence[RunLine]], marks: Sequence[Mark], finds: bool
) -> MetricSeries:
    """Return the nightly medians of a metric, its changes and its noise. UNKNOWN runs give no numbers."""
    points = []
    for night, of_night in enumerate(plays):
        decided = [play for play in of_night if play.verdict != "UNKNOWN"]
        known = [value for play in decided if (value := play.number(metric.field)) is not None]
        if known:
            points.append(Point(night, float(median(known))))
    values = [point.value for point in points]
    found = change_points(values) if finds else []
    changes = []
    for one in found:
        before, night = points[one.first - 1].night, points[one.first].night
        changes.append(
            LevelChange(
                metric,
                before,
                night,
                one.before,
                one.after,
                one.by_means,
                [mark.text for mark in marks if before < mark.night <= night],
                plays[before][-1].rerun,
                plays[night][-1].rerun,
            )
        )
    return MetricSeries(metric, points, changes, noise(values, found))


def counts(group: PlaceNights) -> Counter[str]:
    """Return how often each sign occurs in the last night."""
    return Counter(history.cells[-1].sign for history in group.histories)
