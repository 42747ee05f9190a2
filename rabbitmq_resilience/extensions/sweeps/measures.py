"""The measures of a sweep's runs. A new measure is one line in ``MEASURES``."""

from __future__ import annotations

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from operator import attrgetter
from statistics import fmean

import numpy as np

from rabbitmq_resilience.checkers.columns import pieces
from rabbitmq_resilience.checkers.latency_bound import percentile_ms
from rabbitmq_resilience.checkers.machine_load import describe_others, looks
from rabbitmq_resilience.checkers.message_ledger import ledger_of
from rabbitmq_resilience.checkers.outages import OUTAGE_S_MIN, Outages, open_since_us, outages
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.checkers.waits import LAGGED_MAX
from rabbitmq_resilience.extensions.sweeps import of_brokers
from rabbitmq_resilience.extensions.sweeps.seen import JudgedRun
from rabbitmq_resilience.extensions.sweeps.statistics import Better, Scale
from rabbitmq_resilience.history.events import MachineEvent
from rabbitmq_resilience.history.history import Outcome
from rabbitmq_resilience.workload.perf_test_options import PERCENTILES, Window


@dataclass(frozen=True)
class Measure:
    """A number of a run. ``of`` computes it: None if it was not measured, infinity for what never came.

    ``paced``: whether the stated rate of a load determines it. Cells of different rates are not compared by it."""

    unit: str
    better: Better
    scale: Scale
    of: Callable[[JudgedRun], float | None]
    what: str
    paced: bool = False


def _confirmed(of: Callable[[JudgedRun], float | None], seen: JudgedRun) -> float | None:
    """Return ``of(seen)``; None if publishers did not await confirms, as the record then has what was only sent."""
    return of(seen) if seen.awaited else None


def _received_per_s(seen: JudgedRun) -> float | None:
    """Return the rate of received messages, each once for each queue, however often it was delivered.

    Messages that were due and never sent, as the publisher waited for brokers, do not count as received."""
    if seen.span_us is None or seen.span_us[1] <= seen.span_us[0]:
        return None
    first_us, last_us = seen.span_us
    received_us = seen.receipts.answered_us[~seen.receipts.omitted]
    return int(np.count_nonzero((received_us >= first_us) & (received_us < last_us))) / seconds(last_us - first_us)


def _outage_s(of: Callable[[Outages], float], together: bool, seen: JudgedRun) -> float | None:
    """Return the number ``of`` outages of the worst queue, or of all queues taken as one (``together``).

    An outage that lasts beyond the end of publishing ends with the queue's next confirm; it is infinite without one."""
    traffic = ledger_of(seen.history).traffic
    if traffic is None:
        return None
    flows = {None: traffic.all_queues()} if together else dict(traffic.flows)
    found = {queue: outages(traffic, flow) for queue, flow in flows.items()}
    last_us = traffic.span_us[1]
    open_us = {queue: start for queue, flow in flows.items() if (start := open_since_us(traffic, flow)) is not None}
    next_us = _next_confirm_us(seen.history, last_us) if open_us else {}
    for queue, start_us in open_us.items():
        until_us = min(next_us.values(), default=math.inf) if queue is None else next_us.get(queue, math.inf)
        ended = [period for period in found[queue].periods if period[1] < last_us]
        lasting = [(start_us, until_us)] if until_us - start_us >= OUTAGE_S_MIN * 1e6 else []
        found[queue] = Outages([*ended, *lasting], found[queue].span_s)
    return max(map(of, found.values()), default=0.0)


def _next_confirm_us(history: History, after_us: float) -> dict[int | None, float]:
    """Return {index of a queue: time of its first confirm from ``after_us`` on}."""
    found: dict[int | None, float] = {}
    for queue, outcome, outcome_us in pieces(history.publishes(), "queue", "outcome", "outcome_us"):
        later = (outcome == Outcome.CONFIRMED) & (outcome_us >= after_us)
        for index in np.unique(queue[later]).tolist():
            found[index] = min(found.get(index, math.inf), float(outcome_us[later & (queue == index)].min()))
    return found


