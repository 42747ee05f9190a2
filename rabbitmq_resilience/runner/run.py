"""Play one scenario. All control flow of a run is in this module, which reads top-down."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import ClassVar, Protocol, TextIO

from rabbitmq_resilience.history.event_log import EventLog
from rabbitmq_resilience.history.events import ENDED_EARLY, PhaseEvent
from rabbitmq_resilience.history.manifest import seal
from rabbitmq_resilience.history.run_directory import RunDirectory
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.node_options import NodeOptions
from rabbitmq_resilience.model.settings import detector_poll_s
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.fault import ActiveLoad, FaultContext
from rabbitmq_resilience.nemesis.nemesis import Nemesis
from rabbitmq_resilience.report.index import write_index
from rabbitmq_resilience.runner.aftermath import await_acknowledged, await_recovery, depths
from rabbitmq_resilience.runner.cpu_watch import cpu_watched
from rabbitmq_resilience.runner.judging import Result, judge_run
from rabbitmq_resilience.runner.load_kinds import KINDS, NUMBERS_SETTLE_S, LoadKind, LoadPlace
from rabbitmq_resilience.runner.measuring import measured, stored_looked_at
from rabbitmq_resilience.runner.round_trip_watch import round_trips_watched
from rabbitmq_resilience.runner.status_line import StatusLine, status_line
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.validation import ValidatedScenario
from rabbitmq_resilience.sut.broker.management import ApiError, ApiUnreachable
from rabbitmq_resilience.sut.last_words import cause_of
from rabbitmq_resilience.sut.observer import Observer
from rabbitmq_resilience.sut.protocol import Cluster, ClusterEvidence, Scraping
from rabbitmq_resilience.tools.distributions import find_prometheus
from rabbitmq_resilience.tools.waiting import interrupted_by, wait_until
from rabbitmq_resilience.workload.worker import LoadNotBegunError

LAST_CONFIRMS_WITHIN_S = 5.0
#: Longer than RabbitMQ's default statistics interval, so that a depth of zero counts only when it is old enough. With a
#: longer interval, this time is longer, too.
DRAIN_IDLE_S = 6.0


class Clusters(Protocol):
    """A source of clusters: it keeps the cluster of the last scenario, or forms a new one."""

    def acquire(
        self, topology: Topology, proxied: frozenset[Link], equipment: NodeOptions, *, logs_of_failure: Path
    ) -> Cluster: ...


@dataclass(frozen=True)
class RunContext:
    """The environment that all scenarios of a session share."""

    __test__: ClassVar[bool] = False  # the name looks like a test class to pytest

    clusters: Clusters
    runs_root: Path
    live: TextIO
    #: Raises ToolMissingError if there is none.
    find_prometheus: Callable[[], object] = find_prometheus
    driver: str = "local"
    #: Raises ToolMissingError if something is missing that faults need.
    require: Callable[[Collection[str]], None] = lambda _: None
    #: Gets the result of each run right after the judgement, also of broken-off runs.
    judged: Callable[[Result], None] = lambda _: None


def run_scenario(scenario: ValidatedScenario, testbed: RunContext, *, proxied: frozenset[Link] | None = None) -> Result:
    """Play ``scenario`` and judge its record.

    ``proxied`` are the links that carry a proxy, by default those that the schedule touches. Before anything is
    started, raise ValueError if the scenario was validated for another driver, and ToolMissingError if something is
    missing that it needs. If a later error is raised, all faults are healed and all processes ended, and the run
    directory holds the record so far with an UNKNOWN verdict. If the load cannot begin, a result is returned.
    """
    scenario.require_driver(testbed.driver)
    testbed.require(scenario.needs | scenario.acts)  # reports missing tools before the start
    if scenario.metrics:
        testbed.find_prometheus()
    run = RunDirectory.create(testbed.runs_root, scenario.title)
    recorded = fault_file.save(scenario, run.fault_file)
    try:
        with EventLog(run.events_file) as events:
            try:
                _play(_Stage(scenario, testbed, run, events), scenario.touched_links if proxied is None else proxied)
            except BaseException as error:
                events.record("note", detail=f"{ENDED_EARLY}: {type(error).__name__}: {error}")
                raise
    except LoadNotBegunError:
        return _judged(run, recorded, testbed)  # the record says how far the load came; there is nothing more to judge
    except BaseException as error:
        _judged(run, recorded, testbed)
        error.add_note(f"The run ended {_ended_in(run)}. Its record: {run.report}")
        raise
    return _judged(run, recorded, testbed)


def _ended_in(run: RunDirectory) -> str:
    """Return in words the phase in which a run ended."""
    phases = [event.phase for event in run.events() if isinstance(event, PhaseEvent)]
    return f"in the phase {phases[-1]}" if phases else "before the load began"


def _judged(run: RunDirectory, scenario: Scenario, testbed: RunContext) -> Result:
    seal(run.path)
    result = judge_run(run, scenario)
    write_index(testbed.runs_root)
    testbed.judged(result)
    return result


@dataclass(frozen=True)
class _Stage:
    """The context that the phases of one run share."""

    scenario: Scenario
    testbed: RunContext
    run: RunDirectory
    events: EventLog


def _play(stage: _Stage, proxied: frozenset[Link]) -> None:
    scenario, events = stage.scenario, stage.events
    with status_line(stage.testbed.live, nodes=len(scenario.topology.nodes)) as live:
        cluster = stage.testbed.clusters.acquire(
            scenario.topology, proxied, scenario.equipment, logs_of_failure=stage.run.logs
        )
        vhost = cluster.vhost_of(stage.run.name)
        _record_cluster(cluster, events)
        with _ends_noted(cluster, events), _logs_kept(cluster, stage.run.logs), _vhost(cluster, vhost):
            place = LoadPlace(cluster, vhost, stage.run.history, stage.run.logs, events)
            kind = KINDS[scenario.workload.kind](scenario, place)
            with interrupted_by(cluster.check):
                kind.prepare()
            with (
                cpu_watched(events.record, cluster.pids, stored_looked_at(scenario, cluster)),
                round_trips_watched(cluster, events.record),
                measured(scenario, cluster, stage.run, events) as scraping,
                Observer(
                    cluster, vhost, events.record, mirrored=scenario.workload.queue_type == "mirrored"
                ) as observer,
                kind.start(alone=_killed_clients(scenario)) as load,
                live.watching(observer, load),
                interrupted_by(cluster.check),
            ):
                load.also_check = cluster.check
                _phases(stage, kind, FaultContext.of(cluster, observer, load), live, scraping)


def _phases(stage: _Stage, kind: LoadKind, context: FaultContext, live: StatusLine, scraping: Scraping | None) -> None:
    scenario, events, observer, load = stage.scenario, stage.events, context.observer, context.load

    def phase(name: str) -> None:
        events.record("phase", phase=name)
        live.phase(name)

    queues = kind.await_flow(context)
    if scraping is not None:
        scraping.await_scraping(nodes=len(scenario.topology.nodes))
    with kind.declaring():
        phase("steady")
        _spend(load, seconds_s=scenario.phases.steady_s)
        phase("chaos")
        varied_s = time.monotonic() + scenario.workload.variation_s
        events.record("load", **kind.load_event(load.begin_variation()))
        record = live.recording(events.record)
        nemesis = Nemesis(scenario.schedule, context, record, scenario.seed, scenario.chaos_s, live.note)
        remade_before = len(context.cluster.links.remade)
        nemesis.play(load.check)
        for proxy in context.cluster.links.remade[remade_before:]:
            events.record("note", detail=f"the proxy {proxy} hung and was created again, which ended its connections")
        _spend(load, seconds_s=max(0.0, varied_s - time.monotonic()))  # steps that wait may all end earlier
        phase("recovery")
        lacking = await_recovery(scenario.phases.recovery_s, context, queues, takes_turns=scenario.workload.takes_turns)
        events.record("recovery", complete=not lacking, detail=lacking)
        _spend(load, seconds_s=scenario.settled_s)
    phase("drain")
    load.stop_publishers(timeout_s=last_confirms_within_s(scenario))
    interval_s = scenario.topology.statistics_interval_s or 0
    idle_s = max(DRAIN_IDLE_S, interval_s + 1.0)
    drained = load.drain(lambda: depths(observer, queues), idle_s=idle_s, timeout_s=scenario.phases.drain_s)
    events.record("drain", **vars(drained))
    if scraping is not None:
        await_acknowledged(observer, timeout_s=scenario.phases.drain_s)
        _spend(load, seconds_s=max(NUMBERS_SETTLE_S, interval_s + 1.0))
    kind.after_drain()
    load.stop()
    phase("end")


def _spend(load: ActiveLoad, *, seconds_s: float) -> None:
    """Let the load run for that time. Raise WorkloadError at once if a worker failed."""
    ends = time.monotonic() + seconds_s

    def spent() -> bool:
        load.check()
        return time.monotonic() >= ends

    wait_until(spent, timeout_s=seconds_s + 10, what="the phase to pass")


def last_confirms_within_s(scenario: Scenario) -> float:
    """Return how long to wait for the last confirms: longer than any invariant lets them stay away.

    So a stuck queue is not mistaken for a slow one. Without confirms, return a time in which brokers read all messages.
    """
    confirm_timeout_s = scenario.workload.confirms_within_s
    if confirm_timeout_s is None:
        return scenario.phases.drain_s
    allowed_s = [
        invariant.last_confirms_s(
            net_ticktime_s=scenario.topology.net_ticktime_s,
            confirm_timeout_s=confirm_timeout_s,
            nodes=len(scenario.topology.nodes),
        )
        for invariant in scenario.chosen_invariants.values()
    ]
    return max(allowed_s, default=0.0) + LAST_CONFIRMS_WITHIN_S


def _record_cluster(cluster: Cluster, events: EventLog) -> None:
    topology = cluster.topology
    api = cluster.api(topology.node_names[0])
    events.record(
        "cluster",
        topology=topology.name,
        nodes={node.name: node.zone for node in topology.nodes},
        partition_handling=topology.partition_handling,
        pause_if_all_down=topology.pause_if_all_down and topology.pause_if_all_down.model_dump(mode="json"),
        net_ticktime_s=topology.net_ticktime_s,
        broker_version=cluster.broker_version,
        erlang_version=str(api.overview()["erlang_version"]),
        khepri=api.has_feature("khepri_db"),
        detector_poll_s=detector_poll_s(topology.settings),
        driver=cluster.driver,
        formed_in_s=round(cluster.formed_in_s, 1),
        started_at=datetime.now(UTC).isoformat(timespec="milliseconds"),
        addresses=topology.addresses,
    )
    if cluster.versions:
        listed = ", ".join(f"{node} {version}" for node, version in sorted(cluster.versions.items()))
        events.record("note", detail=f"the brokers are of several versions, and judged by the lowest: {listed}")
    for setting in cluster.replaced_settings:
        events.record("note", detail=f"the harness has its own value instead of: {setting}")


def _killed_clients(scenario: Scenario) -> frozenset[str]:
    """Return the clients (``publisher:0``) whose process a step of the schedule acts on."""
    touched = (step.footprint(scenario.topology).possible_processes for step in scenario.schedule)
    return frozenset(name for names in touched for name in names if ":" in name)


@contextmanager
def _ends_noted(cluster: Cluster, events: EventLog) -> Iterator[None]:
    """Record at the end which brokers' processes are gone, and how they ended."""
    try:
        yield
    finally:
        with suppress(ClusterError):
            for node in cluster.topology.node_names:
                if (status := cluster.exit_status(node)) is not None:
                    cause = cause_of(status)
                    events.record("note", detail=f"the process of {node} is gone at the end: status {status}{cause}")


@contextmanager
def _logs_kept(cluster: ClusterEvidence, folder: Path) -> Iterator[None]:
    """Copy the logs that brokers and balancers write during the block, and the balancers' configurations.

    Earlier lines of a kept cluster belong to other runs.
    """
    begins = {node: log.stat().st_size if log.exists() else 0 for node, log in cluster.logs().items()}
    try:
        yield
    finally:
        for node, log in cluster.logs().items():
            if log.exists():
                with log.open("rb") as source:
                    source.seek(begins[node])
                    (folder / f"{node}.log").write_bytes(source.read())
        for name, text in cluster.configurations().items():
            (folder / name).write_text(text, encoding="utf-8")


@contextmanager
def _vhost(cluster: Cluster, vhost: str) -> Iterator[None]:
    """Delete the run's virtual host at the end. If it stays, the cluster is not used for the next scenario."""
    try:
        yield
    finally:
        for node in cluster.topology.node_names:
            try:
                cluster.api(node).delete_vhost(vhost)
                break
            except (ApiError, ApiUnreachable):
                continue
