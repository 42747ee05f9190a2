"""Run in the containers of a Job: ``play`` runs pytest, ``keep`` waits until the records are fetched, ``pack`` packs
them."""

from __future__ import annotations

import json
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from rabbitmq_resilience.extensions.jobs import folder_archive
from rabbitmq_resilience.extensions.jobs.paths import (
    BEGUN,
    ENDED,
    FETCHED,
    FETCHED_AT_LAST_WITHIN_S,
    FETCHED_WITHIN_S,
    PARCEL,
    RESULTS,
)
from rabbitmq_resilience.extensions.nights.called import run_pytest
from rabbitmq_resilience.history.whole_files import write_whole
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_LOOK_EVERY_S = 1.0
_FOREVER_S = 10.0 * 365 * 24 * 3600


def play(arguments: Sequence[str]) -> int:
    """Run pytest, write its exit status to ``ENDED``, and return it.

    ``arguments``: the limit in seconds, then the arguments of pytest."""
    limit_s, *for_pytest = arguments
    results = Path(RESULTS)
    results.mkdir(parents=True, exist_ok=True)
    Path(BEGUN).touch()
    status = run_pytest([sys.executable, "-m", "pytest", *for_pytest], limit_s=float(limit_s))
    write_whole(results / ENDED, json.dumps({"status": status}) + "\n")
    return status


def keep(_: Sequence[str]) -> int:
    """Wait until the records are fetched, and return the exit status.

    Once pytest has ended, wait for a limited time only, as the caller may be gone. This container does not see that
    pytest was killed: then the time limit of the Job ends it. If the pod is being ended, wait until pytest has healed
    and for a short time after that."""
    asked = [False]

    def ask(*_: object) -> None:
        asked[0] = True

    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, ask)
    Path(RESULTS).mkdir(parents=True, exist_ok=True)

    def over() -> bool:
        ended, waits_s = Path(RESULTS, ENDED), FETCHED_AT_LAST_WITHIN_S if asked[0] else FETCHED_WITHIN_S
        late = ended.exists() and time.time() - ended.stat().st_mtime > waits_s
        return late or Path(FETCHED).exists() or (asked[0] and not Path(BEGUN).exists())

    try:
        wait_until(over, timeout_s=_FOREVER_S, what="the records to be fetched", poll_s=_LOOK_EVERY_S)
    except WaitTimeout:
        return 1
    return 0


def pack(_: Sequence[str]) -> int:
    """Pack the records, and print the label against which the fetched archive is checked."""
    print(folder_archive.pack(Path(RESULTS), Path(PARCEL)).text)
    return 0


COMMANDS: Mapping[str, Callable[[Sequence[str]], int]] = {"play": play, "keep": keep, "pack": pack}


def main(arguments: Sequence[str]) -> int:
    """Run the command that the first argument names; return its exit status."""
    name, *rest = arguments
    return COMMANDS[name](rest)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
