"""Compare the verified load with RabbitMQ PerfTest's unverified one, in turn on one cluster of each version.

    .venv/bin/python -m benchmarks.perf_test [--rounds 3] [--queues 1 10 100] [--rate N] [--rabbitmq-home DIR ...]

Both sides have the same connections, channels, queues, messages in flight, prefetch, acknowledgements and message size,
and connect to the same node. Each queue has a publisher and a consumer (more, if there are fewer queues), each with a
connection and a channel of its own. With ``--go-round`` our side has the given numbers of clients for any number of
queues: each one takes turns with its queues, over one channel or one for each (``--channel``). PerfTest, whose
producers keep to one queue, still has one for each; they share the messages in flight of ours. With ``--rate`` both
sides keep that rate. This makes the CPU of one message comparable over numbers of queues: at full speed, a slower
broker also hands over fewer messages at a time. Our side also records and checks every message, and drains and compares
at the end. PerfTest is the one that ``make perf-test`` has fetched. Rates are confirms a second after a warm-up; CPU is
that of all client processes and of all brokers, for one message.

The table has the medians of the rounds, and the lowest and the highest of rates and ratios; a ratio is that of one
round. The exit status is 1 if on quorum queues the rate is under ``RATIO_MIN`` of PerfTest's, or our clients use more
than ``CPU_RATIO_MAX`` times its CPU for a message. Other queue types are shown, not judged.
"""

from __future__ import annotations

import argparse
import itertools
import re
import subprocess
import tempfile
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Literal, get_args

import psutil

from benchmarks.versions import add_homes, formed, turns, with_range
from rabbitmq_resilience.extensions.setup.perf_test import find_perf_test
from rabbitmq_resilience.model.access import Access
from rabbitmq_resilience.report.markdown_tables import table
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.waiting import wait_until
from rabbitmq_resilience.workload.client_addresses import addresses
from rabbitmq_resilience.workload.load import Address
from rabbitmq_resilience.workload.perf_test_options import options
from rabbitmq_resilience.workload.queues import declare, depths, queue_names
from rabbitmq_resilience.workload.running_workload import RunningWorkload, start
from rabbitmq_resilience.workload.spread import Spread
from rabbitmq_resilience.workload.workload_model import Workload

#: The prefetch of each of ``--consumers``.
PREFETCH = 500
RATIO_MIN = 0.95
CPU_RATIO_MAX = 1.5
QueueType = Literal["quorum", "mirrored", "classic"]
_LINE = re.compile(
    r"time:? (?P<time_s>[\d.]+) ?s, .*?confirmed: (?P<confirmed>\d+) msg/s.*?received: (?P<received>\d+) msg/s"
)


COLUMNS = (
    "ours, verified",
    "PerfTest",
    "ratio",
    "CPU a message, clients: ours, PerfTest",
    "ratio of clients",
    "brokers: ours, PerfTest",
    "CPU of all, ratio",
)


@dataclass(frozen=True)
class Plan:
    """The times of each measurement."""

    warm_up_s: float
    measure_s: float


@dataclass(frozen=True)
class Ratios:
    """The ratios of our side to PerfTest: of confirms a second, and of the CPU for a message of clients, and of clients
    and brokers together. A busy machine changes the CPU less than the rate."""

    rate: float
    client_cpu: float
    all_cpu: float

    @property
    def within(self) -> bool:
        return self.rate >= RATIO_MIN and self.client_cpu <= CPU_RATIO_MAX


@dataclass(frozen=True)
class Measured:
    """One measurement of one side."""

    confirmed_per_s: float
    received_per_s: float
    client_us: float
    broker_us: float


@dataclass(frozen=True)
class CpuSeconds:
    """The processor time that the processes of clients and brokers have used so far."""

    client: float
    broker: float


def cpu_seconds(cluster: LocalCluster, client_pids: Iterable[int]) -> CpuSeconds:
    def used(pids: Iterable[int]) -> float:
        return sum(sum(psutil.Process(pid).cpu_times()[:2]) for pid in pids)

    return CpuSeconds(used(client_pids), used(cluster.pids().values()))


def measured(seconds: float, confirmed: float, received: float, before: CpuSeconds, after: CpuSeconds) -> Measured:
    return Measured(
        confirmed_per_s=confirmed / seconds,
        received_per_s=received / seconds,
        client_us=1e6 * (after.client - before.client) / max(confirmed, 1),
        broker_us=1e6 * (after.broker - before.broker) / max(confirmed, 1),
    )


