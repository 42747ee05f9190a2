"""What workers read at their start is what the run wrote."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.workload.load import PROCESSES_MAX, Address, Load, Rebinding, Served, grouped, worker_name
from rabbitmq_resilience.workload.routing import PublishArguments
from rabbitmq_resilience.workload.workload_model import Workload

DIRECT = (Address("a1", "127.0.0.1", 5001), Address("b1", "127.0.0.1", 5002))
DETOUR = (Address("a1", "127.0.0.1", 6001), Address("b1", "127.0.0.1", 6002))


def test_a_client_with_links_of_its_own_takes_them(tmp_path: Path) -> None:
    from_workload = Workload().model_dump(include=set(Load.__dataclass_fields__) - {"queues"})
    load = Load(
        run=1,
        seed=2,
        vhost="v",
        addresses=DIRECT,
        queues=("q1",),
        proxied_addresses={worker_name("publisher:0"): DETOUR},
        **from_workload,
    )
    load.save(tmp_path)
    again = Load.read(tmp_path)

    assert again == load
    assert again.addresses_of("publisher-0") == DETOUR
    assert again.addresses_of("consumer-0") == DIRECT


def test_few_clients_have_processes_of_their_own_and_many_share_some() -> None:
    assert grouped(4, alone=()) == ()
    assert grouped(6, alone=()) == ((0, 4), (1, 5))
    assert grouped(10, alone={0, 3}) == ((1, 6), (2, 7), (4, 8), (5, 9))


@given(st.integers(0, 60), st.sets(st.integers(0, 60)))
def test_each_client_is_in_one_process(clients: int, alone: set[int]) -> None:
    groups = grouped(clients, alone=alone)
    unset: dict[str, Any] = {field.name: 1 for field in fields(Load)}
    load = Load(**unset | {"publishers": clients, "consumers": 0, "shared": {"publisher": groups}})
    processes = load.processes("publisher")
    assert sorted(client for process in processes for client in process.clients) == list(range(clients))
    assert all(process.clients == (client,) for process in processes for client in process.clients if client in alone)
    assert len(processes) <= PROCESSES_MAX + len(alone & set(range(clients)))
    assert all(load.process(process.name) == process for process in load.processes("publisher")[:1])


def test_the_node_is_the_one_that_the_broker_names() -> None:
    unset: dict[str, Any] = {field.name: 1 for field in fields(Load)}
    places = (Address("balancer:0", "127.0.0.1", 1), Address("balancer:1", "127.0.0.1", 2))
    behind = Load(**unset | {"addresses": places, "nodes": ("a1", "b1", "c1")})
    assert (behind.node(0, "c1"), behind.node(1, "b1")) == (2, 1)
    assert behind.node(1, None) == 1, "nobody tells"
    direct = Load(**unset | {"addresses": DIRECT[::-1], "nodes": ("a1", "b1", "c1")})
    assert (direct.node(0, None), direct.node(1, "a1")) == (1, 0)


def test_services_read_their_own_queues_each_at_its_own_pace(tmp_path: Path) -> None:
    unset: dict[str, Any] = {field.name: 1 for field in fields(Load)}
    steps = [{"processing_ms": 5.0, "for_s": 3.0}]
    services = (Served(3, 2, 1.0, []), Served(1, 2, 20.0, steps, "at_drain"))
    bound = (Rebinding(0, "x", "k", {"x-match": "any"}),)
    made = Load(
        **unset
        | {"addresses": DIRECT, "proxied_addresses": {}, "shared": {}, "nodes": (), "variable_rate": ()}
        | {"variable_processing": (), "queues": ("a-1", "a-2", "a-3", "b-1"), "consumers": 4, "services": services}
        | {"message_sizes": (), "priorities": (), "dead_letter_queues": {}, "reject_one_in": None}
        | {"turns": (PublishArguments("x", "k", {"kind": "tick"}), PublishArguments("", "a-1", {})), "publishers": 3}
        | {"rebindings": bound}
    )
    made.save(tmp_path)
    for load in (made, Load.read(tmp_path)):
        assert [load.consumer_queues(consumer) for consumer in range(4)] == [(0, 2), (1,), (3,), (3,)]
        assert [load.processing(consumer).plain for consumer in range(4)] == [1, 1, 20, 20]
        assert [load.processing(consumer).steps for consumer in (0, 3)] == [(), ((5.0, 3.0),)]
        assert [load.publisher_routes(publisher) for publisher in range(3)] == [(0,), (1,), (0,)]
        assert load.routed[0] == PublishArguments("x", "k", {"kind": "tick"})
        assert load.early_consumers == [0, 1]
    assert Load.read(tmp_path) == made
