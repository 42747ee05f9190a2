"""Measure how long a cluster takes to form, compared with its CPU floor.

The floor is the CPU time (user and system) that the brokers and their children used until the cluster was
formed, divided by the cores: no schedule of the same work ends sooner. Formed means that every node
accepts AMQP and every node's management API shows all nodes running. Run it on an idle machine. It also
prints the CPU time of other processes, which makes the ratio worse.

    .venv/bin/python -m benchmarks.formation [--nodes 3 5 7] [--runs 3] [--rabbitmq-home DIR]

The exit status is 1 if the median of a size is over the bound.
"""

from __future__ import annotations

import argparse
import os
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from statistics import median

import psutil

from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.model.topology_catalogue import load
from rabbitmq_resilience.runner.cpu_watch import Spent
from rabbitmq_resilience.sut.processes.process_cluster import LocalCluster
from rabbitmq_resilience.tools.distributions import BrokerHome, find_broker

TOPOLOGIES = {3: "three_nodes_three_zones", 5: "five_nodes_three_zones", 7: "seven_nodes_three_zones"}
RATIO_MAX = 1.5


@dataclass(frozen=True)
class Formation:
    """One measured formation."""

    nodes: int
    wall_s: float
    cpu_s: float
    cores: int
    others_cpu_s: float

    @property
    def floor_s(self) -> float:
        return self.cpu_s / self.cores

    @property
    def ratio(self) -> float:
        return self.wall_s / self.floor_s


def measure(topology: Topology, broker: BrokerHome, *, proxied: bool = False) -> Formation:
    """Form a cluster of ``topology`` once, end it again, and return what it took."""
    busy_before_s = _machine_busy_s()
    begun = time.monotonic()
    with LocalCluster.form(topology, broker=broker, proxied=topology.links if proxied else ()) as cluster:
        wall_s = time.monotonic() - begun
        cpu_s = sum(_tree_cpu_s(pid) for pid in cluster.pids().values())
        busy_s = _machine_busy_s() - busy_before_s
    return Formation(len(topology.nodes), wall_s, cpu_s, os.cpu_count() or 1, max(0.0, busy_s - cpu_s))


def _tree_cpu_s(pid: int) -> float:
    process = psutil.Process(pid)
    return sum(_cpu_s(each) for each in (process, *process.children(recursive=True)))


def _cpu_s(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system + times.children_user + times.children_system)


def _machine_busy_s() -> float:
    return Spent.by_now().used_s


def formations(sizes: list[int], runs: int, broker: BrokerHome, *, proxied: bool) -> Iterator[Formation]:
    for size in sizes:
        topology = load(TOPOLOGIES[size])
        for _ in range(runs):
            yield measure(topology, broker, proxied=proxied)


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n\n", maxsplit=1)[0])
    parser.add_argument("--nodes", type=int, nargs="+", choices=sorted(TOPOLOGIES), default=sorted(TOPOLOGIES))
    parser.add_argument("--runs", type=int, default=3)
    parser.add_argument("--proxied", action="store_true", help="put every link through Toxiproxy")
    parser.add_argument("--rabbitmq-home", type=Path)
    options = parser.parse_args()
    broker = find_broker(options.rabbitmq_home)
    print(f"RabbitMQ {broker.version}; wall time against CPU floor, at most {RATIO_MAX} wanted")
    print("nodes   wall s  broker CPU s  cores  floor s  ratio  CPU s of others")
    ratios: dict[int, list[float]] = {}
    for one in formations(options.nodes, options.runs, broker, proxied=options.proxied):
        ratios.setdefault(one.nodes, []).append(one.ratio)
        print(
            f"{one.nodes:5} {one.wall_s:8.2f} {one.cpu_s:13.2f} {one.cores:6} {one.floor_s:8.2f}"
            f" {one.ratio:6.2f} {one.others_cpu_s:16.2f}"
        )
    missed = {size: median(seen) for size, seen in ratios.items() if median(seen) > RATIO_MAX}
    for size, ratio in missed.items():
        print(f"{size} nodes: the median {ratio:.2f} is over {RATIO_MAX}")
    return 1 if missed else 0


if __name__ == "__main__":
    raise SystemExit(main())
