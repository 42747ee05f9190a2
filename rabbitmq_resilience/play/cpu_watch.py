"""How busy this machine is while a scenario is played on it, and by whom: times that a bound misses may be others'."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass

import psutil

from rabbitmq_resilience.invariants.facts import OTHERS_CPU_MIN
from rabbitmq_resilience.record.events import Event, MachineEvent

EVERY_S = 5.0


@dataclass(frozen=True)
class Spent:
    """CPU seconds so far: those that there were, those that somebody used, and those of each process of ours."""

    whole_s: float
    used_s: float
    ours_s: Mapping[int, float]

    @classmethod
    def by_now(cls) -> Spent:
        times = psutil.cpu_times()
        whole_s = sum(times) - getattr(times, "guest", 0.0) - getattr(times, "guest_nice", 0.0)  # part of user's
        return cls(whole_s, whole_s - times.idle - getattr(times, "iowait", 0.0), dict(_ours_s()))

    def shares(self, before: Spent) -> tuple[float, float]:
        """The busy part of all processors since ``before``, and the part that was not ours."""
        whole_s = max(self.whole_s - before.whole_s, 1e-9)
        used_s = self.used_s - before.used_s
        mine_s = sum(spent_s - before.ours_s.get(pid, 0.0) for pid, spent_s in self.ours_s.items())
        return _part(used_s / whole_s), _part((used_s - mine_s) / whole_s)


def _ours_s() -> Iterator[tuple[int, float]]:
    """Of this process and of all that descend from it: brokers, clients, proxies."""
    this = psutil.Process()
    for process in [this, *this.children(recursive=True)]:
        with suppress(psutil.Error):
            times = process.cpu_times()
            yield process.pid, times.user + times.system


def _part(share: float) -> float:
    return round(min(1.0, max(0.0, share)), 3)


@contextmanager
def cpu_watched(record: Callable[..., object], *, every_s: float = EVERY_S) -> Iterator[None]:
    """Records one event ``machine`` each ``every_s`` until the block ends."""
    ended = threading.Event()

    def watch() -> None:
        before = Spent.by_now()
        while not ended.wait(every_s):
            now = Spent.by_now()
            busy, others = now.shares(before)
            record("machine", busy=busy, others=others)
            before = now

    thread = threading.Thread(target=watch, name="watch-machine", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class Others:
    """The part of this machine's processors that other programs took during a run: on average, and at most."""

    mean: float
    most: float

    @classmethod
    def during(cls, events: Iterable[Event]) -> Others | None:
        """None if nobody looked."""
        parts = [event.others for event in events if isinstance(event, MachineEvent)]
        return cls(round(sum(parts) / len(parts), 3), max(parts)) if parts else None

    @property
    def is_worth_telling(self) -> bool:
        return self.mean >= OTHERS_CPU_MIN

    def __str__(self) -> str:
        return f"other programs took {self.mean:.0%} of this machine's processors meanwhile, at most {self.most:.0%}"
