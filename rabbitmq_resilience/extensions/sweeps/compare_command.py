"""The command ``rabbitmq-resilience compare``: compare two nights, two results of sweeps, or two fault files.

Fault files are played as a sweep whose axis is the difference: interleaved and with the same seeds. Nights and results
of sweeps are only read.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import yaml

from rabbitmq_resilience.extensions.nights.called import run_pytest
from rabbitmq_resilience.extensions.nights.night_file import Night, NightFileError, find_nights, read_night
from rabbitmq_resilience.extensions.sweeps import sweep_file
from rabbitmq_resilience.extensions.sweeps.compared_sides import nights_apart, of_nights, of_results, results_apart
from rabbitmq_resilience.extensions.sweeps.comparison import Comparison, compare, words_of
from rabbitmq_resilience.extensions.sweeps.comparison_page import comparison_markdown, comparison_page
from rabbitmq_resilience.extensions.sweeps.results import Results, ResultsError
from rabbitmq_resilience.extensions.sweeps.statistics import ALPHA, runs_needed
from rabbitmq_resilience.history.whole_files import write_whole
from rabbitmq_resilience.model.yaml_files import Problem

FOLDER = Path("reports/comparisons")
#: The measures by default. A measure that a scenario does not produce has no number.
MEASURED = (
    *("confirmed_per_s", "confirm_p50_ms", "confirm_p99_ms", "end_to_end_p99_ms"),
    *("outage_s", "stall_s", "recovered_s", "kept_ratio", "cpu_busy"),
)
SCENARIO, SIDE = "scenario", "side"
UNCHANGED = "unchanged"
NOT_IN_TURN = "the time: the two were not played in turn, and that alone may cause a difference"


class NothingToCompareError(Exception):
    """The paths that were named cannot be compared. The text says why."""


def main(arguments: Sequence[str], *, program: str) -> int:
    """Compare what the arguments name. Return the exit status: pytest's if something was played; 1 on an error."""
    given, for_pytest = _parser(program).parse_known_args(list(arguments))
    try:
        played = all(path.is_file() and path.suffix in (".yaml", ".yml") for path in given.paths)
        if played or given.first or given.second:
            return _play(given, for_pytest)
        if for_pytest:
            raise NothingToCompareError(f"{' '.join(for_pytest)} is for pytest, but nothing is played here")
        found, apart = _recorded(given.paths)
        print(_write(found, apart, given.to))
    except (NothingToCompareError, NightFileError, ResultsError) as error:
        print(error, file=sys.stderr)
        return 1
    except OSError as error:
        print(f"{error.filename}: {error.strerror or error}", file=sys.stderr)
        return 1
    return 0


def _parser(program: str) -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog=program,
        description=(
            "Compare two nights (files, or folders of them), two results of sweeps (their folders), or two fault "
            "files, which are played in turn; or any number of fault files, with and without a change. Unknown "
            "options are passed to pytest."
        ),
        allow_abbrev=False,
    )
    parser.add_argument(
        "paths",
        nargs="+",
        type=Path,
        metavar="PATH",
        help="two fault files, folders of nights or of results; or one fault file, and what differs",
    )
    change = "a field of the scenario and its value on the %s side (workload.in_flight=10, on.broker=4.0.5)"
    parser.add_argument("--first", action="append", default=[], metavar="FIELD=VALUE", help=change % "first")
    parser.add_argument("--second", action="append", default=[], metavar="FIELD=VALUE", help=change % "second")
    parser.add_argument(
        "--repeats",
        type=int,
        help="how often each side is played (6, or more with many measures)",
    )
    parser.add_argument("--measures", default=",".join(MEASURED), help="what is measured; %(default)s")
    parser.add_argument(
        "--over",
        choices=("steady", "chaos", "always"),
        default="always",
        help="when it is measured: in the steady phase, in the chaos phase, or always (%(default)s)",
    )
    parser.add_argument("--to", type=Path, help=f"a folder ({FOLDER} and a name)")
    return parser


def _play(given: argparse.Namespace, for_pytest: Sequence[str]) -> int:
    if missing := [path for path in given.paths if not path.is_file()]:
        raise NothingToCompareError(f"{missing[0]} is no fault file")
    changes = {"first": given.first, "second": given.second}
    if given.first or given.second:
        axes, compared = _changed_axes(given.paths, changes), SIDE
    elif len(given.paths) == 2:
        axes, compared = [_file_axis(given.paths)], SCENARIO
    else:
        raise NothingToCompareError("name two fault files, or what differs (--first FIELD=VALUE, --second FIELD=VALUE)")
    names = [_stem(path) for path in given.paths]
    title = " and ".join(names) if compared == SCENARIO else f"{', '.join(names)}: {_differing(changes)}"
    measures = [name.strip() for name in given.measures.split(",") if name.strip()]
    document = {
        "version": 1,
        "title": title[:120],
        "axes": axes,
        "compared": compared,
        "measures": measures,
        "over": given.over,
        "repeats": given.repeats or _enough(len(given.paths) if compared == SIDE else 1, len(measures)),
    }
    folder = given.to or FOLDER
    folder.mkdir(parents=True, exist_ok=True)
    file = folder / f"{re.sub(r'[^a-z0-9]+', '-', title.lower()).strip('-')[:60]}.sweep.yaml"
    write_whole(file, yaml.safe_dump(document, sort_keys=False, allow_unicode=True))
    _require_right(file)
    return run_pytest([sys.executable, "-m", "pytest", str(file), *for_pytest], limit_s=None)


