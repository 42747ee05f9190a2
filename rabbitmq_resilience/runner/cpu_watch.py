"""Record how busy this machine is during a scenario, and which programs use it: they may be why a bound was missed."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from operator import itemgetter
from pathlib import Path
from typing import Any

import psutil

from rabbitmq_resilience.checkers.machine_load import OTHERS_CPU_MIN, looks, names_of_others, part
from rabbitmq_resilience.history.events import Event, MachineEvent

EVERY_S = 5.0

#: The name for the host that this virtual machine runs on.
HYPERVISOR = "the hypervisor"
_NAMED_MAX, _NAMED_MIN = 3, 0.01


@dataclass(frozen=True)
class Spent:
    """CPU seconds up to now.

    - ``whole_s``: of all processors. ``used_s``: the used ones. ``stolen_s``: the ones that the hypervisor gave to
      other machines.
    - ``ours_s``: {pid: seconds} of the processes of this harness. ``ended_s``: of ended processes, for which one of
      these has waited.
    - ``theirs_s``: {pid: (name, seconds)} of all other processes.
    """

    whole_s: float
    used_s: float
    ours_s: Mapping[int, float]
    ended_s: float = 0.0
    theirs_s: Mapping[int, tuple[str, float]] = field(default_factory=dict)
    stolen_s: float = 0.0

    @classmethod
    def by_now(cls) -> Spent:
        times = psutil.cpu_times(percpu=True)
        whole_s = len(times) * time.monotonic()
        # Linux measures the idle time of a processor, and samples its other times at its ticks. Work with a rhythm may
        # meet all ticks or none.
        idle_s = sum(each.idle + getattr(each, "iowait", 0.0) for each in times)
        ours = dict(_ours())
        return cls(
            whole_s,
            whole_s - idle_s,
            {pid: spent.user + spent.system for pid, spent in ours.items()},
            sum(spent.children_user + spent.children_system for spent in ours.values()),
            {pid: known for pid, known in _all() if pid not in ours},
            sum(getattr(each, "steal", 0.0) for each in times),
        )

    def shares(self, before: Spent) -> tuple[float, float]:
        """Return the busy share of all processors since ``before``, and the share that was not ours."""
        whole_s = max(self.whole_s - before.whole_s, 1e-9)
        used_s = self.used_s - before.used_s
        living_s = sum(spent_s - before.ours_s.get(pid, 0.0) for pid, spent_s in self.ours_s.items())
        # A process that ended since is in the other number, if one of ours has waited for it.
        all_s = sum(self.ours_s.values()) + self.ended_s - sum(before.ours_s.values()) - before.ended_s
        mine_s = max(living_s, all_s)
        return _clamped(used_s / whole_s), _clamped((used_s - mine_s) / whole_s)

    def others(self, before: Spent) -> dict[str, float]:
        """Return {name: share of all processors} of the other programs that used most since ``before``."""
        used_s = defaultdict(float, {HYPERVISOR: self.stolen_s - before.stolen_s})
        for pid, (name, spent_s) in self.theirs_s.items():
            used_s[name] += max(0.0, spent_s - before.theirs_s.get(pid, (name, 0.0))[1])
        whole_s = max(self.whole_s - before.whole_s, 1e-9)
        most = sorted(used_s.items(), key=itemgetter(1), reverse=True)[:_NAMED_MAX]
        shares = {name: _clamped(spent_s / whole_s) for name, spent_s in most}
        return {name: share for name, share in shares.items() if share >= _NAMED_MIN}


def _all() -> Iterator[tuple[int, tuple[str, float]]]:
    """Yield (pid, (name, CPU seconds)) of each process that this user may look at."""
    for process in psutil.process_iter(["name", "cpu_times"]):
        if times := process.info["cpu_times"]:
            yield process.pid, (process.info["name"], times.user + times.system)


def _ours() -> Iterator[tuple[int, Any]]:
    """Yield (pid, CPU times) of this process and all its descendants: brokers, clients, proxies."""
    this = psutil.Process()
    for process in [this, *this.children(recursive=True)]:
        with suppress(psutil.Error):
            yield process.pid, process.cpu_times()


def _clamped(share: float) -> float:
    return round(min(1.0, max(0.0, share)), 3)


@dataclass(frozen=True)
class Waited:
    """How long each thread of each broker was ready to run and had no processor so far: {broker: {thread: seconds}}.

    Only Linux reports it: the second number of ``schedstat``, in nanoseconds (see its Documentation/scheduler).
    """

    of_s: Mapping[str, Mapping[int, float]]

    @classmethod
    def by_now(cls, pids: Mapping[str, int]) -> Waited:
        return cls({name: dict(_threads_waited_s(pid)) for name, pid in pids.items()})

    def longest_s(self, before: Waited) -> dict[str, float]:
        """Return {broker: the longest wait of one of its threads since ``before``}, in s, for brokers with numbers."""
        return {
            name: round(max(s - before.of_s.get(name, {}).get(thread, 0.0) for thread, s in threads.items()), 3)
            for name, threads in self.of_s.items()
            if threads
        }


def _threads_waited_s(pid: int) -> Iterator[tuple[int, float]]:
    with suppress(OSError):
        for thread in Path(f"/proc/{pid}/task").iterdir():
            with suppress(OSError, IndexError):  # the thread ends meanwhile, or the kernel has no number
                yield int(thread.name), int((thread / "schedstat").read_text().split()[1]) / 1e9


@contextmanager
def cpu_watched(
    record: Callable[..., object],
    brokers: Callable[[], Mapping[str, int]],
    stored: Callable[[], Mapping[str, int]] = dict,
    *,
    every_s: float = EVERY_S,
) -> Iterator[None]:
    """Record one event ``machine`` each ``every_s``, and one when the block ends.

    ``brokers`` returns {broker: its pid}, and ``stored`` {broker: the bytes of its files}.
    """
    ended = threading.Event()

    def watch() -> None:
        before, waited_before, looked_s = Spent.by_now(), Waited.by_now(brokers()), time.monotonic()
        is_over = False
        while not is_over:
            is_over = ended.wait(every_s)
            now, waited, now_s = Spent.by_now(), Waited.by_now(brokers()), time.monotonic()
            busy, others = now.shares(before)
            by, waited_s = now.others(before), waited.longest_s(waited_before)
            over_s = round(now_s - looked_s, 3)
            stored_bytes = stored()
            record(
                "machine",
                busy=busy,
                others=others,
                over_s=over_s,
                by=by,
                waited_s=waited_s,
                stored_bytes=stored_bytes,
            )
            before, waited_before, looked_s = now, waited, now_s

    thread = threading.Thread(target=watch, name="watch-machine", daemon=True)
    thread.start()
    try:
        yield
    finally:
        ended.set()
        thread.join()


@dataclass(frozen=True)
class Others:
    """The share of this machine's processors that other programs took during a run: the mean, the most, and the names
    of the programs that took most."""

    mean: float
    most: float
    by: list[str] = field(default_factory=list)

    @classmethod
    def during(cls, events: Iterable[Event]) -> Others | None:
        """Return the share from the events ``machine``; None if there are none."""
        seen = [event for event in events if isinstance(event, MachineEvent)]
        if not seen:
            return None
        found = list(looks(seen, origin_us=seen[0].t_us - EVERY_S * 1e6))
        mean = sum(look.others_s for look in found) / max(sum(look.long_s for look in found), 1e-9)
        return cls(round(mean, 3), max(part(event.others) for event in seen), names_of_others(found))

    @property
    def is_notable(self) -> bool:
        return self.mean >= OTHERS_CPU_MIN

    def __str__(self) -> str:
        named = f" (most of it {' and '.join(self.by)})" if self.by else ""
        share = f"other programs took {self.mean:.0%} of this machine's processors meanwhile, at most {self.most:.0%}"
        return f"{share}{named}"