def _waited_ms(percentile: float, of: str, since: str, seen: JudgedRun) -> float | None:
    if seen.span_us is None or (of == "confirm" and not seen.awaited):
        return None
    every = seen.confirms if of == "confirm" else seen.receipts
    waits = every.due_within(*seen.span_us) if since == "due" else every.sent_within(*seen.span_us)
    from_us = waits.due_us if since == "due" else waits.sent_us
    return percentile_ms(from_us, waits.answered_us, percentile) if len(waits) else None


def _of_night(field: str, seen: JudgedRun) -> float | None:
    return seen.played.number(field)


#: The numbers that a night keeps of each run.
OF_NIGHTS = (
    "outage_s",
    "outage_total_s",
    "stall_s",
    "recovered_s",
    "kept_ratio",
    "slowest_ratio",
    "confirmed_per_s",
)


def _busy(seen: JudgedRun) -> float | None:
    """Return the mean part of this machine's processors that was busy.

    A sample counts only with its time within the span, as clients connect just before the span."""
    if seen.span_us is None:
        return None
    facts = seen.history.facts
    samples = [
        (look.within_s([seen.span_us]), look.event.busy)
        for look in looks(facts.of_kind(MachineEvent), origin_us=facts.origin_us)
    ]
    long_s = sum(within_s for within_s, _ in samples)
    return sum(within_s * busy for within_s, busy in samples) / long_s if long_s else None


def _number(name: str, seen: JudgedRun) -> float | None:
    value: float | None = seen.document.get("numbers", {}).get(name)
    return value


def _round_trip_ms(of: str, seen: JudgedRun) -> float | None:
    """Return the p99 of the round trips of the whole run; infinity if more than 1 % got no answer."""
    network = (seen.document.get("consequences") or {}).get("network") or {}
    found = network.get("round_trips", {}).get(of)
    if found is None:
        return None
    value: float | None = found["p99_ms"]
    return math.inf if found["lost"] > 0.01 * (found["lost"] + found["answered"]) else value


def _of_perf_test(of: Callable[[Window], float | None], seen: JudgedRun) -> float | None:
    """Return the mean of the windows; infinity if some of them have no value, as nothing arrived during them."""
    values = [of(window) for window in seen.perf_test]
    known = [value for value in values if value is not None]
    return (fmean(known) if len(known) == len(values) else math.inf) if known else None


def _theirs(unit: str, better: Better, what: str, of: Callable[[Window], float | None]) -> Measure:
    return Measure(unit, better, "ratio", partial(_of_perf_test, of), f"PerfTest: {what}", paced=unit == "/s")


def _percentile_of(field: str, percentile: int, window: Window) -> float | None:
    value: float | None = getattr(window, field).get(percentile)
    return value


#: What PerfTest measures with the same load on the same cluster. Its times begin when a message is sent.
_PERF_TEST = {
    "perf_test_confirmed_per_s": _theirs("/s", "higher", "messages confirmed", lambda w: w.confirmed_per_s),
    "perf_test_received_per_s": _theirs("/s", "higher", "messages received", lambda w: w.received_per_s),
    **{
        f"perf_test_{of}_p{p}_ms": _theirs("ms", "lower", f"p{p} of {words}", partial(_percentile_of, f"{of}_ms", p))
        for of, words in (("confirm", "the time to a confirm"), ("end_to_end", "the time from end to end"))
        for p in PERCENTILES
    },
}

#: Times from when a message was due, and from when it was sent; the words are those of tables.
_WAITS = {
    f"{of}_{of_since}p{str(p).replace('.', '_')}_ms": Measure(
        "ms", "lower", "ratio", partial(_waited_ms, p, of, since), f"p{p:g} of the time {words}"
    )
    for of, since, of_since, words in (
        ("confirm", "due", "", "to a confirm"),
        ("end_to_end", "due", "", "from end to end"),
        ("confirm", "sent", "from_sent_", "from sending to a confirm"),
        ("end_to_end", "sent", "from_sent_", "from sending to receipt"),
    )
    for p in (50, 75, 95, 99, 99.9)
}

_OF_CONFIRMS: Sequence[tuple[str, str, Better, str]] = (
    ("stall_s", "s", "lower", "longest stall"),
    ("kept_ratio", "", "higher", "throughput kept"),
    ("slowest_ratio", "", "higher", "lowest throughput"),
)

