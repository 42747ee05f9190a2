"""Delays as text: netem is in few kernels on which this is developed."""

from __future__ import annotations

from typing import Any, cast

from rabbitmq_resilience.extensions.attached.delays import Delays
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.packet_rules import Treatment
from tests.messages import Messages

SLOW, SLOWER = Treatment.late(latency_ms=50, jitter_ms=0), Treatment.late(latency_ms=200, jitter_ms=20)


class Shell:
    """A machine whose answers are given, and which notes what it is asked."""

    description = "a machine"
    state = "/run/rabbitmq-resilience"

    def __init__(self, *, taken: str = "") -> None:
        self.taken, self.ran = taken, list[tuple[str, ...]]()

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:  # noqa: ARG002 - the protocol's
        self.ran.append((script, *arguments))
        return self.taken if "which would be replaced" in script else ""


def delays(shell: Shell) -> Delays:
    return Delays(cast(Any, shell), 22, "h1")


def test_only_packets_to_peers_are_delayed_and_never_what_answers_ssh() -> None:
    shell = Shell()
    delays(shell).put({"10.0.0.2": SLOW, "10.0.0.3": SLOWER, "fd00::2": SLOW}, ports=(), for_s=8)
    (*_, armed, (script,)) = shell.ran
    assert armed[1:3] == ("/run/rabbitmq-resilience/h1:delays", "38")
    assert 'tc qdisc del dev "$device" root' in armed[3]
    assert "handle 7e57: prio bands 5\n" in script
    assert "parent 7e57:4 netem delay 50ms limit" in script
    assert "parent 7e57:5 netem delay 200ms 20ms limit" in script
    assert "protocol ip prio 1 u32 match ip protocol 6 0xff match ip sport 22 0xffff flowid 7e57:1\n" in script
    assert "protocol ip prio 2 u32 match ip dst 10.0.0.2/32 flowid 7e57:4\n" in script
    assert "protocol ip prio 2 u32 match ip dst 10.0.0.3/32 flowid 7e57:5\n" in script
    assert "protocol ipv6 prio 4 u32 match ip6 dst fd00::2/128 flowid 7e57:4\n" in script
    assert script.index("sport 22 ") < script.index("dst 10.0.0.2")


def test_only_those_of_the_distribution_where_that_is_stated() -> None:
    shell = Shell()
    delays(shell).put({"10.0.0.2": SLOW}, ports=(25672,), for_s=8)
    script = shell.ran[-1][0]
    for end in ("sport", "dport"):
        assert f"match ip dst 10.0.0.2/32 match ip protocol 6 0xff match ip {end} 25672 0xffff flowid" in script
    assert "match ip dst 10.0.0.2/32 flowid" not in script


def test_a_machine_with_a_qdisc_of_its_own_is_left_alone(message: Messages) -> None:
    shell = Shell(taken="eth0 has a qdisc of its own (htb 1:), which would be replaced\n")
    with message.of(MachineError):
        delays(shell).put({"10.0.0.2": SLOW}, ports=(), for_s=8)
    assert len(shell.ran) == 1


def test_no_more_different_ones_than_there_are_bands(message: Messages) -> None:
    many = {f"10.0.0.{i}": Treatment.late(latency_ms=10 + i, jitter_ms=0) for i in range(14)}
    with message.of(MachineError):
        delays(Shell()).put(many, ports=(), for_s=8)


def test_without_any_all_is_healed() -> None:
    shell = Shell()
    delays(shell).put({}, ports=(), for_s=0)
    healed, (looked,) = shell.ran
    assert healed[1] == "/run/rabbitmq-resilience/h1:delays"
    assert 'tc qdisc del dev "$device" root' in looked, "nobody watched, which says nothing of what is there"
