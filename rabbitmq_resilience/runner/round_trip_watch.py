"""Prove the network of a topology before the load, and measure its round trips during the run."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.fault import left_over
from rabbitmq_resilience.sut.protocol import Cluster
from rabbitmq_resilience.sut.round_trip_probes import RoundTrips

MEASURED_EVERY_S = 0.5
RECORDED_EVERY_S = 5.0
#: How often each link is measured before the load.
BEFORE = 20
#: Toxiproxy waits for whole milliseconds, and its timers may be early by a part of one.
EARLY_MS = 0.5
#: The time that a busy machine may add to the fastest of several answers of a broker.
LATE_MS = 25.0
PROVEN_WITHIN_S = 30.0
_PROBES = 8
_PROBES_AT_ONCE = 8
_PROBE_TIMEOUT_S = 30.0


def prove_network(cluster: Cluster) -> None:
    """Raise ClusterError if a link is not as slow as the topology says.

    No probe over the link may be faster, and the fastest one may not be much slower.
    """
    delay_of = cluster.topology.delay_of
    left = {link for link in cluster.links.proxied if delay_of(link) is not None and link.client in (None, link.source)}

    def trips(link: Link) -> list[float]:
        took = (cluster.links.probe_ms(link, timeout_s=_PROBE_TIMEOUT_S) for _ in range(_PROBES))
        return [ms for ms in took if ms is not None]

    def unlike() -> list[str]:
        asked = sorted(left)
        with ThreadPoolExecutor(_PROBES_AT_ONCE) as pool:
            problems = {
                link: _unlike(cluster, link, took) for link, took in zip(asked, pool.map(trips, asked), strict=True)
            }
        left.intersection_update(link for link, text in problems.items() if text)
        return [text for text in problems.values() if text]

    still = left_over(unlike, timeout_s=PROVEN_WITHIN_S, what="the network to be as the topology says")
    if still:
        raise ClusterError(f"the network is not as the topology says: {'; '.join(still[:4])}")


def _unlike(cluster: Cluster, link: Link, took_ms: list[float]) -> str:
    delay = cluster.topology.delay_of(link)
    assert delay is not None, "only such links are asked"
    if not took_ms:
        return f"no broker answered over {link}"
    least_ms, most_ms = 2 * (delay.latency_ms - delay.jitter_ms), 2 * (delay.latency_ms + delay.jitter_ms)
    fastest_ms = min(took_ms)
    if link.answering in cluster.topology.balancer_names:  # the broker answers behind another link
        behind = cluster.topology.network and cluster.topology.network.balancers
        most_ms += 2 * (behind.latency_ms + behind.jitter_ms) if behind else 0
    if least_ms - EARLY_MS <= fastest_ms <= most_ms + LATE_MS:
        return ""
    return f"the fastest round trip over {link} took {fastest_ms:.1f} ms, and it should take {least_ms} to {most_ms} ms"


@contextmanager
def round_trips_watched(cluster: Cluster, record: Callable[..., object]) -> Iterator[None]:
    """Prove the network and record round trips over each link until the block ends, if the topology states a network.

    The first round trips are recorded before the block begins.
    """
    measured = cluster.round_trips()
    if measured is None:
        yield
        return
    with measured:
        prove_network(cluster)
        _record(record, [measured.measure() for _ in range(BEFORE)])
        ended = threading.Event()
        thread = threading.Thread(target=_watch, args=(measured, record, ended), name="round-trips", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()


def _watch(measured: RoundTrips, record: Callable[..., object], ended: threading.Event) -> None:
    rounds: list[Mapping[Link, float | None]] = []
    recorded_s = time.monotonic()
    while not ended.wait(MEASURED_EVERY_S):
        rounds.append(measured.measure())
        if time.monotonic() - recorded_s >= RECORDED_EVERY_S:
            _record(record, rounds)
            rounds, recorded_s = [], time.monotonic()
    if rounds:
        _record(record, rounds)


def _record(record: Callable[..., object], rounds: list[Mapping[Link, float | None]]) -> None:
    ways = rounds[0]
    record("round_trips", trips_ms={str(way): [_rounded(one[way]) for one in rounds] for way in ways})


def _rounded(ms: float | None) -> float | None:
    return None if ms is None else round(ms, 3)
