"""Compare cuts by the library with those of the second model, on many drawn sequences.

python -m tests.preload.compared --cases 10000 --processes 2 [--first 100000] [--folder /dev/shm]

Cases from 100,000 on draw from more calls, those from 300,000 on also the model ``ext4``.
"""

from __future__ import annotations

import argparse
import sys
import tempfile
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path

from rabbitmq_resilience.sut.preload.library import BUILDS
from tests.preload.programs import built_for_tests
from tests.preload.sequences import compare

_CHUNK = 25
#: One case in this number has its cuts interrupted.
_INTERRUPTED_EACH = 10


def differences(first: int, *, above: Path, last: int) -> list[tuple[int, list[str]]]:
    """Return the cases of a chunk that differ."""
    built = built_for_tests(BUILDS)
    found = []
    with tempfile.TemporaryDirectory(dir=above) as folder:
        for case in range(first, min(first + _CHUNK, last)):
            try:
                wrong = compare(built, case, Path(folder), interrupted=case % _INTERRUPTED_EACH == 0)
            except AssertionError as error:
                wrong = [str(error)]
            if wrong:
                found.append((case, wrong))
    return found


def main(arguments: Sequence[str]) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--cases", type=int, default=10_000)
    parser.add_argument("--first", type=int, default=0)
    parser.add_argument("--processes", type=int, default=1)
    parser.add_argument("--folder", type=Path, help="on the file system to use (the system's temporary folder)")
    asked = parser.parse_args(arguments)
    began_s, failed = time.monotonic(), 0
    last = asked.first + asked.cases
    built_for_tests(BUILDS)
    with ProcessPoolExecutor(asked.processes) as pool:
        work = partial(differences, above=asked.folder, last=last)
        for found in pool.map(work, range(asked.first, last, _CHUNK)):
            for case, wrong in found:
                failed += 1
                print(f"case {case}:", *wrong, sep="\n  ", flush=True)
    print(f"{asked.cases} sequences in {time.monotonic() - began_s:.0f} s")
    print(f"{asked.cases - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
