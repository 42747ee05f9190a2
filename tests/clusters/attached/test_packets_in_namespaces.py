"""Rules and knocks between two network namespaces, each in the place of a machine: what kernels make of them."""

from __future__ import annotations

import os
import secrets
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached import packet_rules, watchdog
from rabbitmq_resilience.extensions.attached.delays import Delays
from rabbitmq_resilience.extensions.attached.disturbing import Knocker
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.packet_rules import DROP, PacketRule, PacketRules, Treatment
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.tools.distributions import find_broker

pytestmark = [
    pytest.mark.attached,  # Erlang knocks
    pytest.mark.skipif(os.geteuid() != 0 or shutil.which("ip") is None, reason="needs root, and ip of iproute2"),
]

ADDRESS = {"a1": "10.213.7.1", "b1": "10.213.7.2"}
LINK = Link("a1", "b1")
PORT = 25672


@dataclass(frozen=True)
class Namespace:
    """A network of its own on this machine; its files and processes are this machine's."""

    name: str
    path: str
    state: str = watchdog.STATE

    @property
    def description(self) -> str:
        return f"namespace {self.name}"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        command = ["nsenter", f"--net=/run/netns/{self.name}", "sh", "-s", "--", *arguments]
        done = subprocess.run(
            command,
            input=script,
            capture_output=True,
            text=True,
            timeout=timeout_s,
            check=False,
            env={**os.environ, "PATH": self.path},
        )
        if done.returncode:
            raise MachineError(f"{self.description}: {done.stderr}")
        return done.stdout

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        raise NotImplementedError


@dataclass(frozen=True)
class OneTool(Namespace):
    """Says that it has only that tool for rules."""

    tool: str = ""

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        if "command -v nft > /dev/null &&" in script and not arguments:
            return self.tool
        return super().run(script, *arguments, timeout_s=timeout_s)


@dataclass(frozen=True)
class WithNetem(Namespace):
    """Says that its kernel and its tools can delay packets."""

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        return "" if "needs sch_netem" in script else super().run(script, *arguments, timeout_s=timeout_s)


@pytest.fixture(scope="module")
def namespaces() -> Iterator[dict[str, Namespace]]:
    mark = secrets.token_hex(3)
    path = f"{find_broker().erlang_bin}:{os.environ['PATH']}:/usr/sbin:/sbin"
    names = {node: Namespace(f"resilience-{mark}-{node}", path) for node in ADDRESS}
    with ExitStack() as stack:
        for namespace in names.values():
            ip("netns", "add", namespace.name)
            stack.callback(ip, "netns", "del", namespace.name)
        ends = dict(zip(ADDRESS, (f"r{mark}a", f"r{mark}b"), strict=True))
        ip("link", "add", ends["a1"], "type", "veth", "peer", "name", ends["b1"])
        for node, end in ends.items():
            ip("link", "set", end, "netns", names[node].name)
            names[node].run(f"ip address add {ADDRESS[node]}/24 dev {end} && ip link set {end} up && ip link set lo up")
        yield names


def ip(*words: str) -> None:
    subprocess.run(["ip", *words], check=True)


@pytest.fixture(params=["nft", "iptables"])
def rules(request: pytest.FixtureRequest, namespaces: dict[str, Namespace]) -> Iterator[PacketRules]:
    """Of b1, by each tool."""
    if shutil.which(request.param, path=namespaces["b1"].path) is None:
        pytest.skip(f"this machine has no {request.param}")
    found = PacketRules(OneTool(**vars(namespaces["b1"]), tool=request.param), key=namespaces["b1"].name)
    yield found
    found.put([], for_s=0)


def knocked(namespaces: dict[str, Namespace], *, times: int = 300) -> list[float]:
    addresses = {LINK: [ADDRESS["b1"]]}
    knocker = Knocker(namespaces, dict.fromkeys(ADDRESS, os.getpid()), addresses, dict.fromkeys(ADDRESS, PORT))
    return knocker.knock([LINK], times=times, at_once=25, wait_s=0.9)[LINK]


def unanswered(namespaces: dict[str, Namespace]) -> int:
    """How many segments of a1 were not refused by b1, as its kernel counts what it sends and repeats."""
    sent, refused = (tcp_counts(namespaces[node]) for node in ("a1", "b1"))
    return sent["OutSegs"] - sent["OutRsts"] + sent["RetransSegs"] - refused["OutRsts"]


