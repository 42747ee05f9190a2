"""What workers read at their start is what the run wrote."""

from __future__ import annotations

from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.workload.load import (
    PROCESSES_MAX,
    Address,
    Load,
    Rebinding,
    RecordedClients,
    grouped,
    worker_name,
)
from rabbitmq_resilience.workload.routing import PublishArguments
from rabbitmq_resilience.workload.services import Service
from tests.workloads.test_settlement import load

DIRECT = (Address("a1", "127.0.0.1", 5001), Address("b1", "127.0.0.1", 5002))
DETOUR = (Address("a1", "127.0.0.1", 6001), Address("b1", "127.0.0.1", 6002))


def test_a_client_with_links_of_its_own_takes_them(tmp_path: Path) -> None:
    saved = load(addresses=DIRECT, proxied_addresses={worker_name("publisher:0"): DETOUR})
    saved.save(tmp_path)
    again = Load.read(tmp_path)

    assert again == saved
    assert again.addresses_of("publisher-0") == DETOUR
    assert again.addresses_of("consumer-0") == DIRECT


def test_few_clients_have_processes_of_their_own_and_many_share_some() -> None:
    assert grouped(4, alone=()) == ()
    assert grouped(6, alone=()) == ((0, 4), (1, 5))
    assert grouped(10, alone={0, 3}) == ((1, 6), (2, 7), (4, 8), (5, 9))


@given(st.integers(0, 60), st.sets(st.integers(0, 60)))
def test_each_client_is_in_one_process(clients: int, alone: set[int]) -> None:
    groups = grouped(clients, alone=alone)
    made = RecordedClients(publishers=clients, consumers=0, in_flight=1, prefetch=1, shared={"publisher": groups})
    processes = made.processes("publisher")
    assert sorted(client for process in processes for client in process.clients) == list(range(clients))
    assert all(process.clients == (client,) for process in processes for client in process.clients if client in alone)
    assert len(processes) <= PROCESSES_MAX + len(alone & set(range(clients)))
    assert all(made.process(process.name) == process for process in made.processes("publisher")[:1])


def test_the_node_is_the_one_that_the_broker_names() -> None:
    places = (Address("balancer:0", "127.0.0.1", 1), Address("balancer:1", "127.0.0.1", 2))
    behind = load(addresses=places, nodes=("a1", "b1", "c1"))
    assert (behind.node(0, "c1"), behind.node(1, "b1")) == (2, 1)
    assert behind.node(1, None) == 1, "nobody tells"
    direct = load(addresses=DIRECT[::-1], nodes=("a1", "b1", "c1"))
    assert (direct.node(0, None), direct.node(1, "a1")) == (1, 0)


def test_services_read_their_own_queues_each_at_its_own_pace(tmp_path: Path) -> None:
    slow = {"processing_ms": 20.0, "variable_processing": [{"processing_ms": 5.0, "for_s": 3.0}], "consume": "at_drain"}
    made = Load(
        run=1,
        seed=1,
        vhost="v",
        addresses=DIRECT,
        queues=("a-1", "a-2", "a-3", "b-1"),
        publishers=3,
        consumers=4,
        services=(
            Service(name="a", queues=3, consumers=2, processing_ms=1.0),
            Service.model_validate({"name": "b", "queues": 1, "consumers": 2, **slow}),
        ),
        turns=(PublishArguments("x", "k", {"kind": "tick"}), PublishArguments("", "a-1", {})),
        rebindings=(Rebinding(0, "x", "k", {"x-match": "any"}),),
    )
    made.save(tmp_path)
    for known in (made, Load.read(tmp_path)):
        assert [known.consumer_queues(consumer) for consumer in range(4)] == [(0, 2), (1,), (3,), (3,)]
        assert [known.processing(consumer).plain for consumer in range(4)] == [1, 1, 20, 20]
        assert [known.processing(consumer).steps for consumer in (0, 3)] == [(), ((5.0, 3.0),)]
        assert [known.publisher_routes(publisher) for publisher in range(3)] == [(0,), (1,), (0,)]
        assert known.routed[0] == PublishArguments("x", "k", {"kind": "tick"})
        assert known.early_consumers == [0, 1]
    assert Load.read(tmp_path) == made
