"""Compare brokers that have the preloaded library of disk faults with brokers that do not, in turn.

    .venv/bin/python -m benchmarks.preloaded_disk [--rounds 5] [--queue-types quorum classic] [--rabbitmq-home DIR]

Two clusters of three brokers are formed with equal settings, and one of them has the library in each broker, with no
fault set. In each round both get the same load as fast as they take it, one after the other: in even rounds the one
without the library is first. The other cluster is idle meanwhile. Rates are confirms a second after a warm-up; CPU is
that of all brokers for one message. A ratio is the median of the ratios in each round. What a write of its own costs a
program is measured too: the processor time of small appends to one file, without a flush.

The exit status is 1 if the rate with the library is under ``RATIO_MIN`` of the rate without it, for any queue type.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from pathlib import Path
from statistics import median

from benchmarks.perf_test import Measured, Plan, ours
from rabbitmq_resilience.model.node_options import NodeOptions
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.report.markdown_tables import table
from rabbitmq_resilience.sut.preload.library import find_build
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.distributions import find_broker
from rabbitmq_resilience.workload.queues import declare
from rabbitmq_resilience.workload.workload_model import Workload

RATIO_MIN = 0.9
WITHOUT, WITH = "without the library", "with it"
#: Appends 200 bytes again and again, and prints the processor time of each in µs.
APPENDS = """
import os, sys, time
file, block, count = os.open(sys.argv[1], os.O_WRONLY | os.O_CREAT | os.O_TRUNC), bytes(200), 50_000
began_s = time.process_time()
for _ in range(count):
    os.write(file, block)
print((time.process_time() - began_s) / count * 1e6)
"""
COLUMNS = ("confirmed/s", "broker µs", "ratio", "of broker CPU", "rounds")


def compare(
    clusters: Mapping[str, LocalCluster], workload: Workload, *, rounds: int, plan: Plan
) -> Mapping[str, Sequence[Measured]]:
    """Measure both clusters in turn, each time on fresh queues."""
    results: dict[str, list[Measured]] = {side: [] for side in clusters}
    for number in range(rounds):
        for side in sorted(clusters, reverse=number % 2 == 0):
            vhost = f"{workload.queue_type}-{number}"
            declare(clusters[side], workload, vhost=vhost)
            results[side].append(ours(clusters[side], workload, vhost, plan))
            clusters[side].api("a1").delete_vhost(vhost)
    return results


def add_rows(rows: list[Sequence[str]], name: str, results: Mapping[str, Sequence[Measured]]) -> float:
    """Add rows with the medians of the rounds, and return the ratio of the rates."""
    both = list(zip(results[WITH], results[WITHOUT], strict=True))
    rates = [a.confirmed_per_s / b.confirmed_per_s for a, b in both]
    cpu = median(a.broker_us / b.broker_us for a, b in both)
    for side, measured in results.items():
        row = (
            name,
            side,
            f"{median(m.confirmed_per_s for m in measured):,.0f}",
            f"{median(m.broker_us for m in measured):.1f}",
            f"{median(rates):.3f} ({min(rates):.3f} to {max(rates):.3f})" if side == WITH else "",
            f"{cpu:.2f}" if side == WITH else "",
            " ".join(f"{m.confirmed_per_s:,.0f}" for m in measured),
        )
        rows.append(row)
    return median(rates)


def write_us(rounds: int) -> Mapping[str, Sequence[float]]:
    """Measure the processor time of a write in µs, round by round."""
    build = find_build()
    taken: dict[str, list[float]] = {WITHOUT: [], WITH: []}
    with tempfile.TemporaryDirectory() as name:
        root, state = Path(name, "root"), Path(name, "state")
        root.mkdir()
        subprocess.run([build.program, "prepare", state], check=True)
        followed: dict[str, Mapping[str, str]] = {WITHOUT: {}, WITH: build.environment(root, state=state)}
        for _ in range(rounds):
            for side, variables in followed.items():
                command = [sys.executable, "-c", APPENDS, str(root / "file")]
                environ = {**os.environ, **variables}
                printed = subprocess.run(command, env=environ, check=True, capture_output=True, text=True).stdout
                taken[side].append(float(printed))
    return taken


def parse_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="Compare brokers with and without the library of disk faults.")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--warm-up-s", type=float, default=5)
    parser.add_argument("--measure-s", type=float, default=15)
    parser.add_argument("--queue-types", nargs="+", choices=("quorum", "classic"), default=("quorum", "classic"))
    parser.add_argument("--queues", type=int, default=4)
    parser.add_argument("--message-bytes", type=int, default=1000)
    parser.add_argument("--rabbitmq-home", type=Path)
    return parser.parse_args()


def main() -> int:
    arguments = parse_arguments()
    broker = find_broker(arguments.rabbitmq_home)
    plan = Plan(arguments.warm_up_s, arguments.measure_s)
    topology = Topology(name="preloaded", zones={"a": 1, "b": 1, "c": 1})
    options = {WITHOUT: NodeOptions(), WITH: NodeOptions(preloaded=frozenset(topology.node_names))}
    rows: list[Sequence[str]] = []
    ratios = []
    with ExitStack() as stack:
        clusters = {
            side: stack.enter_context(LocalCluster.form(topology, broker=broker, equipment=equipment))
            for side, equipment in options.items()
        }
        for queue_type in arguments.queue_types:
            workload = Workload(
                queue_type=queue_type,
                queues=arguments.queues,
                leaders_on=("a1",),
                publishers=4,
                consumers=4,
                rate_per_s=None,
                in_flight=200,
                prefetch=500,
                ack_every=50,
                message_bytes=arguments.message_bytes,
            )
            results = compare(clusters, workload, rounds=arguments.rounds, plan=plan)
            ratios.append(add_rows(rows, f"{arguments.queues} {queue_type}", results))
    print(f"RabbitMQ {broker.version}, {arguments.rounds} rounds of {plan.measure_s:g} s, medians\n")
    print(table(("queues", "side", *COLUMNS), rows, numbers=COLUMNS))
    for side, taken in write_us(arguments.rounds).items():
        print(f"A write of 200 bytes, {side}: {median(taken):.1f} µs ({min(taken):.1f} to {max(taken):.1f})")
    return 0 if min(ratios) >= RATIO_MIN else 1


if __name__ == "__main__":
    raise SystemExit(main())