def tcp_counts(namespace: Namespace) -> dict[str, int]:
    names, counts = (line.split()[1:] for line in namespace.run("grep ^Tcp: /proc/net/snmp").splitlines())
    return dict(zip(names, map(int, counts), strict=True))


def test_some_packets_are_lost_and_none_once_it_is_undone(namespaces: Any, rules: PacketRules) -> None:
    assert len(knocked(namespaces)) == 300
    before = unanswered(namespaces)
    rules.put([PacketRule(ADDRESS["a1"], Treatment("drop", 20))], for_s=60)
    answered = len(knocked(namespaces))
    lost = rules.lost()[ADDRESS["a1"]]
    assert lost == unanswered(namespaces) - before
    assert 0 < 300 - answered <= lost < 200  # 20 of 100 by chance, and of those that kernels send once more
    rules.put([], for_s=0)
    assert rules.lost() == {}
    assert len(knocked(namespaces)) == 300


def test_who_is_cut_off_meanwhile_loses_all_of_them_and_they_are_not_counted(
    namespaces: Any, rules: PacketRules
) -> None:
    rules.put([PacketRule(ADDRESS["a1"], Treatment("drop", 20)), PacketRule(ADDRESS["a1"], DROP)], for_s=60)
    assert knocked(namespaces, times=20) == []
    assert rules.lost() == {ADDRESS["a1"]: 0}


def test_a_knock_is_answered_by_who_listens_too(namespaces: dict[str, Namespace]) -> None:
    listens = "import socket; s = socket.create_server(('0.0.0.0', 25672)); print('now', flush=True); input()"
    command = ["nsenter", f"--net=/run/netns/{namespaces['b1'].name}", "python3", "-c", listens]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as listening:
        assert listening.stdout is not None
        assert listening.stdout.readline() == "now\n"
        took_ms = knocked(namespaces, times=50)
        listening.kill()
    assert len(took_ms) == 50
    assert min(took_ms) > 0


def test_rules_go_by_themselves(
    namespaces: dict[str, Namespace], rules: PacketRules, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(watchdog, "MARGIN_S", 2.0)
    rules.put([PacketRule(ADDRESS["a1"], Treatment("drop", 20))], for_s=1)
    ends_s = time.monotonic() + 20
    while rules.lost():
        assert time.monotonic() < ends_s, "the watchdog did not heal"
        time.sleep(0.5)
    assert packet_rules.TABLE not in namespaces["b1"].run(f"{rules.tool} {LISTING[rules.tool]}")


LISTING = {"nft": "list ruleset", "iptables": "-S"}


def test_a_qdisc_that_somebody_made_is_seen_and_left_alone(namespaces: dict[str, Namespace]) -> None:
    a1 = namespaces["a1"]
    delays = Delays(WithNetem(**vars(a1)), 22, "a1")
    assert delays.lacking([ADDRESS["b1"]]) == [], "the kernel's own may be replaced"
    device = a1.run(f"ip -o route get {ADDRESS['b1']}").split(" dev ")[1].split()[0]
    a1.run(f"tc qdisc add dev {device} root handle 5: pfifo")
    try:
        (told,) = delays.lacking([ADDRESS["b1"]])
        assert "pfifo 5:" in told
        with pytest.raises(MachineError, match="pfifo 5:"):
            delays.put({ADDRESS["b1"]: Treatment.late(latency_ms=50, jitter_ms=0)}, ports=(), for_s=5)
        assert "qdisc pfifo 5: root" in a1.run(f"tc qdisc show dev {device}")
    finally:
        a1.run(f"tc qdisc del dev {device} root")


def test_a_kernel_without_netem_is_reported(namespaces: dict[str, Namespace]) -> None:
    a1 = namespaces["a1"]
    can = subprocess.run(
        ["nsenter", f"--net=/run/netns/{a1.name}", "tc", "qdisc", "add", "dev", "lo", "root", "netem", "delay", "1ms"],
        capture_output=True,
        check=False,
    )
    missing = Delays(a1, 22, "a1").lacking([])
    assert ("the kernel has no sch_netem" in missing) == bool(can.returncode)
