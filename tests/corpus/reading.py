"""Read recorded runs of the corpus, and reduce a judgement to what must stay the same: no sentence, no title, no path.

A run is an archive NAME.run.tar.xz of its run directory. ``golden.txt`` holds a line for each finding.
"""

from __future__ import annotations

import atexit
import re
import tarfile
import tempfile
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

from rabbitmq_resilience.checkers.consequences import consequences
from rabbitmq_resilience.checkers.judge import Judgement, judge
from rabbitmq_resilience.checkers.measured import measures
from rabbitmq_resilience.checkers.verdict import Finding
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.runner.examination import recorded_history
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.tools.tar_files import extract

CORPUS = Path(__file__).parent
GOLDEN = CORPUS / "golden.txt"
_ENDING = ".run.tar.xz"


def names() -> list[str]:
    """Return the names of all recorded runs."""
    return sorted(path.name.removesuffix(_ENDING) for path in CORPUS.glob(f"*{_ENDING}"))


#: The first runs, small and of several versions, which other tests take copies of.
FIRST = (
    "automatic_acks-3.10.8",
    "automatic_acks-4.0.5",
    "clients_killed-3.10.8-version_2",
    "leader_killed-3.8.9",
    "leader_killed-4.3.6",
    "minority_zone_cut_off-3.10.8",
    "purge_unproven-3.10.8",
)


@cache
def first_runs() -> Path:
    """Return a folder with the first runs unpacked, to be copied from; it is gone with this process."""
    folder = tempfile.TemporaryDirectory(prefix="corpus-")
    atexit.register(folder.cleanup)
    for name in FIRST:
        unpacked(name, Path(folder.name))
    return Path(folder.name)


def unpacked(name: str, folder: Path) -> RunDirectory:
    """Unpack a recorded run into ``folder``."""
    with tarfile.open(CORPUS / f"{name}{_ENDING}") as archive:
        extract(archive, folder)
    return RunDirectory(folder / name)


def judged(run: RunDirectory) -> list[str]:
    """Return the golden lines of a run: what today's checkers find in its record."""
    scenario = fault_file.load(run.fault_file, driver=None)
    history = recorded_history(run, scenario)
    judgement = judge(history, scenario.chosen_invariants)
    return [
        str(judgement.verdict),
        *lines(judgement),
        "consequences " + (_numbers(dict(flattened(consequences(history)))) or "none"),
        "measured " + (_numbers(dict(flattened(measures(run.metrics)))) or "nothing"),
    ]


def lines(judgement: Judgement) -> Iterator[str]:
    """Yield a line for each finding: name, verdict, numbers, coverage, and the ids of messages in its examples."""
    for name, finding in {**judgement.assumptions, **judgement.findings}.items():
        coverage = finding.coverage.as_dict() if finding.coverage else {}
        parts = (_numbers(finding.numbers), _numbers(coverage), " ".join(ids(finding)))
        yield " | ".join([f"{name} {finding.verdict}", *filter(None, parts)])


def ids(finding: Finding) -> Iterator[str]:
    """Yield publisher:sequence of each message that an example names, and the other examples' count."""
    found = [re.search(r"publisher (\d+) sequence (\d+)", example) for example in finding.examples]
    yield from (f"{match[1]}:{match[2]}" for match in found if match)
    if others := found.count(None):
        yield f"{others} other examples"


def flattened(numbers: Mapping[str, Any] | None, path: str = "") -> Iterator[tuple[str, Any]]:
    """Yield the numbers and names of nested mappings and lists under dotted names, without phrases for people.

    Floats are rounded to a millionth.
    """
    for name, value in (numbers or {}).items():
        if isinstance(value, Mapping):
            yield from flattened(value, f"{path}{name}.")
        elif isinstance(value, list | tuple):
            yield from flattened({str(i): element for i, element in enumerate(value)}, f"{path}{name}.")
        elif isinstance(value, float):
            yield f"{path}{name}", round(value, 6)
        elif not (isinstance(value, str) and " " in value):
            yield f"{path}{name}", value


def _numbers(numbers: Mapping[str, Any]) -> str:
    return " ".join(f"{name}={value!r}" for name, value in numbers.items())


def read_golden() -> dict[str, list[str]]:
    """Return the golden lines of each run, by its name."""
    if not GOLDEN.exists():
        return {}
    sections = GOLDEN.read_text(encoding="utf-8").split("\n\n")
    return {name: rest for name, *rest in (section.strip().splitlines() for section in sections if section.strip())}


def write_golden(golden: Mapping[str, list[str]]) -> None:
    """Write the golden lines of all runs."""
    text = "\n\n".join("\n".join([name, *found]) for name, found in sorted(golden.items()))
    GOLDEN.write_text(f"{text}\n", encoding="utf-8")
