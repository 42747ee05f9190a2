"""Compare the latency of our clients with that of RabbitMQ PerfTest's, at the same rates, and show Python's part.

    .venv/bin/python -m benchmarks.perf_test_latency [--rates 100 1000 5000] [--rounds 3] [--queue-types classic quorum]

Both sides have one publisher, one consumer and one queue of the same type on the same node, the same rate, messages in
flight, prefetch, acknowledgements and message size, in one cluster, in turn. A message's time runs from when it was
sent until it was received, and until it was confirmed; PerfTest reports both. Our side also measures from when it was
due until it was received. Each second after the warm-up has its median and its 99th percentile. The table has the
medians of all seconds of all rounds, and the highest 99th percentile.

To measure what Python itself adds, both sides do the same against ``benchmarks.echo_broker``, which only hands messages
on. Our latency there is the time of our clients, the kernel and the echo. PerfTest has the same kernel and echo, so
the difference is what Python adds, including the recording and checking of each message. Nothing is judged: on a busy
machine, other programs dominate the numbers.
"""

from __future__ import annotations

import argparse
import itertools
import subprocess
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import get_args

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from benchmarks.echo_broker import echoing
from benchmarks.perf_test import Plan, QueueType, let_run, perf_test_command
from rabbitmq_resilience.extensions.setup.perf_test import find_perf_test
from rabbitmq_resilience.history.history import (
    DELIVERIES,
    DELIVERIES_SUFFIX,
    PUBLISHES,
    PUBLISHES_SUFFIX,
    StreamReader,
    now_us,
)
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.report.markdown_tables import table
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.distributions import find_broker
from rabbitmq_resilience.workload.client_addresses import addresses
from rabbitmq_resilience.workload.drain import Depth
from rabbitmq_resilience.workload.load import Address
from rabbitmq_resilience.workload.perf_test_options import Window, read
from rabbitmq_resilience.workload.queues import declare, depths, queue_names
from rabbitmq_resilience.workload.running_workload import start
from rabbitmq_resilience.workload.workload_model import Workload

OURS, PERF_TEST = "ours", "PerfTest"
#: Any name works.
ECHO_VHOST = "echo"
#: Longer than a measurement, as the echo does not answer heartbeats.
HEARTBEAT_S = 600
SECOND_US = 1_000_000

Moments = npt.NDArray[np.int64]


@dataclass(frozen=True)
class Server:
    """The server of clients: a broker or the echo. ``depths`` returns the depths of its queues."""

    address: Address
    vhost: str
    depths: Callable[[], Mapping[str, Depth]]


@dataclass(frozen=True)
class Latencies:
    """The median and the 99th percentile of each second, in ms."""

    median_ms: list[float] = field(default_factory=list)
    p99_ms: list[float] = field(default_factory=list)

    def add(self, waited_ms: npt.NDArray[np.float64]) -> None:
        """Add one second, with the latencies of its messages."""
        self.median_ms.append(float(np.percentile(waited_ms, 50)))
        self.p99_ms.append(float(np.percentile(waited_ms, 99)))

    def extend(self, other: Latencies) -> None:
        self.median_ms.extend(other.median_ms)
        self.p99_ms.extend(other.p99_ms)


#: The measured times: from sending and from the due time until a message is received, and from sending until it is
#: confirmed.
RECEIVED, FROM_DUE, CONFIRMED = "received", "received, from due", "confirmed"
Measured = Mapping[str, Latencies]


def nothing() -> Measured:
    return {name: Latencies() for name in (RECEIVED, FROM_DUE, CONFIRMED)}


def cells(measured: Measured) -> list[str]:
    """Return the cells of a row: medians of the seconds, and the highest 99th percentile until received."""
    highest = _ms_text(max(measured[RECEIVED].p99_ms))
    return [*_middle(measured[RECEIVED]), highest, *_middle(measured[FROM_DUE]), *_middle(measured[CONFIRMED])]


def _middle(latencies: Latencies) -> list[str]:
    both = (latencies.median_ms, latencies.p99_ms)
    return [_ms_text(median(values_ms)) if values_ms else "" for values_ms in both]


