"""Build the data for the page's script: panels above one another on one time axis.

A panel of kind ``curves`` has ``unit``, ``at_s`` and ``curves``; one of kind ``lanes`` has ``lanes`` of intervals, and
``states`` for its legend. Colours are names of the style sheet's variables.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict
from typing import Any

from rabbitmq_resilience.history.round_trips import KINDS
from rabbitmq_resilience.report.application_lanes import STATES
from rabbitmq_resilience.report.series import Series
from rabbitmq_resilience.report.timeline import FaultWindow, SwimLane

Panel = dict[str, Any]

COLOURS = ("c1", "c2", "c3", "c4", "c5", "c6", "c7")
#: Curves that bound others are thin.
THIN = ("max", "target", "wanted", "watermark", *(f"{kind}, most" for kind in KINDS))
#: With more faults than this, similar faults share a lane.
FAULT_LANES_MAX = 12
#: The colours of the median and the maximum of each kind of way.
TRIP_COLOURS = {
    f"{kind}{most}": colour for kind, colour in zip(KINDS, COLOURS, strict=False) for most in ("", ", most")
}
LATENCY_COLOURS = {"p50": "c2", "p95": "c1", "p99": "c3", "max": "c4"}


def charts(series: Series) -> dict[str, Any]:
    """Return all data that the script needs; panels without data are left out."""
    line, brokers = series.timeline, series.brokers
    trips = line.round_trips
    left = f"{series.idle_lost:,} were lost" if series.idle_lost else ""
    lost = f"logarithmic, {line.round_trips_lost:,} not answered" if line.round_trips_lost else ""
    memory = brokers.memory if brokers.memory.at_s else line.memory
    panels = [
        _schedule(series),
        _lanes("Alerts of your rules", series.alerts, ("pending", "firing")),
        _lanes("Nodes", line.nodes, ("up", "paused", "suspended", "down")),
        _lanes("The application's processes", series.processes, STATES),
        _lanes("Links", line.links, ("cut", "slow")),
        _lanes("Publishers", line.blocked, ("blocked",)),
        _lanes("Alarms", brokers.alarms, ("alarm",)),
        _curves("Held back by brokers", line.held_back.at_s, line.held_back.curves, "count"),
        _rates(series),
        _curves("Confirm latency", series.at_s, series.confirm_ms, "ms", colours=LATENCY_COLOURS, log=True),
        _curves("Delivery latency", series.at_s, series.delivery_ms, "ms", colours=LATENCY_COLOURS, log=True),
        _curves("Raw round trips", trips.at_s, trips.curves, "ms", colours=TRIP_COLOURS, log=True, note=lost),
        _curves("Idle connections", series.at_s, series.idle, "connections", note=left),
        _curves("Opened and closed again", series.at_s, series.churn, "1/s"),
        _curves("Queue depth", line.depth.at_s, line.depth.curves, "messages"),
        _curves("Memory of each node", memory.at_s, memory.curves, "bytes", note=brokers.memory_note),
        _curves("Replicated to each node", brokers.received.at_s, brokers.received.curves, "bytes/s"),
    ]
    shown = [panel for panel in panels if panel]
    if shown:
        shown[-1]["last"] = True
    return {
        "duration_s": series.duration_s,
        "phases": [asdict(phase) for phase in line.phases],
        "faults": [
            {"fault": fault.fault, "start_s": fault.start_s, "end_s": fault.end_s}
            for fault in line.faults
            if not fault.skipped
        ],
        "panels": shown,
    }


def _schedule(series: Series) -> Panel | None:
    phases = [asdict(phase) | {"text": phase.state, "state": "phase"} for phase in series.timeline.phases]
    lanes = [{"name": "phase", "intervals": phases}] if phases else []
    lanes += _fault_lanes(series.timeline.faults)
    if not lanes:
        return None
    return {"kind": "lanes", "title": "Phases and faults", "states": [], "lanes": lanes}


def _fault_lanes(faults: Sequence[FaultWindow]) -> list[dict[str, Any]]:
    """Return a lane for each fault. Many faults share lanes by kind and target, or, if still too many, by kind."""
    if len(faults) <= FAULT_LANES_MAX:
        return [{"name": f"{fault.step} {fault.fault}", "intervals": [_fault_bar(fault)]} for fault in faults]
    together: dict[str, list[FaultWindow]] = {}
    for fault in faults:
        together.setdefault(f"{fault.fault} {fault.detail}".strip(), []).append(fault)
    if len(together) > FAULT_LANES_MAX:
        together = {}
        for fault in faults:
            together.setdefault(fault.fault, []).append(fault)
    return [
        {"name": name, "intervals": [_fault_bar(fault, shared=True) for fault in alike]}
        for name, alike in together.items()
    ]


def _fault_bar(fault: FaultWindow, *, shared: bool = False) -> dict[str, Any]:
    """Return the bar of a fault. In a ``shared`` lane its text has only doubts, as there is little room."""
    doubts = [
        word
        for word, holds in (
            ("skipped", fault.skipped),
            ("not proven", not fault.skipped and fault.proven is not True),
            ("never healed", not fault.skipped and not fault.healed),
        )
        if holds
    ]
    return {
        "start_s": fault.start_s,
        "end_s": fault.end_s,
        "state": "fault",
        "text": " · ".join([*([] if shared else [fault.detail or fault.fault]), *doubts]),
        "doubtful": bool(doubts),
    }


def _rates(series: Series) -> Panel | None:
    always = ("sent", "confirmed", "received")
    curves: dict[str, Sequence[float | None]] = {
        name: values for name, values in series.rates.items() if name in always or any(values)
    }
    if not any(map(any, curves.values())):
        return None
    if any(value is not None for value in series.target_per_s):
        curves["target"] = series.target_per_s
    note = f"messages/s, each point {series.bucket_s} s"
    return _curves("Rates", series.at_s, curves, "messages/s", colours={"target": "soft"}, note=note)


def _curves(
    title: str,
    at_s: Sequence[float],
    curves: Mapping[str, Sequence[float | None]],
    unit: str,
    *,
    colours: Mapping[str, str] | None = None,
    log: bool = False,
    note: str = "",
) -> Panel | None:
    if all(value is None for values in curves.values() for value in values):
        return None
    return {
        "kind": "curves",
        "title": title,
        "note": note or ("logarithmic" if log else ""),
        "unit": unit,
        "log": log,
        "at_s": at_s,
        "curves": [
            {"name": name, "values": values, "thin": name in THIN, "colour": (colours or {}).get(name, colour)}
            for (name, values), colour in zip(curves.items(), COLOURS * len(curves), strict=False)
        ],
    }


def _lanes(title: str, lanes: Iterable[SwimLane], states: Sequence[str]) -> Panel | None:
    shown = [asdict(lane) for lane in lanes]
    if not shown:
        return None
    seen = {interval["state"] for lane in shown for interval in lane["intervals"]}
    return {
        "kind": "lanes",
        "title": title,
        "in_tip": True,
        "states": [state for state in states if state in seen],
        "lanes": shown,
    }
