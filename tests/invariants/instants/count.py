"""Any number of generated cases: where the checkers and the reference disagree, and where a kept promise is told as
broken. With what the cases were like, so that one sees what was tried.

    python -m tests.invariants.instants.count --cases 100000 --processes 2
"""

from __future__ import annotations

import argparse
import itertools
import random
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field

from tests.invariants.instants.compared import Reference, answers, findings, told
from tests.invariants.instants.generated import Made, made

#: Cases that one process takes at a time.
BATCH = 100


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=1000)
    parser.add_argument("--first", type=int, default=0, help="the first seed")
    parser.add_argument("--processes", type=int, default=1)
    asked = parser.parse_args()
    seeds = range(asked.first, asked.first + asked.cases)
    counted = Counted()
    try:
        for batch in judged_at_once([seeds[i : i + BATCH] for i in range(0, len(seeds), BATCH)], asked.processes):
            counted += batch
            print(*batch.wrong, sep="\n", end="\n" * bool(batch.wrong), flush=True)
            print(f"{counted.cases} of {len(seeds)}", end="\r", file=sys.stderr, flush=True)
    except KeyboardInterrupt:
        print("interrupted; this is what was counted until then")
    print(counted)
    return 1 if counted.wrong else 0


@dataclass(frozen=True)
class Counted:
    """``cpu_s``: the time of the processors that it took."""

    cases: int = 0
    cpu_s: float = 0.0
    wrong: tuple[str, ...] = ()
    classes: Counter[str] = field(default_factory=Counter)

    def __add__(self, other: Counted) -> Counted:
        return Counted(
            self.cases + other.cases,
            self.cpu_s + other.cpu_s,
            self.wrong + other.wrong,
            self.classes + other.classes,
        )

    def __str__(self) -> str:
        lines = [f"{count:8} {name}" for name, count in sorted(self.classes.items())]
        return "\n".join([f"{self.cases} cases, {len(self.wrong)} wrong, {self.cpu_s:.0f} s of CPU", *lines])


def judged_at_once(batches: list[range], processes: int) -> Iterator[Counted]:
    with ProcessPoolExecutor(processes) as pool:
        try:
            yield from pool.map(judged, batches)
        finally:
            pool.shutdown(wait=False, cancel_futures=True)


def judged(seeds: range) -> Counted:
    began_s = time.process_time()
    classes: Counter[str] = Counter()
    wrong: list[str] = []
    for seed in seeds:
        one = made(random.Random(seed))  # noqa: S311 - no secret
        reference = Reference(one.case)
        said, right = told(findings(one.case)), answers(reference)
        for name in said:
            if said[name] != right[name]:
                wrong.append(f"seed {seed}: {name} says {said[name]}, and the reference {right[name]}")
            elif one.sound and said[name]:
                wrong.append(f"seed {seed}: all was kept, and {name} says {said[name]}")
        classes.update(_classes(one))
        classes.update(f"broken: {name}" for name in right if right[name])
        if any(map(reference.written_in_vain, one.case.messages)):
            classes["messages are confirmed in a minority"] += 1
    return Counted(len(seeds), time.process_time() - began_s, tuple(wrong), classes)


def _classes(one: Made) -> Iterator[str]:
    case = one.case
    yield f"mode: {case.mode}"
    yield f"queue: {case.kind}"
    yield f"nodes: {len(case.nodes)}"
    yield f"steps: {len(case.acts)}"
    yield f"planted: {one.plant or 'nothing'}"
    if any(a.injecting < b.healed and b.injecting < a.healed for a, b in itertools.combinations(case.acts, 2)):
        yield "steps overlap"
    if any(act.intermittent for act in case.acts):
        yield "a cut comes and goes"
    if any(act.cut and act.sudden for act in case.acts):
        yield "a cut closes connections"
    if any(act.slow for act in case.acts):
        yield "a link is slow"
    if any(act.starved for act in case.acts):
        yield "a node is starved"
    if any(m.lost for m in case.messages):
        yield "messages are lost"
    states = {state for states in case.looks.values() for state in states.values()}
    for state in states - {"up"}:
        yield f"a node is {state}"
    if any(known not in (frozenset(), frozenset(case.nodes)) for _, _, known in case.declared):
        yield "nodes differ on what was declared"


if __name__ == "__main__":
    sys.exit(main())
