"""Draw scenarios by Hypothesis. Each demands exactly the promises that its cluster gives.

Quorum queues: nothing is lost or out of order in any mode, a majority goes on, the cluster is whole again in time.
Mirrored queues: the same except availability, because this module does not model which mirrors are in sync. They are
drawn only with ``ha-promote-on-failure: when-synced``, which promises no loss. The oracle (``checkers.oracle``)
decides which losses their mode permits anyway. The mode ``ignore`` is not drawn: after a cut it needs an operator.

Known defects of a version are added as expectations, as in the other suites.
"""

from __future__ import annotations

import random
from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

from hypothesis import HealthCheck, Phase, given, reject, seed, settings
from hypothesis import strategies as st
from hypothesis.strategies import SearchStrategy
from packaging.version import Version

from rabbitmq_resilience.explore.schedules import schedules
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.topology import PauseIfAllDown, Topology
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.guarantees import promised, promising, versions
from rabbitmq_resilience.scenario.known_defects import (
    BREAKS_OFF_HEALING,
    CONFIRMED_IN_A_MINORITY,
    CONFIRMED_WHILE_PAUSING,
    CUT_OFF_AS_IT_STARTS,
    DECIDES_TOO_SOON,
    DISCARDS_TOO_MUCH,
    DOES_NOT_PAUSE,
    OLDER_COPY_LEADS,
    STAYS_PARTED_AFTER_A_BLIP,
    as_demanded,
)
from rabbitmq_resilience.scenario.model import Phases, Scenario
from rabbitmq_resilience.scenario.validation import FaultFileError, ValidatedScenario, validated
from rabbitmq_resilience.workload.queue_settings import Mirroring
from rabbitmq_resilience.workload.workload_model import Workload

RECOVERED_WITHIN_S = 60.0
#: Clusters with fewer nodes promise nothing that outlives a node.
NODES_MIN = 3


@st.composite
def scenarios(draw: st.DrawFn, *, version: str, driver: str, net_ticktime_s: int) -> ValidatedScenario:
    """Draw a scenario that ``driver`` can play on a broker of that version."""
    topology = draw(_topologies(version, net_ticktime_s))
    workload = draw(_workloads(version, topology))
    demanded = _demanded(topology, workload)
    own_seed = draw(st.integers(0, 2**31))
    drawn = promising(
        "Random schedule",
        topology,
        workload,
        draw(schedules(topology, workload, driver)),
        demanded=demanded,
        phases=Phases(steady_s=5, recovery_s=90, settled_s=3, drain_s=60),
        broker=versions(workload),
        expect=_known(topology, workload, tuple(demanded)),
        seed=own_seed,
    )
    return validated(drawn, driver=driver)


@st.composite
def rescheduled(draw: st.DrawFn, base: Scenario, *, driver: str) -> ValidatedScenario:
    """Draw ``base`` with a random schedule that is valid in a fault file; the title says that it is random."""
    named = {field: f"{said[:180]}, random schedule" for field in ("title", "name") if (said := getattr(base, field))}
    schedule = draw(schedules(base.topology, base.workload, driver))
    try:
        return validated(base.model_copy(update={**named, "schedule": schedule}), driver=driver)
    except FaultFileError:
        reject()  # for example: no publisher of a queue is left, but its availability is demanded


