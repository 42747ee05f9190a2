"""Plays one scenario: the one function with control flow, and it reads top-down."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Protocol, TextIO

from faults import fault_file
from faults.fault import Arena
from faults.nemesis import Nemesis
from faults.scenario import Scenario
from invariants.availability import Availability
from invariants.facts import QueueFacts
from invariants.recovery import ill_nodes, ill_partitions, ill_queues
from reports.events import EventLog
from reports.history import now_us
from reports.index import write_index
from reports.run_directory import RunDirectory
from suites.judging import Result, judge_run
from suites.live import Live, live_line
from suites.machine import machine_watched
from suites.measuring import measured
from topologies.cluster import Cluster, Scraping
from topologies.distributions import find_prometheus
from topologies.fittings import Fittings
from topologies.management import ApiError, ApiUnreachable
from topologies.observer import Observer
from topologies.spec import Link, Topology
from topologies.waiting import WaitTimeout, wait_until
from workloads import run as workloads
from workloads.declarations import declaring, read_metadata
from workloads.drain import Depth
from workloads.queues import QueuePlace, declare
from workloads.run import RunningWorkload
from workloads.spec import Workload

LOAD_FLOWS_WITHIN_S = 30.0
LAST_CONFIRMS_WITHIN_S = 5.0
#: Longer than the brokers' statistics interval, so that a depth of zero is believed only when it is old enough.
DRAIN_IDLE_S = 6.0
RECOVERY_POLL_S = 0.25
SAMPLED_WITHIN_S = 10.0
#: For the brokers' own numbers to tell of the end, while the consumers are there: quorum queues renew theirs every 5 s.
NUMBERS_SETTLE_S = 7.0
#: For what was declared last to reach every node.
METADATA_AGREES_WITHIN_S = 10.0


class Clusters(Protocol):
    """Where a scenario gets its cluster from: kept from the scenario before, or formed now."""

    def acquire(
        self, topology: Topology, proxied: frozenset[Link], fittings: Fittings, *, logs_of_failure: Path
    ) -> Cluster: ...


@dataclass(frozen=True)
class Bench:
    """What all scenarios of a session share."""

    clusters: Clusters
    runs_root: Path
    live: TextIO
    #: Raises ToolMissingError if there is none.
    find_prometheus: Callable[[], object] = find_prometheus
    driver: str = "local"
    #: Raises ToolMissingError if something is not there that faults need.
    require: Callable[[Collection[str]], None] = lambda _: None


def run_scenario(scenario: Scenario, bench: Bench, *, proxied: frozenset[Link] | None = None) -> Result:
    """Play ``scenario`` and judge what was recorded.

    ``proxied`` are the links that carry a proxy, by default those that the schedule touches. Raises
    FaultFileError, before anything is started, if the scenario is wrong, and ToolMissingError if something is missing
    that its faults need, or it is to be measured and there is no Prometheus. Whatever is raised later, everything is
    healed and ended, and the run directory holds what was recorded and an UNKNOWN verdict.
    """
    fault_file.parse(fault_file.dump(scenario), source=scenario.title, driver=bench.driver)
    bench.require(scenario.needs)  # what is missing is told before anything is started
    if scenario.metrics:
        bench.find_prometheus()
    run = RunDirectory.create(bench.runs_root, scenario.title)
    fault_file.save(scenario, run.fault_file)
    with EventLog(run.events_file) as events:
        try:
            _play(_Stage(scenario, bench, run, events), scenario.touched_links if proxied is None else proxied)
        except BaseException as error:
            events.record("note", detail=f"the run ended early: {type(error).__name__}: {error}")
            _judged(run, bench)
            raise
    return _judged(run, bench)


def _judged(run: RunDirectory, bench: Bench) -> Result:
    result = judge_run(run)
    write_index(bench.runs_root)
    return result


@dataclass(frozen=True)
class _Stage:
    """What the phases of one run have in common."""

    scenario: Scenario
    bench: Bench
    run: RunDirectory
    events: EventLog


def _play(stage: _Stage, proxied: frozenset[Link]) -> None:
    scenario, events = stage.scenario, stage.events
    with live_line(stage.bench.live, nodes=len(scenario.topology.nodes)) as live:
        cluster = stage.bench.clusters.acquire(
            scenario.topology, proxied, scenario.fittings, logs_of_failure=stage.run.logs
        )
        vhost = stage.run.name
        _record_cluster(cluster, events)
        with _logs_kept(cluster, stage.run.logs), _vhost(cluster, vhost):
            queues = declare(cluster, scenario.workload, vhost=vhost)
            events.record("queues", queues=queues)
            with (
                machine_watched(events.record),
                measured(scenario, cluster, stage.run, events) as scraping,
                Observer(
                    cluster, vhost, events.record, mirrored=scenario.workload.queue_type == "mirrored"
                ) as observer,
                workloads.start(
                    scenario.workload,
                    addresses=workloads.addresses(cluster),
                    detours=workloads.detours(cluster),
                    queues=list(queues),
                    vhost=vhost,
                    run=now_us(),
                    seed=scenario.seed,
                    folder=stage.run.history,
                ) as load,
                live.watching(observer, load),
            ):
                _phases(stage, Arena(cluster, observer, load), queues, live, scraping)


def _phases(
    stage: _Stage, arena: Arena, queues: Mapping[str, QueuePlace], live: Live, scraping: Scraping | None
) -> None:
    scenario, events, observer, load = stage.scenario, stage.events, arena.observer, arena.load

    def phase(name: str) -> None:
        events.record("phase", phase=name)
        live.phase(name)

    _await_flow(load, connected_within_s=scenario.workload.start_spread_s + LOAD_FLOWS_WITHIN_S)
    if scraping is not None:
        scraping.await_scraping(nodes=len(scenario.topology.nodes))
    with declaring(arena.cluster, scenario.workload, vhost=stage.run.name, record=events.record):
        phase("steady")
        _spend(load, seconds_s=scenario.phases.steady_s)
        phase("chaos")
        varied_s = time.monotonic() + scenario.workload.variation_s
        events.record("load", **_load_event(scenario.workload, load.begin_variation()))
        nemesis = Nemesis(scenario.schedule, arena, live.telling(events.record), scenario.seed, scenario.chaos_s)
        nemesis.play(load.check)
        _spend(load, seconds_s=max(0.0, varied_s - time.monotonic()))  # steps that wait may all end before
        phase("recovery")
        lacking = _await_recovery(scenario.phases.recovery_s, arena, queues)
        events.record("recovery", complete=not lacking, detail=lacking)
        _spend(load, seconds_s=scenario.phases.settled_s)
    phase("drain")
    load.stop_publishers(timeout_s=_last_confirms_within_s(scenario))
    drained = load.drain(lambda: _depths(observer, queues), idle_s=DRAIN_IDLE_S, timeout_s=scenario.phases.drain_s)
    events.record("drain", **vars(drained))
    if scraping is not None:
        _await_acknowledged(observer, timeout_s=scenario.phases.drain_s)
        _spend(load, seconds_s=NUMBERS_SETTLE_S)
    if scenario.workload.declare_every_s is not None:
        known = read_metadata(arena.cluster, stage.run.name, timeout_s=METADATA_AGREES_WITHIN_S)
        events.record("metadata", nodes=known)
    load.stop()
    phase("end")


def _load_event(workload: Workload, begins_us: int) -> dict[str, Any]:
    fields = {"rate_per_s", "variable_rate", "processing_ms", "variable_processing"}
    return {"begins_us": begins_us, **workload.model_dump(mode="json", include=fields)}


def _await_flow(load: RunningWorkload, *, connected_within_s: float) -> None:
    """Every worker is connected and messages arrive: only then is the steady phase steady."""
    load.await_connected(timeout_s=connected_within_s)
    consumed = len(load.consumers) > 0
    wait_until(
        lambda: load.progress().confirmed > 0 and (load.progress().received > 0 or not consumed),
        timeout_s=LOAD_FLOWS_WITHIN_S,
        what="the first confirms and deliveries",
    )


def _spend(load: RunningWorkload, *, seconds_s: float) -> None:
    """Lets the load run, and ends at once if a worker failed."""
    ends = time.monotonic() + seconds_s

    def spent() -> bool:
        load.check()
        return time.monotonic() >= ends

    wait_until(spent, timeout_s=seconds_s + 10, what="the phase to pass")


def _await_recovery(timeout_s: float, arena: Arena, queues: Mapping[str, QueuePlace]) -> str:
    """Waits until the cluster is whole, every publisher gets confirms again and no consumer leaves messages lying;
    what was still lacking, or ''.

    A stall that outlives the faults must have the time to show, and so must a restart by which a mode mends a split:
    until then the sides do not see each other, and each looks well by itself.
    """
    observer, load = arena.observer, arena.load
    confirmed_before, received_before = load.confirmed_by_publisher(), load.received_by_consumer()
    declared = [QueueFacts(name, place["type"], frozenset(place["members"])) for name, place in queues.items()]

    def lacking() -> str:
        load.check()
        stalled = [i for i, now in enumerate(load.confirmed_by_publisher()) if now <= confirmed_before[i]]
        idle = [i for i, now in enumerate(load.received_by_consumer()) if now <= received_before[i]]
        waiting = {name for name, row in observer.queues.items() if row["ready"]}
        starved = [i for i in idle if waiting & set(load.queues_of_consumer(i))]
        parts = (
            ill_nodes(observer.states),
            ill_queues(declared, observer.queues),
            ill_partitions(observer.partitions),
            f"publisher {', '.join(map(str, stalled[:5]))} gets no confirms" if stalled else "",
            f"consumer {', '.join(map(str, starved[:5]))} gets nothing of what is ready" if starved else "",
        )
        return "; ".join(filter(None, parts)) or _unseen_nodes(arena.cluster)

    ends_s = time.monotonic() + timeout_s
    try:
        observer.fresh_queues(timeout_s=timeout_s)
    except WaitTimeout:
        return "no node lists the queues"
    try:
        wait_until(
            lacking,
            until=lambda text: not text,
            timeout_s=ends_s - time.monotonic(),
            what="recovery",
            poll_s=RECOVERY_POLL_S,
        )
    except WaitTimeout as error:
        return str(error.last_seen)
    return ""


def _unseen_nodes(cluster: Cluster) -> str:
    """Which nodes some node does not see running; '' if each sees all."""
    names = {cluster.broker_name(node): node for node in cluster.topology.node_names}
    for node in cluster.topology.node_names:
        try:
            unseen = sorted(names[name] for name in names.keys() - cluster.api(node).running_nodes())
        except (ApiError, ApiUnreachable) as error:
            return f"{node} does not tell which nodes it sees: {error}"
        if unseen:
            return f"{node} does not see {', '.join(unseen)} running"
    return ""


def _await_acknowledged(observer: Observer, *, timeout_s: float) -> None:
    """Consumers work off what they hold; one that does not is for a checker to tell."""
    ends_s = time.monotonic() + timeout_s
    with suppress(WaitTimeout):
        wait_until(
            lambda: not any(row["unacked"] for row in observer.fresh_queues(timeout_s=SAMPLED_WITHIN_S).values()),
            timeout_s=max(0.1, ends_s - time.monotonic()),
            what="all deliveries to be acknowledged",
        )


def _last_confirms_within_s(scenario: Scenario) -> float:
    """So long that a queue which confirms nothing any more is told from one that only waits."""
    demanded = scenario.chosen_invariants.get("availability")
    if not isinstance(demanded, Availability):
        return LAST_CONFIRMS_WITHIN_S
    return demanded.bound_s(scenario.topology.net_ticktime_s) + demanded.grace_s + LAST_CONFIRMS_WITHIN_S


def _depths(observer: Observer, queues: Collection[str]) -> Mapping[str, Depth] | None:
    """None also where the brokers do not know of some queue what it holds; a queue that is not there any more holds
    nothing."""
    try:
        rows = observer.fresh_queues(timeout_s=SAMPLED_WITHIN_S)
    except WaitTimeout:
        return None
    known = {name: Depth(row["ready"], row["unacked"]) for name, row in rows.items() if name in queues}
    return None if any(None in depth for depth in known.values()) else known


def _record_cluster(cluster: Cluster, events: EventLog) -> None:
    topology = cluster.topology
    events.record(
        "cluster",
        topology=topology.name,
        nodes={node.name: node.zone for node in topology.nodes},
        partition_handling=topology.partition_handling,
        pause_if_all_down=topology.pause_if_all_down and topology.pause_if_all_down.model_dump(mode="json"),
        net_ticktime_s=topology.net_ticktime_s,
        broker_version=cluster.broker_version,
        khepri=cluster.api(topology.node_names[0]).has_feature("khepri_db"),
        driver=cluster.driver,
        formed_in_s=round(cluster.formed_in_s, 1),
        started_at=datetime.now(UTC).isoformat(timespec="seconds"),
    )
    for setting in cluster.replaced_settings:
        events.record("note", detail=f"the harness has its own value instead of: {setting}")


@contextmanager
def _logs_kept(cluster: Cluster, folder: Path) -> Iterator[None]:
    """Copies what every broker logs meanwhile; a kept cluster's earlier lines belong to other runs."""
    begins = {node: log.stat().st_size if log.exists() else 0 for node, log in cluster.logs().items()}
    try:
        yield
    finally:
        for node, log in cluster.logs().items():
            if log.exists():
                with log.open("rb") as source:
                    source.seek(begins[node])
                    (folder / f"{node}.log").write_bytes(source.read())


@contextmanager
def _vhost(cluster: Cluster, vhost: str) -> Iterator[None]:
    """Deletes the run's own virtual host at the end; one that stays makes the cluster unfit for the next scenario."""
    try:
        yield
    finally:
        for node in cluster.topology.node_names:
            try:
                cluster.api(node).delete_vhost(vhost)
                break
            except (ApiError, ApiUnreachable):
                continue
