"""Show the track record, made from fault files and run directories: the verdicts of each incident on each version.

.venv/bin/python -m rabbitmq_resilience.extensions.tables.track_record faults/incidents reports/runs [MORE ...] >
reports/track-record.md
"""

from __future__ import annotations

import argparse
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple, Self

import yaml

from rabbitmq_resilience.extensions.tables import TEMPLATES
from rabbitmq_resilience.extensions.tables.run_verdicts import Platform, platform
from rabbitmq_resilience.history.run_directory import RunDirectory, RunDirectoryError
from rabbitmq_resilience.report.impact import longest_of
from rabbitmq_resilience.report.markdown_tables import markdown
from rabbitmq_resilience.report.rate import Rate
from rabbitmq_resilience.report.wording import NOTHING, verdict_word

_ISSUE = re.compile(r"([\w.-]+/[\w.-]+)#(\d+)")


class TrackedRun(NamedTuple):
    """A run that came to a verdict: the plain content of its fault.yaml and of its verdict.json."""

    scenario: Mapping[str, Any]
    verdict: Mapping[str, Any]


#: The fields of a fault file that do not change what is played.
_WORDS = frozenset({"title", "reference", "what", "broker", "seed", "expect"})


@dataclass(frozen=True)
class Incident:
    """An incident. ``stated``: the plain YAML of its fault file."""

    file: Path
    stated: Mapping[str, Any]

    @classmethod
    def read(cls, file: Path) -> Incident:
        """Read a fault file as plain YAML."""
        return cls(file, yaml.safe_load(file.read_text(encoding="utf-8")))

    @property
    def title(self) -> str:
        return str(self.stated["title"])

    @property
    def link(self) -> str:
        """Return the reference as a link in Markdown."""
        reference = str(self.stated.get("reference", NOTHING))
        found = _ISSUE.fullmatch(reference)
        if found:
            return f"[{reference}](https://github.com/{found[1]}/issues/{found[2]})"
        return f"<{reference}>" if "://" in reference else reference

    def was_played_as(self, played: Mapping[str, Any]) -> bool:
        """Return whether the scenario of a run is this one; that of an earlier draft with the same title is not."""
        stated = {name: value for name, value in self.stated.items() if name not in _WORDS}
        return played.get("title") == self.title and _holds(played, stated)


def _holds(whole: Any, stated: Any) -> bool:
    """Return whether ``whole`` has everything that is ``stated``.

    ``whole`` has defaults too, and may hold a topology with all its fields that ``stated`` only names."""
    if isinstance(stated, Mapping):
        return isinstance(whole, Mapping) and all(_holds(whole.get(name), value) for name, value in stated.items())
    if isinstance(stated, list):
        return isinstance(whole, list) and len(whole) == len(stated) and all(map(_holds, whole, stated))
    return bool(whole == stated or (isinstance(whole, Mapping) and whole.get("name") == stated))


@dataclass(frozen=True)
class TrackRecord:
    """The runs of an incident on one platform.

    ``rate``: the rate of runs that broke a promise, or of VALID runs if none did; UNKNOWN runs do not count.
    ``broken``: the invariants that were broken. ``outages``: the longest outages of all runs."""

    word: str
    broken: Sequence[str]
    rate: Rate | None
    unknown: int
    outages: str

    @classmethod
    def of(cls, runs: Sequence[Mapping[str, Any]]) -> Self:
        counts = Counter(map(verdict_word, runs))
        judged = counts["VALID"] + counts["INVALID"]
        word = "INVALID" if counts["INVALID"] else "VALID"
        return cls(
            word, _broken(runs), Rate(counts[word], judged) if judged else None, counts["UNKNOWN"], longest_of(runs)
        )


def track_record(incidents: Iterable[Incident], runs: Iterable[TrackedRun]) -> str:
    """Return the page as Markdown. ``runs``: in their order."""
    played = list(runs)
    rows = []
    for incident in incidents:
        seen: dict[Platform, list[Mapping[str, Any]]] = {}
        for run in played:
            if incident.was_played_as(run.scenario):
                seen.setdefault(platform(run.verdict), []).append(run.verdict)
        rows.append((incident, {where: TrackRecord.of(seen[where]) for where in sorted(seen)}))
    return markdown(TEMPLATES / "track-record.md.j2", rows=rows)


def _broken(runs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Return the invariants that INVALID runs broke, the most frequent first."""
    counts = Counter(
        name
        for run in runs
        if verdict_word(run) == "INVALID"
        for name, finding in run.get("invariants", {}).items()
        if verdict_word(finding) == "INVALID"
    )
    return [name for name, _ in counts.most_common()]


def runs_of(roots: Iterable[Path], titles: frozenset[str]) -> Iterator[TrackedRun]:
    """Yield the runs below the folders that have one of the titles, oldest first."""
    for path in sorted((run for root in roots for run in root.iterdir() if run.is_dir()), key=lambda run: run.name):
        run = RunDirectory(path)
        try:
            verdict = run.read_verdict()
        except RunDirectoryError:
            continue
        if verdict.get("title") in titles and verdict.get("broker_version"):
            yield TrackedRun(yaml.safe_load(run.fault_file.read_text(encoding="utf-8")), verdict)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("incidents", type=Path, help="the folder of the incidents' fault files")
    parser.add_argument("runs", type=Path, nargs="+", help="folders that hold run directories")
    given = parser.parse_args()
    incidents = [Incident.read(file) for file in sorted(given.incidents.glob("*.fault.yaml"))]
    titles = frozenset(incident.title for incident in incidents)
    print(track_record(incidents, runs_of(given.runs, titles)), end="")


if __name__ == "__main__":
    main()