def draw_scenarios(
    strategy: SearchStrategy[ValidatedScenario], *, from_seed: int, count: int
) -> Sequence[ValidatedScenario]:
    """Return ``count`` scenarios, or fewer if there are no more.

    They are the same for the same seed, count and loaded modules, whose numbers Hypothesis draws.

    Hypothesis only draws. Its shrinker trusts a single run, so a failure in every second run would mislead it. It draws
    the simplest scenario first, for every seed; that one is left out. Then it draws small ones, so the scenarios are
    shuffled: a short session must not play only small ones."""
    drawn: list[ValidatedScenario] = []

    @seed(from_seed)
    @settings(
        max_examples=count + 1,
        phases=[Phase.generate],
        database=None,
        deadline=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(strategy)
    def collect(scenario: ValidatedScenario) -> None:
        drawn.append(scenario)

    collect()
    examples = drawn[1:]
    random.Random(from_seed).shuffle(examples)  # noqa: S311 - no secret
    return examples


@st.composite
def _topologies(draw: st.DrawFn, version: str, net_ticktime_s: int) -> Topology:
    topology = draw(st.sampled_from(_smallest_first()))
    has_modes = Version(version).release < (4, 3)
    modes = ["pause_minority", "pause_if_all_down", "autoheal"] if has_modes else ["pause_minority"]
    mode = draw(st.sampled_from(modes))
    preferred = st.lists(st.sampled_from(topology.node_names), min_size=1, max_size=2, unique=True)
    choice = PauseIfAllDown(nodes=tuple(draw(preferred))) if mode == "pause_if_all_down" else None
    handling = {"partition_handling": mode, "pause_if_all_down": choice, "net_ticktime_s": net_ticktime_s}
    return Topology.model_validate({**dict(topology), **handling})


@cache
def _smallest_first() -> Sequence[Topology]:
    return sorted(
        (
            topology
            for topology in map(topology_catalogue.load, topology_catalogue.names())
            if len(topology.nodes) >= NODES_MIN and not topology.needs and topology.network is None
        ),
        key=lambda topology: len(topology.nodes),
    )


@st.composite
def _workloads(draw: st.DrawFn, version: str, topology: Topology) -> Workload:
    """Draw a workload with two publishers for each queue, so that a queue keeps one while a fault takes the other.

    There is at least one consumer, and at most one for each queue."""
    nodes = len(topology.nodes)
    kind = draw(st.sampled_from(["quorum", "mirrored"] if Version(version).release < (4,) else ["quorum"]))
    queues = draw(st.integers(1, 4))
    prefetch = draw(st.sampled_from([200, 10, 1]))
    own: Mapping[str, Any] = (
        {"group_size": draw(st.sampled_from([None, *range(3, nodes + 1, 2)]))}
        if kind == "quorum"
        else {"mirroring": draw(st.sampled_from([Mirroring(), Mirroring(ha_mode="exactly", ha_params=2)]))}
    )
    return Workload(
        queue_type=kind,
        queues=queues,
        publishers=2 * queues,
        consumers=draw(st.integers(1, queues)),
        # With a prefetch of 1 a busy machine is slow, and runs whose queues are never drained reach no verdict.
        rate_per_s=draw(st.sampled_from([100, 300, 600] if prefetch > 1 else [100])),
        in_flight=draw(st.sampled_from([100, 10, 1])),
        prefetch=prefetch,
        ack_every=min(prefetch, draw(st.sampled_from([50, 1]))),
        message_bytes=draw(st.sampled_from([1024, 24, 16_384])),
        leaders_on=draw(st.sampled_from([(), *((f"zone:{zone}",) for zone in topology.zones)])),
        **own,
    )


def _demanded(topology: Topology, workload: Workload) -> dict[str, Mapping[str, Any] | None]:
    demanded = {**promised(topology, recovered_within_s=RECOVERED_WITHIN_S), "partition_mode": {}}
    if workload.queue_type != "quorum":
        del demanded["availability"]
    return demanded


def _known(topology: Topology, workload: Workload, demanded: Sequence[str]) -> tuple[Expectation, ...]:
    """Return the known defects that may break demanded promises in some runs. A quorum queue never loses anything."""
    known = [*CUT_OFF_AS_IT_STARTS, OLDER_COPY_LEADS]
    choice = topology.pause_if_all_down
    if topology.partition_handling == "autoheal" or (choice is not None and choice.recover == "autoheal"):
        known += [DECIDES_TOO_SOON, BREAKS_OFF_HEALING, DISCARDS_TOO_MUCH]
    if topology.partition_handling != "autoheal":
        known += [CONFIRMED_IN_A_MINORITY, CONFIRMED_WHILE_PAUSING, STAYS_PARTED_AFTER_A_BLIP]
    if topology.partition_handling == "pause_minority" and "partition_mode" in demanded:
        known += DOES_NOT_PAUSE
    mine = [k for k in known if not k.queue_types or workload.queue_type in k.queue_types]
    return tuple(as_demanded(mine, demanded))