def _ms_text(ms: float) -> str:
    return f"{ms:.3f}" if ms < 10 else f"{ms:.1f}"


def ours(server: Server, workload: Workload, plan: Plan) -> Measured:
    """Run our workload. Raise ``AssertionError`` if it does not end verified."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        load = start(
            workload,
            addresses=[server.address],
            queues=queue_names(workload),
            vhost=server.vhost,
            run=1,
            seed=1,
            folder=folder,
        )
        with load:
            load.await_connected(timeout_s=120)
            load.publish()
            let_run(load, seconds=plan.warm_up_s)
            began_us = now_us()
            let_run(load, seconds=plan.measure_s)
            ended_us = now_us()
            assert load.stop_publishers(timeout_s=60), "outstanding confirms did not come"
            drained = load.drain(server.depths, idle_s=5, timeout_s=120)
            assert drained.complete and drained.unconsumed == 0, drained
        return by_second(folder, began_us, ended_us)


def by_second(folder: Path, began_us: int, ended_us: int) -> Measured:
    """Return the latencies of messages sent in each whole second of that time. All messages must have arrived."""
    sent_us, due_us, confirmed_us = (
        _by_sequence(folder, PUBLISHES_SUFFIX, PUBLISHES, name) for name in ("sent_us", "due_us", "outcome_us")
    )
    received_us = _by_sequence(folder, DELIVERIES_SUFFIX, DELIVERIES, "received_us")
    found = nothing()
    for start_us in range(began_us, ended_us - SECOND_US + 1, SECOND_US):
        mine = (sent_us >= start_us) & (sent_us < start_us + SECOND_US)
        if mine.any():
            found[RECEIVED].add((received_us - sent_us)[mine] / 1000)
            found[FROM_DUE].add((received_us - due_us)[mine] / 1000)
            found[CONFIRMED].add((confirmed_us - sent_us)[mine] / 1000)
    return found


def _by_sequence(folder: Path, suffix: str, schema: pa.Schema, column: str) -> Moments:
    """Return the time in ``column`` for each message; the first one, if the message was delivered again."""
    batches = [batch for path in sorted(folder.glob(f"*{suffix}")) for batch in StreamReader(path, schema).together()]
    sequence, at_us = (
        np.concatenate([batch.column(name).to_numpy() for batch in batches]) for name in ("sequence", column)
    )
    found = np.full(int(sequence.max()) + 1, np.iinfo(np.int64).max)
    np.minimum.at(found, sequence, at_us)
    return found


def perf_test(server: Server, workload: Workload, plan: Plan) -> Measured:
    """Run PerfTest on a queue that exists already."""
    with tempfile.TemporaryDirectory() as folder:
        csv_file = Path(folder) / "perf-test.csv"
        command = perf_test_command(server.address, server.vhost, workload, plan, csv_file)
        run = subprocess.run(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, check=False)
        found = of_windows(read(csv_file) if csv_file.exists() else [], plan)
    assert len(found[RECEIVED].p99_ms) > 2, "PerfTest reported no latencies:\n" + run.stdout[-2000:]
    return found


def of_windows(windows: Iterable[Window], plan: Plan) -> Measured:
    """Return the latencies of the windows after the warm-up."""
    found = nothing()
    for window in windows:
        if plan.warm_up_s < window.ended_s <= plan.warm_up_s + plan.measure_s:
            for name, waited_ms in ((RECEIVED, window.end_to_end_ms), (CONFIRMED, window.confirm_ms)):
                if waited_ms:
                    found[name].median_ms.append(waited_ms[50])
                    found[name].p99_ms.append(waited_ms[99])
    return found


SIDES: Mapping[str, Callable[[Server, Workload, Plan], Measured]] = {OURS: ours, PERF_TEST: perf_test}


def compare(served: Callable[[str], Server], workload: Workload, *, rounds: int, plan: Plan) -> dict[str, Measured]:
    """Measure both sides in turn: ours first in even rounds, second in odd ones. ``served`` prepares a server."""
    found = {side: nothing() for side in SIDES}
    for number in range(rounds):
        for side in sorted(SIDES, reverse=number % 2 == 0):
            measured = SIDES[side](served(f"{workload.queue_type}-{number}-{side}"), workload, plan)
            for name, latencies in measured.items():
                found[side][name].extend(latencies)
    return found


def on_cluster(cluster: LocalCluster, workload: Workload, name: str) -> Server:
    """Return the cluster as a server with the queue in a fresh virtual host, and delete earlier ones."""
    api = cluster.api("a1")
    for vhost in api.vhosts():
        if vhost != "/":
            api.delete_vhost(vhost)
    declare(cluster, workload, vhost=name)
    return Server(addresses(cluster)[0], name, lambda: depths(api, name))


def laid_out(arguments: argparse.Namespace, queue_type: QueueType, rate_per_s: int) -> Workload:
    return Workload(
        queue_type=queue_type,
        leaders_on=("a1",),
        rate_per_s=rate_per_s,
        in_flight=arguments.in_flight,
        prefetch=arguments.prefetch,
        ack_every=arguments.ack_every,
        message_bytes=arguments.message_bytes,
        heartbeat_s=HEARTBEAT_S,
    )


def rows_of(title: str, found: Mapping[str, Measured]) -> list[Sequence[str]]:
    """Return a row for each side."""
    return [(title, side, *cells(found[side])) for side in SIDES]


def python_adds_ms(found: Mapping[str, Measured]) -> Sequence[float]:
    """Return the differences of the medians and of the 99th percentiles."""
    a, b = found[OURS][RECEIVED], found[PERF_TEST][RECEIVED]
    return median(a.median_ms) - median(b.median_ms), median(a.p99_ms) - median(b.p99_ms)


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the latency of our clients with that of RabbitMQ PerfTest's.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up-s", type=float, default=8)
    parser.add_argument("--measure-s", type=float, default=15)
    parser.add_argument("--rates", type=int, nargs="+", default=[100, 1000, 5000], help="messages a second")
    parser.add_argument("--queue-types", nargs="+", choices=get_args(QueueType), default=["classic", "quorum"])
    parser.add_argument("--in-flight", type=int, default=200)
    parser.add_argument("--prefetch", type=int, default=200)
    parser.add_argument("--ack-every", type=int, default=1, help="messages acknowledged together by a consumer")
    parser.add_argument("--message-bytes", type=int, default=1000)
    parser.add_argument("--rabbitmq-home", type=Path)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    find_perf_test()  # reports a missing PerfTest before the start
    plan = Plan(arguments.warm_up_s, arguments.measure_s)
    rows: list[Sequence[str]] = []
    columns = ("median", "p99", "highest p99", "median from due", "p99 from due", "median confirm", "p99 confirm")
    sentences = []
    with echoing() as port:
        echo = Server(Address("echo", "127.0.0.1", port), ECHO_VHOST, dict)
        for rate_per_s in arguments.rates:
            workload = laid_out(arguments, "classic", rate_per_s)
            found = compare(lambda _: echo, workload, rounds=arguments.rounds, plan=plan)
            rows += rows_of(f"echo, {rate_per_s:,}/s", found)
            middle_ms, high_ms = python_adds_ms(found)
            sentences.append(f"At {rate_per_s:,}/s Python adds {middle_ms:.3f} ms (median) and {high_ms:.3f} ms (p99).")
    broker = find_broker(arguments.rabbitmq_home)
    with LocalCluster.form(Topology(name="perf_test", zones={"a": 1, "b": 1, "c": 1}), broker=broker) as cluster:
        for queue_type, rate_per_s in itertools.product(arguments.queue_types, arguments.rates):
            workload = laid_out(arguments, queue_type, rate_per_s)
            served = partial(on_cluster, cluster, workload)
            found = compare(served, workload, rounds=arguments.rounds, plan=plan)
            rows += rows_of(f"{queue_type}, {rate_per_s:,}/s", found)
    print(f"{arguments.rounds} rounds of {plan.measure_s:g} s; latencies in ms\n")
    print(table(("queue", "side", *columns), rows, numbers=columns), "", *sentences, sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
