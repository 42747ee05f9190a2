"""Nights that nobody played, to look at a trend of: all numbers are drawn, and what changes is known.

    .venv/bin/python -m tests.nights.simulated FOLDER

Six scenarios over 30 nights on one machine with two versions of the broker. With night 22 (the suite has another
commit) recovery after a kill takes 30 % longer, with night 12 (another kernel) a throughput is better; the outage of a
cut stays as it is, with an unusual night. One scenario has a known violation, and one fails in the last two nights.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random
from typing import Any

from rabbitmq_resilience.extensions.nights.night_file import Ended, LeftOut, NightWriter
from rabbitmq_resilience.runner.run_line import BrokeFirst, RunLine
from tests.nights.literal import HEADER, PLAYED

NIGHTS = 30
FIRST = datetime(2026, 10, 24, 1, tzinfo=UTC)
SLOWER_FROM, FASTER_FROM = 22, 12
#: Scenario, title, and what its numbers are usually: outage, stall and recovery in seconds, throughput kept.
KILLS, CUTS = "suites/test_kills.py", "suites/test_partitions.py"
LEADER, FOLLOWER = f"{KILLS}::test_leader[quorum]", f"{KILLS}::test_follower[quorum]"
CUT, CUT_MIRRORED = f"{CUTS}::test_minority_zone[quorum]", f"{CUTS}::test_minority_zone[mirrored]"
SLOW = "suites/test_backlogs.py::test_slow_consumers"
AUTOHEAL = "faults/incidents/autoheal_discards.fault.yaml"
SCENARIOS = {
    LEADER: ("The leader's broker dies, quorum", 3.1, 2.4, 14.0, 0.92),
    FOLLOWER: ("A follower's broker dies, quorum", 0.0, 0.9, 11.5, 0.97),
    CUT: ("A minority zone is cut off, quorum", 16.7, 6.2, 8.0, 0.81),
    CUT_MIRRORED: ("A minority zone is cut off, mirrored", 5.3, 5.1, 9.0, 0.78),
    SLOW: ("Consumers are slow, and a million messages wait", 1.4, 1.1, 4.0, 0.88),
    AUTOHEAL: ("autoheal discards what a minority confirmed", 2.2, 2.0, 21.0, 0.7),
}


def simulate(folder: Path, *, nights: int = NIGHTS, versions: tuple[str, ...] = ("3.10.8", "4.0.5")) -> None:
    for version in versions:
        random = Random(version)  # noqa: S311 - a simulation
        for number in range(nights):
            _night(folder, number, version, random)


def _night(folder: Path, number: int, version: str, random: Random) -> None:
    begun = FIRST + timedelta(days=number)
    machine = replace(HEADER.machine, kernel="6.1.0-41" if number >= FASTER_FROM else "6.1.0-40")
    commit = ("9f2c1e7a60" if number >= SLOWER_FROM else "4bd0c19e55") + "0" * 30
    header = replace(HEADER, night=begun.strftime("%Y-%m-%dT%H:%M:%SZ"), suite_commit=commit, machine=machine)
    with NightWriter(folder / f"{begun:%Y%m%d}-{version}" / "night.jsonl", header) as file:
        for scenario in SCENARIOS:
            if scenario == SLOW and number % 3:
                file.write(LeftOut(scenario=scenario, why="budget", last_played=None))
            else:
                file.write(_played(scenario, number, version, random))
        ended = (begun + timedelta(hours=2)).isoformat()
        file.write(Ended(status=int(number >= NIGHTS - 2), played=len(SCENARIOS), at=ended))


def _played(scenario: str, number: int, version: str, random: Random) -> RunLine:
    title, *usual = SCENARIOS[scenario]
    outage_s, stall_s, recovered_s, kept = (value * random.lognormvariate(0, 0.06) for value in usual)
    if version == "3.10.8" and scenario == LEADER and number >= SLOWER_FROM:
        recovered_s *= 1.3
    if version == "4.0.5" and scenario == CUT_MIRRORED and number < FASTER_FROM:
        kept *= 0.7
    if number == 17 and scenario == CUT:
        outage_s *= 2.5
    busy = number in (5, 6)
    run = f"{FIRST + timedelta(days=number):%Y%m%d}T0100{number:02}Z-simulated"
    told: dict[str, Any] = {"verdict": "VALID", "as_expected": True, "expected": "VALID", "broke_first": None}
    if scenario == AUTOHEAL and random.random() < 0.4:
        known = {"known": "rabbitmq-server #1", "expected": "INVALID by no_loss in some runs"}
        told |= {
            "verdict": "INVALID",
            "broke_first": BrokeFirst(invariant="no_loss", summary="3 messages lost"),
            **known,
        }
    if scenario == CUT and number >= NIGHTS - 2 and version == "3.10.8":
        first = BrokeFirst(invariant="availability", summary="q3 confirmed nothing for 31 s")
        told |= {"verdict": "INVALID", "as_expected": False, "broke_first": first}
    if number == 9 and scenario == FOLLOWER:
        told |= {"verdict": "UNKNOWN", "as_expected": False}
    return replace(
        PLAYED,
        **told,
        scenario=scenario,
        title=f"{title} (simulated)",
        broker_version=version,
        others_cpu=0.5 if busy else 0.05,
        outage_s=round(outage_s * (1.4 if busy else 1), 2),
        stall_s=round(stall_s, 2),
        recovered_s=round(recovered_s * (1.2 if busy else 1), 2),
        kept_ratio=round(min(kept, 1.05), 3),
        run=run,
        rerun=f".venv/bin/pytest reports/runs/{run}/fault.yaml",
        fault_file=f"{run}/fault.yaml",
    )


if __name__ == "__main__":
    simulate(Path(sys.argv[1]))
