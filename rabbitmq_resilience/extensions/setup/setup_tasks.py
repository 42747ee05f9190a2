"""Run the steps of set-up: each finds something, or makes it if it is missing."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.tools.locations import CHECKOUT, TOOLS

#: Set-up shows paths below this folder relative to it.
ROOT = CHECKOUT or Path.cwd()


class Missing(Exception):
    """Something could not be provided. The text says what, what was tried, and how to provide it."""


@dataclass(frozen=True)
class SetupTask:
    """A task of set-up.

    ``found``: return where the thing is, or None if it is missing. ``make``: provide it, and return where it is.
    ``optional``: set-up goes on, with a message, if the thing cannot be provided."""

    title: str
    found: Callable[[], str | None]
    make: Callable[[], str]
    optional: bool = False


def take(steps: Sequence[SetupTask]) -> None:
    """Run ``steps`` in order, and make what is missing.

    Raise ``Missing`` at the first thing that cannot be provided, unless it is optional."""
    with _alone():
        _take(steps)


@contextmanager
def _alone() -> Iterator[None]:
    """Let only one set-up of a checkout run at a time; a second one waits here until the first is done."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up of this checkout is running; waiting for its end.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _take(steps: Sequence[SetupTask]) -> None:
    for number, step in enumerate(steps, start=1):
        heading = f"[{number}/{len(steps)}] {step.title}:"
        found = step.found()
        if found is not None:
            print(heading, found, flush=True)
            continue
        print(heading, "missing, will be provided", flush=True)
        start_s = time.monotonic()
        try:
            made = step.make()
        except Missing as error:
            if not step.optional:
                raise
            print(f"{heading} left out. {error}", flush=True)
            continue
        print(f"{heading} {made}, in {time.monotonic() - start_s:.0f} s", flush=True)


def within_root(path: Path) -> str:
    """Return ``path`` relative to ``ROOT`` if it is below it, else in full."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
