"""Brokers are upgraded to the next version during the load: one of them, some of them for a while, all of them.

``sut.broker.versions`` lists the versions between which RabbitMQ supports that, with the sources. Other upgrades
are skipped with the reason. An operator upgrades a node once no queue depends on it, and enables new feature flags
after the last node.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import pytest
from packaging.version import Version

from rabbitmq_resilience.checkers.pauses import NET_SETUPTIME_S
from rabbitmq_resilience.model.topology import Topology
from rabbitmq_resilience.nemesis.conditions import AfterStep, When
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.nemesis.upgrade import Upgrade
from rabbitmq_resilience.plugin import options
from rabbitmq_resilience.plugin.checking import NO_BROKER, version_of
from rabbitmq_resilience.plugin.sessions import give_up
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.guarantees import Demanded, promised, promising, throughput_kept, versions
from rabbitmq_resilience.scenario.known_defects import DOES_NOT_PAUSE, as_demanded
from rabbitmq_resilience.scenario.model import Phases, Scenario
from rabbitmq_resilience.sut.broker.versions import next_series, refusal
from rabbitmq_resilience.sut.drivers import FORMING, OpenDriver
from rabbitmq_resilience.tools.image_names import official_series
from suites.case_study import FIRST_STEP_S, PHASES, RECOVERED_WITHIN_S
from suites.partitions import QUEUE_TYPES, acted_upon_s, shape, workload
from suites.test_rolling_restarts import AWAY_S, turn

pytestmark = [pytest.mark.upgrades, pytest.mark.slow, pytest.mark.parametrize("queue_type", QUEUE_TYPES)]

Play = Callable[[Scenario], Result]

THREE = "three_nodes_three_zones"
FIVE = "five_nodes_three_zones"
#: The longest that a node may keep the next one waiting.
EACH_S = 150.0
#: How long brokers of two versions serve together before one of them dies.
MIXED_S = 10.0


@dataclass(frozen=True)
class Step:
    """Play an upgrade from the version that the options name to ``to``: a version, an image or a broker's folder, which
    is of the version ``new``."""

    old: str
    to: str
    new: str


@pytest.fixture
def step(request: pytest.FixtureRequest, pytestconfig: pytest.Config, queue_type: str) -> Step:
    """Return what ``--upgrade-to`` names, else the last release of the next series. Skip what is not supported.

    End the session if there is no broker as ``--upgrade-to`` names it. Fetch and start nothing if scenarios are only
    checked."""
    if (name := options.driver(pytestconfig)) not in FORMING:
        pytest.skip(f"the driver {name} has clusters of others, whose brokers are not upgraded")
    checks = options.value(pytestconfig, "check-only")
    driver: OpenDriver | None = None if checks else request.getfixturevalue("driver")
    old = driver.broker_version if driver else version_of(pytestconfig)
    if old is None:
        pytest.skip("the version of the broker is known only when it is played")
    series = next_series(old)
    latest = official_series(series) if series and name == "docker" else series
    named = pytestconfig.getoption("--upgrade-to")
    to = named or latest
    if to is None:
        pytest.skip(f"there is no series after {old} yet: name a later patch release with --upgrade-to")
    try:
        new = driver.version_of(to) if driver else version_of(pytestconfig, to) or named or str(series)
    except NO_BROKER as error:
        if named:
            give_up(pytestconfig, f"--upgrade-to {named}: {error}")
        pytest.skip(str(error))
    if not new[:1].isdigit():
        return Step(old, to, new)  # an image whose name does not show its version
    if reason := refusal(old, new):
        pytest.skip(reason)
    if queue_type == "mirrored" and Version(new).major >= 4:
        pytest.skip(f"there are no mirrored queues in RabbitMQ {new}")
    return Step(old, to, new)


def upgraded(play: Play, title: str, step: Step, topology: Topology, queue_type: str, *schedule: AnyFault) -> Result:
    load = workload(queue_type)
    demanded: Demanded = {
        **promised(topology, recovered_within_s=RECOVERED_WITHIN_S),
        "throughput": throughput_kept(),
        "partition_mode": {},
    }
    is_cut = any(isinstance(fault, Partition) for fault in schedule)
    scenario = promising(
        title,
        topology,
        load,
        schedule,
        demanded=demanded,
        phases=Phases.model_validate({**PHASES, "chaos_s": EACH_S * len(schedule)}),
        broker=versions(load),
        about=f"{step.old} to {step.new}",
        expect=tuple(as_demanded(DOES_NOT_PAUSE, demanded)) if is_cut else (),
    )
    return play(scenario)


def rolled(step: Step, topology: Topology, *, drain: bool = False) -> list[Upgrade]:
    """Return the upgrade of each node in turn, once no queue depends on it; the last one enables the feature flags."""
    names = topology.node_names
    return [
        Upgrade(
            for_s=AWAY_S,
            node=node,
            to=step.to,
            drain=drain,
            enable_feature_flags=node == names[-1],
            **turn(i, node, names[i - 1], waiting=True),
        )
        for i, node in enumerate(names)
    ]


def test_one_node(step: Step, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """The upgraded node may lead queues, and the others go on with their old version."""
    upgrade = Upgrade(at_s=FIRST_STEP_S, for_s=AWAY_S, node="leader:q1", to=step.to)
    upgraded(play, "One node is upgraded", step, shape(THREE, net_ticktime_s), queue_type, upgrade)


def test_mixed_versions(step: Step, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """A zone is upgraded. Then a node of the old version dies, and once it is back, one of the new version."""
    schedule = (
        Upgrade(at_s=FIRST_STEP_S, for_s=AWAY_S, node="zone:b", to=step.to),
        Kill(when=When(after_step=AfterStep(step=0, wait_s=MIXED_S)), for_s=AWAY_S, node="a1"),
        Kill(when=When(after_step=AfterStep(step=1, wait_s=MIXED_S)), for_s=AWAY_S, node="b1"),
    )
    title = "Two versions serve together while nodes die"
    upgraded(play, title, step, shape(FIVE, net_ticktime_s), queue_type, *schedule)


@pytest.mark.parametrize("drain", [False, True], ids=["graceful", "drained"])
def test_rolled_over_all_nodes(drain: bool, step: Step, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """Each node is upgraded in turn once no queue depends on it; the new feature flags follow in the end."""
    topology = shape(THREE, net_ticktime_s)
    title = f"An upgrade is rolled over all nodes{', each drained' if drain else ''}"
    result = upgraded(play, title, step, topology, queue_type, *rolled(step, topology, drain=drain))
    assert result.document["upgraded_to"], "no node was seen on its new version"


def test_a_cut_after_all_nodes_are_upgraded(step: Step, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """All nodes are upgraded and all flags enabled. Then a node is cut off, for longer than nodes of 4.0 take to pause:
    from 4.2 on it does not pause any more."""
    topology = shape(THREE, net_ticktime_s)
    last = When(after_step=AfterStep(step=len(topology.nodes) - 1, wait_s=MIXED_S))
    cut = Partition(when=last, for_s=acted_upon_s(topology) + NET_SETUPTIME_S, between=("zone:b", "rest"))
    title = "A node is cut off after an upgrade"
    upgraded(play, title, step, topology, queue_type, *rolled(step, topology), cut)


def test_zone_after_zone(step: Step, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """All nodes of a zone are upgraded at once, zone by zone, as in maintenance; the feature flags follow in the
    end."""
    topology = shape(FIVE, net_ticktime_s)
    zones = list(dict.fromkeys(node.zone for node in topology.nodes))
    last = [[node.name for node in topology.nodes if node.zone == zone][-1] for zone in zones]
    schedule = [
        Upgrade(
            for_s=AWAY_S,
            node=f"zone:{zone}",
            to=step.to,
            enable_feature_flags=zone == zones[-1],
            **turn(i, last[i], last[i - 1], waiting=True),
        )
        for i, zone in enumerate(zones)
    ]
    result = upgraded(play, "Zones are upgraded one after another", step, topology, queue_type, *schedule)
    assert result.document["upgraded_to"], "no node was seen on its new version"


def test_a_cut_between_two_versions(step: Step, queue_type: str, net_ticktime_s: int, play: Play) -> None:
    """A zone is upgraded and then cut off, so that brokers of both versions decide which side goes on."""
    topology = shape(FIVE, net_ticktime_s)
    mixed = When(after_step=AfterStep(step=0, wait_s=MIXED_S))
    schedule = (
        Upgrade(at_s=FIRST_STEP_S, for_s=AWAY_S, node="zone:b", to=step.to),
        Partition(when=mixed, for_s=acted_upon_s(topology), between=("zone:b", "rest")),
    )
    upgraded(play, "Two versions are cut apart", step, topology, queue_type, *schedule)
