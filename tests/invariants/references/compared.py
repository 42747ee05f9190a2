"""Compare checkers with answers that were written from the documentation alone, on generated histories.

    python -m tests.invariants.references.compared --cases 20000 --processes 2
    python -m tests.invariants.references.compared --checker order --first 700 --cases 100

A reference is a module with ``generated`` (a case of a source of chance), ``recorded`` (its history), ``verdict`` (the
answer of the reference) and ``found`` (that of the checker, in the same form). Each case says what was planted in it.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from types import ModuleType

from tests.invariants.references import (
    alarms,
    application,
    availability,
    backlog,
    dead_letters,
    expectations,
    followers,
    leaders_spread,
    memory,
    no_crash,
    no_loss,
    order,
    recovery,
    single_active_consumer,
    statuses,
    throughput,
    unacked,
    uptime,
)

REFERENCES: dict[str, ModuleType] = {
    "order": order,
    "no_loss": no_loss,
    "dead_letters": dead_letters,
    "single_active_consumer": single_active_consumer,
    "expectations": expectations,
    "statuses": statuses,
    "unacked": unacked,
    "memory": memory,
    "alarms": alarms,
    "uptime": uptime,
    "followers": followers,
    "no_crash": no_crash,
    "leaders_spread": leaders_spread,
    "backlog": backlog,
    "throughput": throughput,
    "availability": availability,
    "recovery": recovery,
    "application": application,
}
#: Cases that one process takes at a time.
BATCH = 200


@dataclass(frozen=True)
class Compared:
    """``apart``: a line for each case in which the two differ. ``planted`` and ``answers`` count what was drawn, and
    what the reference said."""

    cases: int = 0
    apart: tuple[str, ...] = ()
    planted: Counter[str] = field(default_factory=Counter)
    answers: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Compared) -> Compared:
        return Compared(
            self.cases + other.cases,
            self.apart + other.apart,
            self.planted + other.planted,
            self.answers + other.answers,
        )


def compare(name: str, seeds: range) -> Compared:
    """Return how the checker and the reference of that name answer on the cases of these seeds."""
    reference, apart, planted, answers = REFERENCES[name], [], Counter[str](), Counter[str]()
    for seed in seeds:
        case = reference.generated(random.Random(seed))  # noqa: S311 - it draws cases
        expected, found = reference.verdict(case), reference.found(case)
        planted.update(case.planted.split("+"))
        answers[str(expected)] += 1
        if expected != found:
            apart.append(f"{name}, seed {seed}: {found}, and by the reference {expected}; planted: {case.planted}")
    return Compared(len(seeds), tuple(apart), planted, answers)


def main() -> int:
    """Compare as the command line says; return 1 if the two differ anywhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--checker", choices=sorted(REFERENCES), action="append")
    parser.add_argument("--cases", type=int, default=1000, help="of each checker")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    end, apart = asked.first + asked.cases, 0
    with ProcessPoolExecutor(asked.processes) as pool:
        for name in asked.checker or REFERENCES:
            batches = [range(at, min(at + BATCH, end)) for at in range(asked.first, end, BATCH)]
            whole = Compared()
            for one in pool.map(compare, [name] * len(batches), batches):
                whole += one
                print(*one.apart, sep="\n", end="\n" * bool(one.apart), flush=True)
                print(f"{name}: {whole.cases} of {asked.cases}", end="\r", file=sys.stderr, flush=True)
            apart += len(whole.apart)
            print(f"{name}: {whole.cases} cases, {len(whole.apart)} wrong")
            print(*(f"{count:8} {text}" for text, count in sorted((whole.planted + whole.answers).items())), sep="\n")
    return 1 if apart else 0


if __name__ == "__main__":
    sys.exit(main())
