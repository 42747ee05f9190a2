"""What set-up is made of: steps that are either there already or made now."""

from __future__ import annotations

import fcntl
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.tools.locations import CHECKOUT, TOOLS

#: Set-up tells of places below it as a reader there would write them.
ROOT = CHECKOUT or Path.cwd()


class Missing(Exception):
    """Something cannot be had. The text says what, what was tried, and how to provide it."""


@dataclass(frozen=True)
class Step:
    """``found`` says where the thing is, or None; ``make`` provides it and says where it is now. Where an ``optional``
    one cannot be had, set-up says so and goes on."""

    title: str
    found: Callable[[], str | None]
    make: Callable[[], str]
    optional: bool = False


def take(steps: Sequence[Step]) -> None:
    """Walk through ``steps``, making what is not there. Raises ``Missing`` at the first that cannot be had, unless it
    is optional."""
    with _alone():
        _take(steps)


@contextmanager
def _alone() -> Iterator[None]:
    """One set-up of a checkout at a time; another waits here until the first is done."""
    TOOLS.mkdir(parents=True, exist_ok=True)
    with (TOOLS / "lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("Another set-up of this checkout is under way; waiting for its end.", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def _take(steps: Sequence[Step]) -> None:
    for number, step in enumerate(steps, start=1):
        heading = f"[{number}/{len(steps)}] {step.title}:"
        found = step.found()
        if found is not None:
            print(heading, found, flush=True)
            continue
        print(heading, "not there yet", flush=True)
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
    """``path`` as a reader of the checkout would write it."""
    return str(path.relative_to(ROOT)) if path.is_relative_to(ROOT) else str(path)
