"""The command ``rabbitmq-resilience trend``: make a page from a folder of nights."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Iterator, Sequence
from importlib.util import find_spec
from pathlib import Path

from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.extensions.nights.night_file import Night, NightFileError, find_nights, read_night
from rabbitmq_resilience.extensions.nights.rates import known_rates
from rabbitmq_resilience.extensions.nights.trend import Trend, trend
from rabbitmq_resilience.extensions.nights.trend_page import rate_change_text, write_trend


def main(arguments: Sequence[str], *, program: str) -> int:
    """Write the page. Return the exit status: 1 if there is nothing to show, else 0."""
    parser = argparse.ArgumentParser(prog=program, description="Make a page with the trend over many nights.")
    parser.add_argument("folder", type=Path, help="where the files of nights are, at any depth")
    parser.add_argument("--to", type=Path, default=Path("trend.html"), metavar="FILE", help="the page; %(default)s")
    parser.add_argument("--mix-machines", action="store_true", help="compare nights of different machines too")
    given = parser.parse_args(list(arguments))
    if not given.folder.is_dir():
        print(
            f"{given.folder} is no folder; name the folder of nights (usually reports/nights)",
            file=sys.stderr,
        )
        return 1
    troubles: list[str] = []
    nights = list(_read(given.folder, troubles))
    if not nights:
        print("\n".join([*troubles, f"there is no night in {given.folder}"]), file=sys.stderr)
        return 1
    found = trend(nights, mix_machines=given.mix_machines)
    found = Trend(found.groups, [*troubles, *found.troubles])
    try:
        write_trend(found, given.to, rate_changes=[*filter(None, map(rate_change_text, known_rates(nights)))])
    except OSError as error:
        print(f"{given.to} cannot be written: {error.strerror or error}", file=sys.stderr)
        return 1
    for trouble in found.troubles:
        print(trouble, file=sys.stderr)
    changes = sum(len(history.changes) for group in found.groups for history in group.histories)
    changed = counted(changes, "change") if find_spec("ruptures") else "changes were not looked for"
    print(f"{counted(len(nights), 'night')}, {changed}: {given.to}")
    return 0


def _read(folder: Path, troubles: list[str]) -> Iterator[Night]:
    """Yield the nights that can be read, oldest first; add a message on each damaged one to ``troubles``."""
    for path in find_nights(folder):
        try:
            night = read_night(path)
        except NightFileError as error:
            troubles.append(f"left out: {error}")
            continue
        if night.torn:
            troubles.append(f"{path} was cut short: its last line is left out")
        yield night