def _require_right(file: Path) -> None:
    """Raise NothingToCompareError with what is wrong in terms of the command, and remove the file that it made."""
    try:
        sweep_file.load(file, driver=None)
    except sweep_file.SweepFileError as error:
        file.unlink()
        raise NothingToCompareError("\n".join(map(_of_command, error.problems))) from None


def _of_command(problem: Problem) -> str:
    """Return a problem of the made sweep file without its place there: with the option that states a change. Problems
    of the compared files name these themselves."""
    side = next((str(part).partition(":")[0] for part in problem.location[3:4]), "")
    return f"--{side}: {problem.text}" if side in ("first", "second") else problem.text


def _file_axis(paths: Sequence[Path]) -> dict[str, Any]:
    names = [_stem(path) for path in paths]
    labels = [label[-60:] for label in (names if len(set(names)) == len(names) else map(str, paths))]
    if len(set(labels)) < len(labels):  # the ends of the paths are equal: a number keeps them apart
        labels = [f"{number}: {label[-54:]}" for number, label in enumerate(labels, 1)]
    return {
        "name": SCENARIO,
        "settings": {label: {"base": str(path.resolve())} for label, path in zip(labels, paths, strict=True)},
    }


def _changed_axes(paths: Sequence[Path], changes: Mapping[str, Sequence[str]]) -> list[dict[str, Any]]:
    settings = {
        f"{side}: {', '.join(stated) or UNCHANGED}"[:60]: dict(map(_change, stated)) for side, stated in changes.items()
    }
    return [_file_axis(paths), {"name": SIDE, "settings": settings}]


def _change(text: str) -> tuple[str, Any]:
    field, equals, value = text.partition("=")
    if not equals:
        raise NothingToCompareError(f"{text!r}: write FIELD=VALUE, such as workload.in_flight=10")
    return field, value if field.startswith("on.") else yaml.safe_load(value)


def _differing(changes: Mapping[str, Sequence[str]]) -> str:
    return " compared with ".join(", ".join(changes[side]) or UNCHANGED for side in ("second", "first"))


def _stem(path: Path) -> str:
    return path.name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".fault")


def _enough(cells: int, measures: int) -> int:
    """Return how many repeats of each side are enough for any comparison of the family to show a difference."""
    return max(6, runs_needed(ALPHA / words_of(cells, measures)))


def _recorded(paths: Sequence[Path]) -> tuple[Comparison, list[str]]:
    if len(paths) != 2:
        raise NothingToCompareError("name two nights, two results of sweeps, or two fault files")
    first, second = paths
    if missing := [path for path in paths if not path.exists()]:
        raise NothingToCompareError(f"{missing[0]} does not exist")
    if first.resolve() == second.resolve():
        raise NothingToCompareError(f"both are {first}; name two")
    called = [path.resolve().name for path in paths]
    names = [str(path) for path in paths] if called[0] == called[1] else called
    sweeps = [Results.read(path) for path in paths if (path / "runs.jsonl").is_file()]
    if len(sweeps) == 2:
        apart = list(results_apart(*sweeps))
        sides = [of_results(results, name) for results, name in zip(sweeps, names, strict=True)]
        return compare(*sides), [*apart, NOT_IN_TURN]
    a, b = (_nights(path) for path in paths)
    sides = [of_nights(nights, name) for nights, name in zip((a, b), names, strict=True)]
    return compare(*sides), [*nights_apart(a, b), NOT_IN_TURN]


def _nights(path: Path) -> list[Night]:
    files = find_nights(path) if path.is_dir() else [path]
    nights = [read_night(file) for file in files]
    if not any(night.played for night in nights):
        raise NothingToCompareError(f"{path} holds no night with a run, and no result of a sweep")
    return nights


def _write(found: Comparison, apart: Sequence[str], to: Path | None) -> str:
    if not found.wheres:
        raise NothingToCompareError("the two have nothing in common: no scenario and no cell is in both")
    if not (found.differences or found.rates or found.left_out):
        raise NothingToCompareError("nothing was measured on both sides, in the scenarios or cells that both have")
    title = f"{found.names[1]} compared with {found.names[0]}"
    folder = to or FOLDER / re.sub(r"[^\w.-]+", "-", title)[-120:].strip("-")
    folder.mkdir(parents=True, exist_ok=True)
    write_whole(folder / "comparison.md", comparison_markdown(found, title=title, apart=apart))
    write_whole(folder / "comparison.html", comparison_page(found, title=title, apart=apart))
    counts = found.counts
    lines = [f"{one.of.what}, all together: {one.word}" for one in found.together if one.word in ("better", "worse")]
    return "\n".join([*lines, f"{counts['worse']} worse, {counts['better']} better: {folder / 'comparison.html'}"])
