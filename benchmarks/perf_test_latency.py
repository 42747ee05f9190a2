"""Compare the latency of our clients with that of RabbitMQ PerfTest's, at the same rates, and show Python's part.

    .venv/bin/python -m benchmarks.perf_test_latency [--rates 100 1000 5000] [--rounds 3] [--queue-types classic quorum]
        [--rabbitmq-home DIR ...]

Both sides have one publisher, one consumer and one queue of the same type on the same node, the same rate, messages in
flight, prefetch, acknowledgements and message size, in one cluster of each version, in turn. A message's time runs from
when it was sent until it was received, and until it was confirmed; PerfTest reports both. Our side also measures from
when it was due until it was received. Each second after the warm-up has its median and its 99th percentile; a round has
the medians of its seconds. The table has the medians of the rounds, and the lowest and the highest of times to receive.

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
from benchmarks.perf_test import OURS, PERF_TEST, Plan, QueueType, let_run, perf_test_command
from benchmarks.versions import add_homes, formed, turns
from rabbitmq_resilience.extensions.setup.perf_test import find_perf_test
from rabbitmq_resilience.history.history import (
    DELIVERIES,
    DELIVERIES_SUFFIX,
    PUBLISHES,
    PUBLISHES_SUFFIX,
    StreamReader,
    now_us,
)
from rabbitmq_resilience.report.markdown_tables import table
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.workload.client_addresses import addresses
from rabbitmq_resilience.workload.drain import Depth
from rabbitmq_resilience.workload.load import Address
from rabbitmq_resilience.workload.perf_test_options import Window, read
from rabbitmq_resilience.workload.queues import declare, depths, queue_names
from rabbitmq_resilience.workload.running_workload import start
from rabbitmq_resilience.workload.workload_model import Workload

#: Any name works.
ECHO_VHOST = "echo"
#: Longer than a measurement, as the echo does not answer heartbeats.
HEARTBEAT_S = 600
#: In place of a version.
NO_BROKER = "no broker"
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


#: The measured times: from sending and from the due time until a message is received, and from sending until it is
#: confirmed.
RECEIVED, FROM_DUE, CONFIRMED = "received", "received, from due", "confirmed"
Measured = Mapping[str, Latencies]


def nothing() -> Measured:
    return {name: Latencies() for name in (RECEIVED, FROM_DUE, CONFIRMED)}


def cells(rounds: Sequence[Measured]) -> list[str]:
    """Return the cells of a row: the medians of the rounds, and the range until received."""
    received = [_ms_range(values_ms) for values_ms in _by_round(rounds, RECEIVED)]
    others = [_by_round(rounds, name) for name in (FROM_DUE, CONFIRMED)]
    return received + [_ms_text(median(each_ms)) if each_ms else "" for both in others for each_ms in both]


def _by_round(rounds: Iterable[Measured], name: str) -> tuple[Sequence[float], Sequence[float]]:
    """Return the median and the 99th percentile of each round that has such latencies."""
    found = [measured[name] for measured in rounds if measured[name].median_ms]
    return [median(each.median_ms) for each in found], [median(each.p99_ms) for each in found]


def _ms_range(values_ms: Sequence[float]) -> str:
    if len(values_ms) == 1:
        return _ms_text(values_ms[0])
    return f"{_ms_text(median(values_ms))} ({_ms_text(min(values_ms))} to {_ms_text(max(values_ms))})"


def _ms_text(ms: float) -> str:
    return f"{ms:.2f}" if ms < 1 else f"{ms:.1f}" if ms < 10 else f"{ms:.0f}"


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


def compare(
    title: str, served: Mapping[str, Callable[[str], Server]], workload: Workload, *, rounds: int, plan: Plan
) -> Mapping[str, Mapping[str, Sequence[Measured]]]:
    """Measure both sides on each version in turn. Return rounds by version and side. ``served`` prepares a server."""
    found: dict[str, dict[str, list[Measured]]] = {each: {side: [] for side in SIDES} for each in served}
    for number, version, side in turns(title, rounds, list(served), list(SIDES)):
        server = served[version](f"{workload.queue_type}-{number}-{side}")
        found[version][side].append(SIDES[side](server, workload, plan))
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


def rows_of(title: str, found: Mapping[str, Mapping[str, Sequence[Measured]]]) -> list[Sequence[str]]:
    """Return a row for each version and side."""
    return [(title, version, side, *cells(sides[side])) for version, sides in found.items() for side in SIDES]


def python_adds_ms(found: Mapping[str, Sequence[Measured]]) -> Sequence[float]:
    """Return the differences of the medians and of the 99th percentiles, of medians of rounds."""
    a, b = (_by_round(found[side], RECEIVED) for side in (OURS, PERF_TEST))
    return median(a[0]) - median(b[0]), median(a[1]) - median(b[1])


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
    add_homes(parser)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    find_perf_test()  # reports a missing PerfTest before the start
    plan = Plan(arguments.warm_up_s, arguments.measure_s)
    rows: list[Sequence[str]] = []
    columns = ("median", "p99", "median from due", "p99 from due", "median confirm", "p99 confirm")
    sentences = []
    with echoing() as port:
        echo = Server(Address("echo", "127.0.0.1", port), ECHO_VHOST, dict)
        for rate_per_s in arguments.rates:
            title, workload = f"echo, {rate_per_s:,}/s", laid_out(arguments, "classic", rate_per_s)
            found = compare(title, {NO_BROKER: lambda _: echo}, workload, rounds=arguments.rounds, plan=plan)
            rows += rows_of(title, found)
            middle_ms, high_ms = python_adds_ms(found[NO_BROKER])
            sentences.append(f"At {rate_per_s:,}/s Python adds {middle_ms:.3f} ms (median) and {high_ms:.3f} ms (p99).")
    with formed(arguments.homes) as clusters:
        for queue_type, rate_per_s in itertools.product(arguments.queue_types, arguments.rates):
            title, workload = f"{queue_type}, {rate_per_s:,}/s", laid_out(arguments, queue_type, rate_per_s)
            served = {version: partial(on_cluster, cluster, workload) for version, cluster in clusters.items()}
            rows += rows_of(title, compare(title, served, workload, rounds=arguments.rounds, plan=plan))
    print(f"{arguments.rounds} rounds of {plan.measure_s:g} s; latencies in ms\n")
    print(table(("queue", "RabbitMQ", "side", *columns), rows, numbers=columns), "", *sentences, sep="\n")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
