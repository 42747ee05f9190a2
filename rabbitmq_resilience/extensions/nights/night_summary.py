"""Summarise a night in Markdown, for people who look at it in the morning: what broke first, then counts.

.venv/bin/python -m rabbitmq_resilience.extensions.nights.night_summary NIGHT.jsonl [--runs reports/runs]

writes the summary of a night that was killed.
"""

from __future__ import annotations

import argparse
import sys
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.extensions.nights.last_played import earlier_nights
from rabbitmq_resilience.extensions.nights.night_file import LeftOut, Night, NightFileError, read_night
from rabbitmq_resilience.extensions.nights.rates import KnownRate, known_rates
from rabbitmq_resilience.extensions.nights.troubles import FailedScenario, troubles
from rabbitmq_resilience.history.run_directory import RunDirectory, RunDirectoryError
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.report.terminal import story
from rabbitmq_resilience.report.wording import duration_text

TEMPLATE = Path(__file__).parent / "templates" / "summary.md.j2"
#: How many entries of a long list are shown; the others are only counted.
LISTED_MAX = 20
#: Other programs are mentioned if they took at least this part of the processors on average.
OTHERS_CPU_MIN = 0.1

_STATUSES = {
    0: "everything ended as expected",
    1: "a promise was broken, or a test failed in another way",
    10: "no run was INVALID or failed, but some were UNKNOWN",
    2: "the session was interrupted",
}


@dataclass(frozen=True)
class KnownViolation:
    """A known violation, as a row of the table."""

    name: str
    where: str
    tonight: str
    nights: str
    change: str


def summary(night: Night, earlier: Sequence[Night], *, runs: Path) -> str:
    """Return the summary as Markdown.

    ``earlier``: the nights before, for rates. ``runs``: the folder of run directories, for the story of what broke."""
    found = troubles(night)
    others = [run.others_cpu for run in night.played if run.others_cpu is not None]
    before = [one for one in earlier if one.header.night < night.header.night]
    known = [row for row in known_rates([*before, night]) if row.where.machine == night.header.machine.id]
    return markdown(
        TEMPLATE,
        night=night,
        header=night.header,
        head=_head(night, found),
        first=found[0] if found and found[0].broke else None,
        story=_story(found[0], runs) if found else "",
        troubles=found,
        ended=_ended(night),
        counts=_counts(night),
        took=duration_text(sum(run.duration_s or 0.0 for run in night.played)),
        versions=sorted({str(run.broker_version) for run in night.played if run.broker_version}),
        known=[_row(row, night) for row in known if _seen_tonight(row, night)],
        changes=[(row.known, row.where, row.change) for row in known if row.change is not None],
        left_out=sorted(night.left_out, key=_last_played)[:LISTED_MAX],
        left_out_more=max(0, len(night.left_out) - LISTED_MAX),
        not_reached=night.not_reached[:LISTED_MAX],
        not_reached_more=max(0, len(night.not_reached) - LISTED_MAX),
        skipped=Counter(test.why for test in night.tested if test.outcome == "skipped").most_common(),
        busy=f"{sum(others) / len(others):.0%}" if others and sum(others) / len(others) >= OTHERS_CPU_MIN else "",
        unknown_while_busy=sum(
            run.verdict == "UNKNOWN" and (run.others_cpu or 0) >= OTHERS_CPU_MIN for run in night.played
        ),
    )


def _head(night: Night, found: Sequence[FailedScenario]) -> str:
    broke = sum(trouble.broke for trouble in found)
    known = sum(run.known is not None for run in night.played)
    parts = [
        f"{broke} broke" if broke else "",
        f"{len(found) - broke} without a verdict" if len(found) > broke else "",
        "" if found else "nothing broke except what is known" if night.played else "nothing was played",
        f"{known} known violation{'' if known == 1 else 's'} seen" if known else "",
    ]
    return ", ".join(filter(None, parts))


def _ended(night: Night) -> str:
    if night.ended is None:
        return "The night did not come to its end: the session or its machine was killed."
    meaning = _STATUSES.get(night.ended.status, "pytest could not run the tests")
    return f"Exit status {night.ended.status}: {meaning}."


def _counts(night: Night) -> dict[str, int]:
    counts = Counter(f"{run.verdict} (known)" if run.known is not None else run.verdict for run in night.played)
    return {word: counts[word] for word in ("VALID", "INVALID (known)", "INVALID", "UNKNOWN") if counts[word]}


def _story(trouble: FailedScenario, runs: Path) -> str:
    """Return what happened, as the terminal shows it; shorter if the run directory does not exist."""
    if trouble.run is None:
        return trouble.why
    run = RunDirectory(runs / trouble.run.run)
    try:
        return story(run.read_verdict(), run.path)
    except RunDirectoryError:
        return f"{trouble.head}\n  {trouble.why}\n  again     {trouble.run.rerun}"


def _seen_tonight(row: KnownRate, night: Night) -> bool:
    tonight = row.of_night(night.header.night)
    return tonight is not None and tonight.hits > 0


def _row(row: KnownRate, night: Night) -> KnownViolation:
    tonight = row.of_night(night.header.night)
    assert tonight is not None
    change = "" if row.change is None else f"{'more' if row.change.is_more else 'less'} often since {row.change.since}"
    nights = len({run.night for run in row.runs})
    where = f"{row.where.broker_version}, {row.where.driver}"
    return KnownViolation(row.known, where, f"{tonight.hits} of {tonight.runs}", f"{row.overall} in {nights}", change)


def _last_played(left_out: LeftOut) -> tuple[bool, str]:
    return left_out.last_played is not None, left_out.last_played or left_out.scenario


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("night", type=Path, help="the file of a night")
    parser.add_argument("--runs", type=Path, default=Path("reports/runs"), help="where run directories are")
    given = parser.parse_args(arguments)
    try:
        night = read_night(given.night)
    except NightFileError as error:
        print(error, file=sys.stderr)
        return 1
    print(summary(night, earlier_nights(given.night.parent)[0], runs=given.runs), end="")
    return 0


if __name__ == "__main__":
    sys.exit(main())
