"""What Pumba is called with for which links, and what is read of the kernel's counts."""

from __future__ import annotations

import itertools
import shlex
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.packets import (
    By,
    Disturbance,
    PumbaOrder,
    dropped_from,
    met,
    orders,
    passed_netem,
    resets_sent,
)
from rabbitmq_resilience.model.stressors import Stressors
from rabbitmq_resilience.sut.containers.pumba import PumbaCall
from rabbitmq_resilience.tools.distributions import ToolMissingError, find_pumba
from rabbitmq_resilience.tools.image_names import NETWORK_TOOLS, Chosen, network_tools
from rabbitmq_resilience.tools.waiting import wait_until
from tests.messages import Messages

LOSS = Disturbance("iptables", "loss", {"mode": "random", "probability": "0.20"})
CORRUPT = Disturbance("netem", "corrupt", {"percent": "5.00"})

#: As iptables 1.8.9 (nf_tables) prints it in a container, with a rule of somebody else.
INPUT_CHAIN = """\
Chain INPUT (policy ACCEPT 72 packets, 4320 bytes)
    pkts      bytes target     prot opt in     out     source               destination
      31     1860 DROP       0    --  eth0   *       172.28.0.2           0.0.0.0/0            statistic mode random probability 0.29999999981
       0        0 DROP       0    --  eth0   *       172.28.0.4           0.0.0.0/0            statistic mode random probability 0.29999999981
       7      420 DROP       6    --  *      *       172.28.0.9           0.0.0.0/0            tcp dpt:22
"""  # noqa: E501 - its own lines
SNMP = """\
Ip: Forwarding DefaultTTL InReceives
Ip: 1 64 300
Tcp: RtoAlgorithm OutSegs RetransSegs InErrs OutRsts InCsumErrors
Tcp: 1 252 3 0 200 0
"""


def test_zones_become_containers_and_addresses() -> None:
    words = LOSS.arguments(["run-b1", "run-b2"], peers=["10.0.0.2", "10.0.0.3"], image="tools:1", for_s=80)

    assert shlex.join(words) == (
        "iptables --duration 80000ms --source 10.0.0.2/32 --source 10.0.0.3/32 --iptables-image tools:1 "
        "--pull-image=false loss --mode random --probability 0.20 run-b1 run-b2"
    )
    assert shlex.join(CORRUPT.arguments(["run-a1"], peers=["10.0.0.9"], image="tools:1", for_s=0.5)) == (
        "netem --duration 500ms --target 10.0.0.9/32 --tc-image tools:1 --pull-image=false "
        "corrupt --percent 5.00 run-a1"
    )


@pytest.mark.parametrize("lacking", [{"containers": [], "peers": ["10.0.0.2"]}, {"containers": ["a1"], "peers": []}])
def test_pumba_is_never_asked_to_act_on_everything(lacking: dict[str, list[str]]) -> None:
    with pytest.raises(AssertionError, match="Pumba acts on"):
        LOSS.arguments(lacking["containers"], peers=lacking["peers"], image="tools:1", for_s=1)


def test_iptables_acts_where_packets_arrive_and_netem_where_they_leave() -> None:
    links = [Link("a1", "b1"), Link("a1", "b2"), Link("a2", "b1"), Link("a2", "b2")]

    assert orders(LOSS, links) == [PumbaOrder(("b1", "b2"), ("a1", "a2"))]
    assert orders(CORRUPT, links) == [PumbaOrder(("a1", "a2"), ("b1", "b2"))]


NODES = ("a1", "a2", "b1", "c1")
LINKS = st.sets(st.sampled_from([Link(a, b) for a, b in itertools.permutations(NODES, 2)]))


@given(LINKS, st.sampled_from([LOSS, CORRUPT]))
def test_exactly_the_links_are_disturbed(links: set[Link], disturbance: Disturbance) -> None:
    told = [(node, peer) for order in orders(disturbance, links) for node in order.nodes for peer in order.peers]

    assert sorted(told) == sorted((disturbance.node_of(link), disturbance.peer_of(link)) for link in links)


def test_dropped_packets_are_counted_by_address() -> None:
    assert dropped_from(INPUT_CHAIN) == {"172.28.0.2": 31, "172.28.0.4": 0}
    assert met("iptables", INPUT_CHAIN, peers=["172.28.0.2"]) == {"172.28.0.2": 31}
    assert dropped_from("Chain INPUT (policy ACCEPT 0 packets, 0 bytes)\n") == {}


