"""Compare the tap with references that were written from the grammar of AMQP 0-9-1 alone, on generated cases.

    python -m tests.tap.compared --cases 20000 --processes 2
    python -m tests.tap.compared --of rules --first 700 --cases 100

``conversations``: what is recorded of both sides of a connection. ``rules``: what goes on through a tap with rules.
"""

from __future__ import annotations

import argparse
import random
import sys
from collections import Counter
from collections.abc import Callable, Mapping
from concurrent.futures import ProcessPoolExecutor
from functools import partial

from tests.tap import conversations_compared, rules_compared

#: The differences of one case, and what was in it.
Case = tuple[list[str], set[str]]
COMPARED: Mapping[str, Callable[[random.Random], Case]] = {
    "conversations": conversations_compared.compare,
    "rules": rules_compared.compare,
}


def case(name: str, seed: int) -> Case:
    """Return the differences of the case with that seed, and what was in it."""
    apart, kinds = COMPARED[name](random.Random(seed))  # noqa: S311 - it draws cases
    return [f"{name}, seed {seed}: {each}" for each in apart], kinds


def main() -> int:
    """Compare as the command line says; return 1 if the two differ anywhere."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--of", choices=sorted(COMPARED), action="append")
    parser.add_argument("--cases", type=int, default=1000, help="of each")
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    asked, wrong = parser.parse_args(), 0
    with ProcessPoolExecutor(asked.processes) as pool:
        for name in asked.of or COMPARED:
            seeds, kinds, apart = range(asked.first, asked.first + asked.cases), Counter[str](), 0
            for differences, found in pool.map(partial(case, name), seeds, chunksize=100):
                kinds.update(found)
                apart += bool(differences)
                print(*differences[:1], sep="\n", end="\n" * bool(differences), flush=True)
            wrong += apart
            print(f"{name}: {asked.cases} cases, {apart} wrong")
            print(*(f"{count:8} {text}" for text, count in sorted(kinds.items())), sep="\n")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