def ours(cluster: LocalCluster, workload: Workload, vhost: str, plan: Plan) -> Measured:
    """Run our workload. Raise ``AssertionError`` if it does not end verified."""
    with tempfile.TemporaryDirectory() as folder:
        load = start(
            workload,
            addresses=addresses(cluster)[:1],
            queues=queue_names(workload),
            vhost=vhost,
            run=1,
            seed=1,
            folder=Path(folder),
        )
        with load:
            load.await_connected(timeout_s=120)
            load.publish()
            pids = [worker.pid for worker in load.workers if worker.pid is not None]
            let_run(load, seconds=plan.warm_up_s)
            first, before, began_s = load.progress(), cpu_seconds(cluster, pids), time.monotonic()
            let_run(load, seconds=plan.measure_s)
            last, after, ended_s = load.progress(), cpu_seconds(cluster, pids), time.monotonic()
            assert load.stop_publishers(timeout_s=60), "outstanding confirms did not come"
            drained = load.drain(lambda: depths(cluster.api("a1"), vhost), idle_s=5, timeout_s=120)
            assert drained.complete and drained.unconsumed == 0, drained
    confirmed, received = last.confirmed - first.confirmed, last.received - first.received
    return measured(ended_s - began_s, confirmed, received, before, after)


def let_run(load: RunningWorkload, *, seconds: float) -> None:
    end_s = time.monotonic() + seconds

    def over() -> bool:
        load.check()
        return time.monotonic() >= end_s

    wait_until(over, timeout_s=seconds + 5, what="the time of a measurement", poll_s=0.25)


def perf_test(cluster: LocalCluster, workload: Workload, vhost: str, plan: Plan) -> Measured:
    """Run PerfTest on queues that exist already."""
    command = perf_test_command(addresses(cluster)[0], vhost, workload, plan)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as process:
        assert process.stdout is not None
        lines: list[str] = []
        samples: list[tuple[float, int, int, CpuSeconds]] = []
        for line in process.stdout:
            lines.append(line)
            found = _LINE.search(line)
            if found and plan.warm_up_s <= float(found["time_s"]) <= plan.warm_up_s + plan.measure_s:
                cpu = cpu_seconds(cluster, [process.pid])
                samples.append((float(found["time_s"]), int(found["confirmed"]), int(found["received"]), cpu))
    assert len(samples) > 2, "PerfTest reported no rates:\n" + "".join(lines[-20:])
    (began_s, *_, before), (ended_s, *_, after) = samples[0], samples[-1]
    spans_s = [after_s - before_s for (before_s, *_), (after_s, *_) in pairwise(samples)]
    confirmed = sum(span_s * sample[1] for span_s, sample in zip(spans_s, samples[1:], strict=True))
    received = sum(span_s * sample[2] for span_s, sample in zip(spans_s, samples[1:], strict=True))
    return measured(ended_s - began_s, confirmed, received, before, after)