MEASURES: Mapping[str, Measure] = {
    "confirmed_per_s": Measure(
        "/s",
        "higher",
        "ratio",
        partial(_confirmed, lambda seen: seen.confirmed_per_s),
        "messages confirmed",
        paced=True,
    ),
    "received_per_s": Measure("/s", "higher", "ratio", _received_per_s, "messages received", paced=True),
    **_WAITS,
    **{
        name: Measure("s", "lower", "difference", partial(_confirmed, partial(_outage_s, of, together)), words)
        for name, of, together, words in (
            ("outage_s", attrgetter("longest_s"), False, "longest outage of a queue"),
            ("outage_total_s", attrgetter("total_s"), True, "time without any confirm"),
        )
    },
    "recovered_s": Measure("s", "lower", "difference", partial(_of_night, "recovered_s"), "time to recover"),
    **{
        name: Measure(unit, better, "difference", partial(_confirmed, partial(_of_night, name)), words)
        for name, unit, better, words in _OF_CONFIRMS
    },
    **{
        f"{of}_round_trip_p99_ms": Measure(
            "ms", "lower", "ratio", partial(_round_trip_ms, of), f"p99 of the raw round trips {words}"
        )
        for of, words in (("clients", "from clients to brokers"), ("brokers", "between brokers"))
    },
    "depth_max": Measure("", "lower", "difference", of_brokers.depth_max, "most messages that queues held"),
    "cpu_busy": Measure("", "lower", "ratio", _busy, "part of this machine's processors that was busy"),
    "memory_ratio": Measure(
        "", "lower", "ratio", partial(_number, "memory_ratio_max"), "highest part of a node's memory limit"
    ),
    "memory_mb": Measure("MB", "lower", "ratio", of_brokers.memory_mb, "memory of all brokers"),
    "connection_kb": Measure("kB", "lower", "ratio", of_brokers.connection_kb, "memory of an idle connection"),
    "brokers_cores": Measure("CPU-s/s", "lower", "ratio", of_brokers.brokers_cores, "processors that brokers used"),
    "messages_per_core_s": Measure(
        "/CPU-s", "higher", "ratio", of_brokers.messages_per_core_s, "messages for a CPU-second of the brokers"
    ),
    **{
        f"{what}_per_s": Measure(
            "/s", "higher", "ratio", partial(of_brokers.set_up_per_s, what), f"{what} declared before the load"
        )
        for what in ("queues", "bindings")
    },
    "parted_nodes": Measure("", "lower", "difference", of_brokers.parted_nodes, "nodes that saw a partition"),
    "cleaned_up_s": Measure(
        "s", "lower", "difference", of_brokers.cleaned_up_s, "time until no broker lists a lost node's queues"
    ),
    **_PERF_TEST,
}


def ours(name: str) -> str:
    """Return our own measure that corresponds to one of PerfTest's; for any other measure, ``name`` itself."""
    return name.removeprefix("perf_test_")


def needs_perf_test(names: Collection[str]) -> bool:
    """Return whether one of the measures is PerfTest's."""
    return not _PERF_TEST.keys().isdisjoint(names)


def measured(seen: JudgedRun, names: tuple[str, ...]) -> dict[str, float | None]:
    """Return {measure: number}; infinity for what never came, None if it was not measured."""
    values = {name: MEASURES[name].of(seen) for name in names}
    return {name: None if value is None or math.isnan(value) else round(value, 4) for name, value in values.items()}


def disturbed_by(seen: JudgedRun) -> str:
    """Return what other programs took of this machine during the span if that was too much; else an empty text."""
    return "" if seen.span_us is None else describe_others(seen.history.facts, *seen.span_us)


def shortfall(seen: JudgedRun) -> str:
    """Return why this machine did not hold the load, so that the numbers are not the brokers'; empty if it did."""
    if seen.span_us is None:
        return "the run lacks the phase that is measured"
    lagged = seen.confirms.due_within(*seen.span_us).lagged_ratio
    if lagged > LAGGED_MAX:
        return f"this machine sent {lagged:.1%} of the messages late"
    return ""
