"""The brokers' own numbers in the form that checkers ask for: one curve for each node and queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from rabbitmq_resilience.invariants.facts import Facts
from rabbitmq_resilience.invariants.gaps import gaps, lasting_s
from rabbitmq_resilience.invariants.times import Period
from rabbitmq_resilience.invariants.units import seconds
from rabbitmq_resilience.invariants.verdict import Coverage, History
from rabbitmq_resilience.record.metrics import ReadMetrics

#: A node that serves and was not scraped for longer than this may have done anything meanwhile.
UNSEEN_S_MAX = 15.0
#: One that is back and serves is scraped every second.
BACK_UNSEEN_S_MAX = 5.0

Curves = Mapping[tuple[str, str], "Curve"]


@dataclass(frozen=True, eq=False)
class Curve:
    """``values`` at the moments ``t_us``, in order."""

    t_us: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]

    def within(self, start_us: float, end_us: float) -> Curve:
        rows = (self.t_us >= start_us) & (self.t_us <= end_us)
        return Curve(self.t_us[rows], self.values[rows])

    def at(self, t_us: npt.NDArray[np.int64], *, age_us_max: float = np.inf) -> npt.NDArray[np.float64]:
        """Return the latest value at or before each moment; NaN where there is none, or only one older than that."""
        rows = np.searchsorted(self.t_us, t_us, side="right") - 1
        known = np.append(self.values, np.nan)[rows]
        since_us = np.append(self.t_us, 0)[rows]
        return np.where(t_us - since_us <= age_us_max, known, np.nan)

    def __len__(self) -> int:
        return len(self.t_us)


def curves(read: ReadMetrics, metric: str) -> Curves:
    """{(node, queue): its curve} of one metric; ``queue`` is empty for what a node says of itself. A value that is no
    number says nothing."""
    table = read(metric)
    known = pc.and_(pc.equal(table["metric"], metric), pc.invert(pc.is_nan(table["value"])))
    rows = table.filter(known).sort_by([("node", "ascending"), ("queue", "ascending")])
    found: dict[tuple[str, str], Curve] = {}
    start = 0
    counted = rows.group_by(["node", "queue"], use_threads=False).aggregate([("t_us", "count")])
    for one in counted.to_pylist():
        part = rows.slice(start, one["t_us_count"])
        start += one["t_us_count"]
        t_us = part["t_us"].to_numpy()
        order = np.argsort(t_us, kind="stable")
        found[one["node"], one["queue"]] = Curve(t_us[order], part["value"].to_numpy()[order])
    return found


def of_nodes(found: Curves) -> dict[str, Curve]:
    """The curves of what nodes say of themselves, by node."""
    return {node: curve for (node, queue), curve in found.items() if not queue}


def measured_us(history: History, facts: Facts) -> tuple[int, int] | None:
    """From the steady phase to the end of the record; None without one of them."""
    return (facts.phases["steady"], history.events[-1].t_us) if "steady" in facts.phases else None


def unseen(facts: Facts, found: Mapping[str, Curve], span_us: tuple[float, float]) -> str:
    """Which node served, and said nothing for too long, or nothing at all since it came back for the last time; empty
    if none did."""
    for node in facts.cluster.nodes if facts.cluster else ():
        stretches = list(_serving(facts, node, span_us))
        silent = [gap for stretch in stretches for gap in _silent(found, node, stretch, UNSEEN_S_MAX)]
        for last in stretches[-1:]:
            silent += [gap for gap in _silent(found, node, last, BACK_UNSEEN_S_MAX) if gap == last]
        if silent:
            start_us, end_us = max(silent, key=lambda gap: gap[1] - gap[0])
            return f"{node} served and said nothing for {seconds(end_us - start_us):g} s from {facts.at(start_us)}"
    return ""


def seen(facts: Facts, found: Mapping[str, Curve], span_us: tuple[float, float]) -> Coverage:
    """Of the node of which the least was seen: for how long it served, and how much of that it told of itself."""
    told = []
    for node in facts.cluster.nodes if facts.cluster else ():
        stretches = list(_serving(facts, node, span_us))
        silent_s = sum(lasting_s(_silent(found, node, stretch, UNSEEN_S_MAX)) for stretch in stretches)
        told.append((silent_s, lasting_s(stretches)))
    silent_s, served_s = max(told, default=(0.0, 0.0))
    return Coverage(round(served_s - silent_s, 3), served_s)


def _silent(found: Mapping[str, Curve], node: str, stretch: Period, longer_than_s: float) -> list[Period]:
    looks = found[node].within(*stretch).t_us.tolist() if node in found else []
    return gaps(looks, stretch, longer_than_s=longer_than_s)


def _serving(facts: Facts, node: str, span_us: tuple[float, float]) -> Iterator[tuple[float, float]]:
    """Yield each stretch in which the node may have served, from its first look to its last; where a look does not list
    it, it may."""
    begin: int | None = None
    last = 0
    for t_us, states in facts.node_states:
        if states.get(node, "up") == "up" and span_us[0] <= t_us <= span_us[1]:
            begin, last = (t_us if begin is None else begin), t_us
        elif begin is not None:
            yield begin, last
            begin = None
    if begin is not None:
        yield begin, last


def measures(read: ReadMetrics) -> dict[str, float | int]:
    """The numbers of a whole run that tables compare; none that was not measured.

    ``memory_ratio_max``: the most of its limit that a node used, while it had one. ``replicated_bytes``: what the nodes
    received from each other, and ``replicated_peak_bytes_per_s`` the most of it in a second, of all nodes together.
    """
    told: dict[str, float | int] = {}
    ratios = [ratio.values[np.isfinite(ratio.values)] for ratio in memory_ratios(read).values()]
    if any(map(len, ratios)):
        told["memory_ratio_max"] = round(float(np.concatenate(ratios).max()), 4)
    received = of_nodes(curves(read, "replication_received")).values()
    if received:
        moments, places = np.unique(np.concatenate([curve.t_us for curve in received]), return_inverse=True)
        rates = np.bincount(places, np.concatenate([curve.values for curve in received]), len(moments))
        told["replicated_bytes"] = round(float(rates.sum()))  # each stands for one second
        told["replicated_peak_bytes_per_s"] = round(float(rates.max()))
    return told


def memory_ratios(read: ReadMetrics) -> dict[str, Curve]:
    """The memory that each node used, as a part of the limit at which it raises its alarm: infinite where that is 0."""
    return _ratios(read, "memory_used", "memory_limit")


def free_ratios(read: ReadMetrics) -> dict[str, Curve]:
    """The free disk of each node as so many times the limit at which it raises its alarm: infinite where that is 0."""
    return _ratios(read, "disk_free", "disk_limit")


def _ratios(read: ReadMetrics, metric: str, limit_metric: str) -> dict[str, Curve]:
    limits = of_nodes(curves(read, limit_metric))
    ratios = {}
    for node, found in of_nodes(curves(read, metric)).items():
        if node in limits:
            limit = limits[node].at(found.t_us)
            known = ~np.isnan(limit)
            ratio = np.full(len(limit), np.inf)
            np.divide(found.values, limit, out=ratio, where=limit > 0)
            ratios[node] = Curve(found.t_us[known], ratio[known])
    return ratios


def outside(moments: Collection[int], periods: Collection[tuple[float, float]]) -> npt.NDArray[np.bool_]:
    """Which of the moments lie in none of the periods."""
    t_us = np.asarray(moments)
    kept = np.ones(len(t_us), dtype=np.bool_)
    for start, end in periods:
        kept &= (t_us < start) | (t_us > end)
    return kept