def test_netem_counts_what_it_passes_and_what_it_drops() -> None:
    prio = '{"kind": "prio", "packets": 900, "drops": 4}'
    listing = f'[{prio}, {{"kind": "netem", "parent": "1:3", "packets": 80, "drops": 4}}]'

    assert passed_netem(listing) == 84
    assert met("netem", listing, peers=["10.0.0.2", "10.0.0.3"]) == {"10.0.0.2": 84, "10.0.0.3": 84}
    assert met("netem", f"[{prio}]", peers=["10.0.0.2"]) == {}


@pytest.mark.parametrize("by", ["iptables", "netem"])
def test_where_nothing_is_listed_nothing_is_in_place(by: By) -> None:
    assert met(by, "", peers=["10.0.0.2"]) == {}


def test_refused_connections_are_read_from_the_kernel_s_table() -> None:
    assert resets_sent(SNMP) == 200


def test_tools_come_with_a_broker_s_image_that_was_built_here() -> None:
    local = "rabbitmq-resilience/rabbitmq:3.10.8"
    assert network_tools(local) == Chosen(local, None, built=True)
    assert network_tools("rabbitmq:3.10.8-management") == Chosen(NETWORK_TOOLS, None, built=False)


def test_stressors_are_given_to_stress_ng_in_its_words() -> None:
    end = ("--timeout", "140s", "--seed", "7")

    assert Stressors(cpu_workers=2).words(for_s=140, mark=7) == ("--cpu", "2", *end)
    memory = ("--vm", "1", "--vm-bytes", "1000000b", "--vm-keep")
    assert Stressors(memory_bytes=10**6).words(for_s=140, mark=7) == (*memory, *end)
    assert Stressors(io_workers=3).words(for_s=140, mark=7) == ("--hdd", "3", "--hdd-bytes", "64m", *end)


@pytest.fixture
def program(tmp_path: Path) -> Callable[[str], Path]:
    """A program in Pumba's place that runs a script."""

    def written(script: str) -> Path:
        path = tmp_path / "pumba"
        path.write_text(f"#!/bin/sh\n{script}\n")
        path.chmod(0o755)
        return path

    return written


def test_pumba_is_found_by_name_or_on_path_and_else_missed(
    tmp_path: Path, program: Callable[[str], Path], message: Messages
) -> None:
    path = program("exit 0")

    assert find_pumba(environ={"PUMBA": str(path)}) == path
    assert find_pumba(environ={"PATH": str(tmp_path)}) == path
    with message.of(ToolMissingError):
        find_pumba(environ={"PATH": str(tmp_path / "none")}, tools=tmp_path)
    with message.of(ToolMissingError):
        find_pumba(environ={"PUMBA": str(tmp_path / "none")})


@pytest.mark.core
def test_a_call_is_ended_so_that_it_can_put_things_back(tmp_path: Path, program: Callable[[str], Path]) -> None:
    log = tmp_path / "pumba.log"
    log.write_text("an earlier call\n")
    undo = "trap 'echo put back; exit 0' TERM; echo started; while :; do sleep 0.05; done"
    call = PumbaCall(program(undo), ["kill"], folder=tmp_path, log=log)
    wait_until(lambda: call.last_words, timeout_s=60, what="it to start", until=lambda words: words == "started")
    assert call.exit_status is None
    call.close()

    assert call.exit_status == 0
    assert log.read_text() == "an earlier call\nstarted\nput back\n"


@pytest.mark.core
def test_a_call_that_fails_shows_its_last_words(tmp_path: Path, program: Callable[[str], Path]) -> None:
    log = tmp_path / "pumba.log"
    call = PumbaCall(program('echo "$@"; echo no such qdisc >&2; exit 1'), ["netem"], folder=tmp_path, log=log)
    wait_until(lambda: call.exit_status, timeout_s=60, what="it to end", until=lambda status: status is not None)

    assert (call.exit_status, call.last_words) == (1, "no such qdisc")
    call.close()
    assert log.read_text() == "--log-level info netem\nno such qdisc\n"


@pytest.mark.core
def test_a_call_that_does_not_end_is_killed(
    tmp_path: Path, program: Callable[[str], Path], monkeypatch: pytest.MonkeyPatch, message: Messages
) -> None:
    monkeypatch.setattr("rabbitmq_resilience.sut.containers.pumba.ENDED_WITHIN_S", 0.2)
    script = "trap '' TERM; echo deaf; while :; do sleep 0.05; done"
    call = PumbaCall(program(script), [], folder=tmp_path, log=tmp_path / "pumba.log")
    wait_until(lambda: call.last_words, timeout_s=60, what="it to start", until=lambda words: words == "deaf")

    with message.of(ClusterError):
        call.close()
    assert call.exit_status == -9