def perf_test_command(
    address: Address, vhost: str, workload: Workload, plan: Plan, csv_file: Path | None = None
) -> list[str]:
    """Return the command with our numbers of messages in flight and unacknowledged, over at least a pair a queue."""
    producers, consumers = max(workload.publishers, workload.queues), max(workload.consumers, workload.queues)
    prefetch = max(1, workload.prefetch * workload.consumers // consumers)
    spread = {
        "publishers": producers,
        "consumers": consumers,
        "in_flight": max(1, workload.in_flight * workload.publishers // producers),
        "prefetch": prefetch,
        "ack_every": max(1, min(workload.ack_every, prefetch // 2)),
    }
    chosen = options(
        workload.model_copy(update=spread),
        [address],
        vhost=vhost,
        access=Access(),
        interval_s=1,
        seconds_s=round(plan.warm_up_s + plan.measure_s + 2),
        csv_file=csv_file,
    )
    return [*find_perf_test(), *chosen]


#: Both sides by name.
OURS, PERF_TEST = "ours", "PerfTest"
SIDES: Mapping[str, Callable[[LocalCluster, Workload, str, Plan], Measured]] = {OURS: ours, PERF_TEST: perf_test}


def compare(
    title: str, clusters: Mapping[str, LocalCluster], workload: Workload, *, rounds: int, plan: Plan
) -> Mapping[str, Mapping[str, Sequence[Measured]]]:
    """Measure both sides on each version in turn, each time on fresh queues. Return rounds by version and side."""
    results: dict[str, dict[str, list[Measured]]] = {each: {side: [] for side in SIDES} for each in clusters}
    for number, version, side in turns(title, rounds, list(clusters), list(SIDES)):
        cluster, vhost = clusters[version], f"{workload.queue_type}-{number}-{side}"
        declare(cluster, workload, vhost=vhost)
        results[version][side].append(SIDES[side](cluster, workload, vhost, plan))
        cluster.api("a1").delete_vhost(vhost)
    return results


def row_of(title: str, version: str, found: Mapping[str, Sequence[Measured]]) -> tuple[Sequence[str], Ratios]:
    """Return the row of one version, and the medians of the ratios in each round."""
    both = list(zip(found[OURS], found[PERF_TEST], strict=True))
    rates = [a.confirmed_per_s / b.confirmed_per_s for a, b in both]
    of_clients = [a.client_us / b.client_us for a, b in both]
    of_all = [(a.client_us + a.broker_us) / (b.client_us + b.broker_us) for a, b in both]
    ratios = Ratios(median(rates), median(of_clients), median(of_all))
    row = (
        title,
        version,
        *(f"{with_range([m.confirmed_per_s for m in found[side]])}/s" for side in SIDES),
        with_range(rates, ".2f"),
        ", ".join(f"{median(m.client_us for m in found[side]):.0f} µs" for side in SIDES),
        with_range(of_clients, ".2f"),
        ", ".join(f"{median(m.broker_us for m in found[side]):.0f} µs" for side in SIDES),
        with_range(of_all, ".2f"),
    )
    return row, ratios


def laid_out(arguments: argparse.Namespace, queue_type: QueueType, queues: int) -> Workload:
    """Return our workload. For any number of publishers, all together have the same number of messages in flight, and
    consumers the same number of unacknowledged ones."""
    publishers, consumers = (
        clients if arguments.go_round else max(clients, queues)
        for clients in (arguments.publishers, arguments.consumers)
    )
    prefetch = max(1, PREFETCH * arguments.consumers // consumers)
    return Workload(
        queue_type=queue_type,
        queues=queues,
        leaders_on=("a1",),
        publishers=publishers,
        consumers=consumers,
        rate_per_s=arguments.rate,
        in_flight=max(1, arguments.in_flight * arguments.publishers // publishers),
        prefetch=prefetch,
        ack_every=max(1, min(arguments.ack_every, prefetch // 2)),
        message_bytes=arguments.message_bytes,
        spread=Spread(channel=arguments.channel),
    )


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare the verified load with RabbitMQ PerfTest's.")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--warm-up-s", type=float, default=8)
    parser.add_argument("--measure-s", type=float, default=15)
    parser.add_argument("--queue-types", nargs="+", choices=get_args(QueueType), default=get_args(QueueType))
    parser.add_argument("--queues", type=int, nargs="+", default=[1], help="how many; each number is a row")
    parser.add_argument("--publishers", type=int, default=4, help="at least; one a queue, except with --go-round")
    parser.add_argument("--consumers", type=int, default=4, help="likewise")
    parser.add_argument(
        "--go-round", action="store_true", help="have these numbers of our clients for any number of queues"
    )
    parser.add_argument("--channel", choices=get_args(Spread.model_fields["channel"].annotation), default="one")
    parser.add_argument("--in-flight", type=int, default=200, help="of each of --publishers")
    parser.add_argument("--ack-every", type=int, default=50, help="messages acknowledged together by a consumer")
    parser.add_argument("--rate", type=int, help="messages a second of all publishers (default: as fast as they can)")
    parser.add_argument("--message-bytes", type=int, default=1000)
    add_homes(parser)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    find_perf_test()  # reports a missing PerfTest before the start
    plan = Plan(arguments.warm_up_s, arguments.measure_s)
    rows: list[Sequence[str]] = []
    within = True
    with formed(arguments.homes) as clusters:
        for queue_type, queues in itertools.product(arguments.queue_types, arguments.queues):
            title, workload = f"{queues} of type {queue_type}", laid_out(arguments, queue_type, queues)
            found = compare(title, clusters, workload, rounds=arguments.rounds, plan=plan)
            for version, sides in found.items():
                row, ratios = row_of(title, version, sides)
                rows.append(row)
                within = within and (ratios.within or queue_type != "quorum")
    print(f"{arguments.rounds} rounds of {plan.measure_s:g} s\n")
    print(table(("queues", "RabbitMQ", *COLUMNS), rows, numbers=COLUMNS))
    return 0 if within else 1


if __name__ == "__main__":
    raise SystemExit(main())
