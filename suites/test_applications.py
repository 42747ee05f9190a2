"""Real programs, each with another client, while brokers die, links are cut, and a reply comes late.

The programs are in ``examples/applications/``. ``python -m suites.prepared_applications`` prepares them; a program that
is not prepared is skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.nemesis.conditions import AfterStep, NodeIs, When
from rabbitmq_resilience.nemesis.disconnect import Disconnect
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.hold_method import HoldMethod
from rabbitmq_resilience.nemesis.kill import Kill
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.runner.judging import Result
from rabbitmq_resilience.scenario.expectations import Expectation
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.workload.application_model import ApplicationProcess, ApplicationWorkload, Flowing
from suites.prepared_applications import NotPreparedError, Prepared, applications, found

pytestmark = [pytest.mark.clients, pytest.mark.slow]

Play = Callable[[Scenario], Result]

QUEUE = "orders"
WORKER = "application:worker-0"
#: How long a program may take to come back beyond the longest pause of its client, once its brokers are up.
CONNECTED_WITHIN_S = 10.0
CUT_S = 20.0
HELD_S = 25.0
#: Programs that promise to come back; the others are there to be found unsafe, or for one defect.
SOUND = [
    name
    for name, one in applications().items()
    if one.confirms and one.acknowledges == "after_work" and one.shows is None
]

#: `Connection.ensure` opens a channel, and up to kombu 5.6 no consumer on it.
STAYS_AWAY = Expectation(
    broker=">=3.10",
    verdict=Verdict.INVALID,
    invariant="reconnects",
    invariants_also=("consumers",),
    reference="celery/kombu#814",
)

PHASES = Phases(steady_s=5, recovery_s=60, drain_s=60)


@pytest.fixture(params=SOUND)
def program(request: pytest.FixtureRequest) -> Prepared:
    return one_prepared(request.param)


def one_prepared(name: str) -> Prepared:
    """Return a program that is prepared. Skip if it is not."""
    try:
        return found(name)
    except NotPreparedError as error:
        pytest.skip(str(error))


def under(play: Play, what: str, program: Prepared, *schedule: AnyFault, expect: Sequence[Expectation] = ()) -> Result:
    """Play the steps on three brokers with a producer and two workers of the program."""
    folder = program.folder
    producer, worker = (tuple(program.command(role)) for role in ("producer", "worker"))
    back = {"within_s": program.application.pauses_s_max + CONNECTED_WITHIN_S}
    workload = ApplicationWorkload(
        kind="application",
        processes=(
            ApplicationProcess(name="producer", command=producer, folder=folder, stops="before_drain"),
            ApplicationProcess(name="worker", command=worker, folder=folder, number=2),
        ),
        flowing=Flowing(published=50, delivered=50, within_s=90),
    )
    scenario = Scenario(
        title=f"{what}, {program.application.client} {program.application.client_version}",
        seed=4711,
        broker=">=3.10",
        topology=topology_catalogue.load("three_nodes_three_zones"),
        workload=workload,
        phases=PHASES,
        schedule=schedule,
        invariants=Invariants.model_validate(
            {
                "no_loss": {},
                "recovery": {"within_s": 60},
                "reconnects": back,
                "consumers": back,
                "settled": {},
            }
        ),
        expect=tuple(expect),
    )
    return play(scenario)


def test_the_leader_dies(program: Prepared, play: Play) -> None:
    """The node that leads the queue dies for 10 s."""
    under(play, "The leader of its queue dies", program, Kill(at_s=2, for_s=10, node=f"leader:{QUEUE}"))


def test_links_of_a_worker_are_cut(program: Prepared, play: Play) -> None:
    """No connection is closed: a worker hears nothing, and its heartbeats are lost."""
    cut = Partition(at_s=2, for_s=CUT_S, between=(WORKER, "all"))
    under(play, "The links of a worker are cut", program, cut)


def test_brokers_are_restarted_in_turn(program: Prepared, play: Play) -> None:
    under(play, "All brokers are restarted in turn", program, *in_turn("a1", "b1", "c1"))


def test_a_consume_ok_comes_late(program: Prepared, play: Play) -> None:
    """A worker loses its connection, and the reply to its new subscription is held back (dotnet-client#1993)."""
    held = HoldMethod(at_s=1, for_s=HELD_S + 10, method="basic.consume-ok", process="worker-0", hold_s=HELD_S)
    lost = Disconnect(at_s=2, for_s=1, between=(WORKER, "all"))
    under(play, "The reply to a subscription comes late", program, held, lost)


@pytest.mark.parametrize(("name", "expect"), [("kombu-one-consumer", ()), ("kombu-5.5-one-consumer", (STAYS_AWAY,))])
def test_a_consumer_that_is_made_once(name: str, expect: Sequence[Expectation], play: Play) -> None:
    """The connections of a worker are closed, and nothing of it asks for its consumer again (celery/kombu#814)."""
    lost = Disconnect(at_s=2, for_s=1, between=(WORKER, "all"))
    under(play, "A consumer that is made once loses its connection", one_prepared(name), lost, expect=expect)


def in_turn(*nodes: str) -> Sequence[AnyFault]:
    """Return steps that stop each node for 5 s, the next one once the one before is back."""
    first, *others = nodes
    steps: list[AnyFault] = [Stop(at_s=2, for_s=5, node=first)]
    for number, node in enumerate(others):
        back = When(after_step=AfterStep(step=number, wait_s=1.0), node_is=NodeIs(node=nodes[number], state="up"))
        steps.append(Stop(when=back, for_s=5, node=node))
    return steps
