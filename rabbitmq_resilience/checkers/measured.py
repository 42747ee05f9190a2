"""Read the brokers' own metrics in the form that checkers need: one curve for each node and queue."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import pyarrow.compute as pc

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.gaps import gaps, lasting_s
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.checkers.units import seconds
from rabbitmq_resilience.checkers.verdict import Coverage, History
from rabbitmq_resilience.history.metrics import ReadMetrics

#: A node that serves and was not scraped for longer than this may have done anything in that time.
UNSEEN_S_MAX = 15.0
#: A node that is back and serves is scraped every second.
BACK_UNSEEN_S_MAX = 5.0

Curves = Mapping[tuple[str, str], "Curve"]


@dataclass(frozen=True, eq=False)
class Curve:
    """The ``values`` at the moments ``t_us``, in the order of time."""

    t_us: npt.NDArray[np.int64]
    values: npt.NDArray[np.float64]

    def within(self, start_us: float, end_us: float) -> Curve:
        """Return the part of the curve in that time, both ends included."""
        rows = (self.t_us >= start_us) & (self.t_us <= end_us)
        return Curve(self.t_us[rows], self.values[rows])

    def at(self, t_us: npt.NDArray[np.int64], *, age_us_max: float = np.inf) -> npt.NDArray[np.float64]:
        """Return the latest value at or before each moment; NaN if there is none, or only one older than
        ``age_us_max``."""
        rows = np.searchsorted(self.t_us, t_us, side="right") - 1
        known = np.append(self.values, np.nan)[rows]
        since_us = np.append(self.t_us, 0)[rows]
        return np.where(t_us - since_us <= age_us_max, known, np.nan)

    def __len__(self) -> int:
        return len(self.t_us)


def curves(read: ReadMetrics, metric: str) -> Curves:
    """Return the curves of one metric, by (node, queue). ``queue`` is empty for values of the node itself. NaN values
    are left out."""
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
    """Return the curves of the nodes themselves, by node."""
    return {node: curve for (node, queue), curve in found.items() if not queue}


def measured_us(history: History, facts: Facts) -> tuple[int, int] | None:
    """Return the start of the steady phase and the end of the record; None without a steady phase."""
    return (facts.phases["steady"], history.events[-1].t_us) if "steady" in facts.phases else None


def unseen(facts: Facts, found: Mapping[str, Curve], span_us: tuple[float, float]) -> str:
    """Return a text that names a node without metrics for too long while it served, or ever since it came back for the
    last time. The text is empty if there is no such node."""
    for node in facts.cluster.nodes if facts.cluster else ():
        stretches = list(_serving(facts, node, span_us))
        silent = [gap for stretch in stretches for gap in _silent(found, node, stretch, UNSEEN_S_MAX)]
        for last in stretches[-1:]:
            silent += [gap for gap in _silent(found, node, last, BACK_UNSEEN_S_MAX) if gap == last]
        if silent:
            start_us, end_us = max(silent, key=lambda gap: gap[1] - gap[0])
            silent_s = seconds(end_us - start_us)
            return f"{node} served and reported no metrics for {silent_s:g} s from {facts.at(start_us)}"
    return ""


def seen(facts: Facts, found: Mapping[str, Curve], span_us: tuple[float, float]) -> Coverage:
    """Return the coverage of the least observed node: seconds in which it served, and seconds with metrics."""
    times_s = []
    for node in facts.cluster.nodes if facts.cluster else ():
        stretches = list(_serving(facts, node, span_us))
        silent_s = sum(lasting_s(_silent(found, node, stretch, UNSEEN_S_MAX)) for stretch in stretches)
        times_s.append((silent_s, lasting_s(stretches)))
    silent_s, served_s = max(times_s, default=(0.0, 0.0))
    return Coverage(round(served_s - silent_s, 3), served_s)


def _silent(found: Mapping[str, Curve], node: str, stretch: Period, longer_than_s: float) -> list[Period]:
    """Return the gaps between values of ``node`` in ``stretch`` that are longer than ``longer_than_s``."""
    looks = found[node].within(*stretch).t_us.tolist() if node in found else []
    return gaps(looks, stretch, longer_than_s=longer_than_s)


def _serving(facts: Facts, node: str, span_us: tuple[float, float]) -> Iterator[tuple[float, float]]:
    """Yield each stretch in which the node may have served, from its first sighting to its last. A sighting that does
    not list the node does not end a stretch."""
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
    """Return the numbers of a whole run that tables compare; a number that was not measured is left out.

    ``memory_ratio_max``: the highest part of its memory limit that a node used, while it had a limit.
    ``replicated_bytes``: what all nodes together received from each other. ``replicated_peak_bytes_per_s``: the most of
    it in one second.
    """
    found: dict[str, float | int] = {}
    ratios = [ratio.values[np.isfinite(ratio.values)] for ratio in memory_ratios(read).values()]
    if any(map(len, ratios)):
        found["memory_ratio_max"] = round(float(np.concatenate(ratios).max()), 4)
    received = of_nodes(curves(read, "replication_received")).values()
    if received:
        moments, places = np.unique(np.concatenate([curve.t_us for curve in received]), return_inverse=True)
        rates = np.bincount(places, np.concatenate([curve.values for curve in received]), len(moments))
        found["replicated_bytes"] = round(float(rates.sum()))  # each stands for one second
        found["replicated_peak_bytes_per_s"] = round(float(rates.max()))
    return found


def memory_ratios(read: ReadMetrics) -> dict[str, Curve]:
    """Return the used memory of each node as a part of its alarm limit; infinite if that limit is 0."""
    return _ratios(read, "memory_used", "memory_limit")


def free_ratios(read: ReadMetrics) -> dict[str, Curve]:
    """Return the free disk of each node as a multiple of its alarm limit; infinite if that limit is 0."""
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
    """Return for each moment whether it lies in none of the periods."""
    t_us = np.asarray(moments)
    kept = np.ones(len(t_us), dtype=np.bool_)
    for start, end in periods:
        kept &= (t_us < start) | (t_us > end)
    return kept
