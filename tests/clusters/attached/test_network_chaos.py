"""What is asked of Chaos Mesh, what is made of its answers, and how one is healed whose deletion hangs. What Chaos Mesh
would do is done by the tests."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached.disturbing import treated_packets
from rabbitmq_resilience.extensions.attached.fault_budget import BlastRadius
from rabbitmq_resilience.extensions.attached.held_links import HeldLinks
from rabbitmq_resilience.extensions.attached.journal import Journal
from rabbitmq_resilience.extensions.attached.machine import ForcedError, MachineError
from rabbitmq_resilience.extensions.attached.machine_links import AttachedLinks, BrokerLinks, LinkMachines
from rabbitmq_resilience.extensions.attached.offers import Offers, Ssh
from rabbitmq_resilience.extensions.attached.packet_rules import DROP, RESET, PacketRule, Treatment
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.packets import Disturbance

pytest.importorskip("kubernetes")

from rabbitmq_resilience.extensions.attached.kubernetes import cleanup, network_chaos
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods
from tests.clusters.attached.api_server import ApiServer, Body, api_server
from tests.messages import Messages

CHAOS = "/apis/chaos-mesh.org/v1alpha1/namespaces/shop/networkchaos"
MEANT = "/apis/chaos-mesh.org/v1alpha1/namespaces/shop/podnetworkchaos"
PODS = "/api/v1/namespaces/shop/pods"
#: Each is called otherwise.
NAMED = {r"(resilience-rabbit-\d)-\w+": r"\1-NAME"}


@dataclass
class Seen:
    """Sees a pod's network: what it finds at each look, and whether it was told to take that away."""

    finds: list[str] = field(default_factory=list)
    undone: bool = False
    state: str = "/tmp"  # noqa: S108 - nothing is written there
    description: str = "pod shop/somewhere"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:  # noqa: ARG002 - of the protocol
        if "tc qdisc del " in script:
            self.undone = True
            return ""
        return self.finds.pop(0) if self.finds else ""

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> Any:  # noqa: ARG002 - of the protocol
        raise AssertionError("nothing is connected to")


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    for module, name in [
        (network_chaos, "IN_PLACE_WITHIN_S"),
        (network_chaos, "GONE_WITHIN_S"),
        (cleanup, "BROUGHT_ABOUT_WITHIN_S"),
    ]:
        monkeypatch.setattr(module, name, 0.2)
    with api_server() as found:
        for n in range(3):
            spec = {"containers": [{"name": "rabbitmq", "image": "rabbitmq"}]}
            found.put(PODS, f"rabbit-{n}", spec=spec, status={"podIP": f"10.0.0.{n}"})
        found.made = in_place
        yield found


def in_place(body: Body) -> None:
    body["status"] = {"conditions": [{"type": "AllInjected", "status": "True"}]}


def failing(body: Body) -> None:
    """As Chaos Mesh tells where the kernel has no netem."""
    event = {"type": "Failed", "operation": "Apply", "message": "unable to set tcs"}
    record = {"id": "shop/rabbit-1", "selectorKey": ".", "phase": "Not Injected/Wait", "events": [event]}
    body["metadata"]["finalizers"] = ["chaos-mesh/records"]
    body["status"] = {
        "conditions": [{"type": "AllInjected", "status": "False"}],
        "experiment": {"containerRecords": [record]},
    }


def chaos_of(server: ApiServer, seen: dict[str, Seen] | None = None) -> network_chaos.NetworkChaos:
    """Of what rabbit-0 receives."""
    beside = seen or {f"rabbit-{n}": Seen() for n in range(3)}
    return network_chaos.NetworkChaos(Pods(server.configuration, "shop", "rabbitmq"), "rabbit-0", beside)


@pytest.mark.core
@pytest.mark.parametrize(
    ("how", "action", "told"),
    [
        (DROP, "partition", {}),
        (Treatment("drop", 5.0), "loss", {"loss": {"loss": "5", "correlation": "0"}}),
        (
            Treatment("delay", latency_ms=80, jitter_ms=20),
            "delay",
            {"delay": {"latency": "80ms", "jitter": "20ms", "correlation": "0"}},
        ),
    ],
)
def test_what_is_sent(server: ApiServer, how: Treatment, action: str, told: Body) -> None:
    chaos_of(server).put([PacketRule("10.0.0.1", how), PacketRule("10.0.0.2", how)], for_s=20.5)
    [(_, body)] = server.did("POST", of=CHAOS)
    assert body["metadata"]["name"].startswith("resilience-rabbit-0-")
    assert body["spec"] == {
        "action": action,
        "mode": "all",
        "selector": {"namespaces": ["shop"], "pods": {"shop": ["rabbit-1", "rabbit-2"]}},
        "direction": "to",
        "target": {"mode": "all", "selector": {"namespaces": ["shop"], "pods": {"shop": ["rabbit-0"]}}},
        "duration": "51s",
        **told,
    }, "its own end is 30 s after that of the fault"


@pytest.mark.core
def test_what_comes_in_the_place_of_another_is_there_before_that_goes(server: ApiServer) -> None:
    chaos = chaos_of(server)
    chaos.put([PacketRule("10.0.0.1", DROP)], for_s=20)
    chaos.put([PacketRule("10.0.0.1", DROP), PacketRule("10.0.0.2", DROP)], for_s=20)
    assert [verb for verb, _, _ in server.asked] == ["POST", "POST", "DELETE"]
    [left] = chaos.existing()
    assert left["spec"]["selector"]["pods"] == {"shop": ["rabbit-1", "rabbit-2"]}
    chaos.put([], for_s=0)
    assert chaos.existing() == []


@pytest.mark.core
@pytest.mark.parametrize(
    "rule",
    [
        (PacketRule("10.0.0.1", RESET)),
        (PacketRule("10.0.0.1", DROP, 25672)),
        (PacketRule("10.0.0.9", DROP)),
    ],
)
def test_what_it_cannot_do_is_reported_and_not_asked_of_it(
    server: ApiServer, rule: PacketRule, message: Messages
) -> None:
    with message.of(MachineError):
        chaos_of(server).put([rule], for_s=20)
    assert server.asked == []


@pytest.mark.core
def test_one_that_is_not_brought_about_is_reported_with_its_own_words(server: ApiServer, message: Messages) -> None:
    server.made = failing
    with message.of(MachineError, hide=NAMED):
        chaos_of(server).put([PacketRule("10.0.0.1", Treatment("delay", latency_ms=80))], for_s=20)


def hanging(server: ApiServer, *sources: str) -> str:
    """One whose deletion hangs, from rabbit-1 to rabbit-0, and what is still meant to be done to rabbit-1."""
    server.made = failing
    chaos = chaos_of(server)
    with pytest.raises(MachineError):
        chaos.put([PacketRule("10.0.0.1", Treatment("delay", latency_ms=80))], for_s=20)
    [one] = chaos.existing()
    name = str(one["metadata"]["name"])
    tcs = [{"type": "netem", "source": f"shop/{each}"} for each in (name, *sources)]
    server.put(MEANT, "rabbit-1", spec={"tcs": tcs}, status={"failedMessage": "unable to set tcs"})
    server.changed = lambda body: body.get("status", {}).pop("failedMessage", None)
    return name


@pytest.mark.core
def test_one_whose_deletion_hangs_is_let_go_and_what_it_left_is_undone(server: ApiServer, message: Messages) -> None:
    name = hanging(server)
    seen = {f"rabbit-{n}": Seen() for n in range(3)}
    seen["rabbit-1"].finds = ["qdisc prio 1: dev eth0 root refcnt 9 bands 4\n", ""]
    chaos = chaos_of(server, seen)
    with message.of(ForcedError, hide=NAMED) as told:
        chaos.put([], for_s=0)
    assert name in str(told.value)
    assert "qdisc prio 1: dev eth0 root refcnt 9 bands 4" in str(told.value)
    assert chaos.existing() == []
    assert server.objects[f"{MEANT}/rabbit-1"]["spec"]["tcs"] == [], "its controller would try on and on"
    assert [seen[f"rabbit-{n}"].undone for n in range(3)] == [False, True, False]
    chaos.put([], for_s=0)


@pytest.mark.core
def test_what_is_left_after_all_is_no_healing(server: ApiServer, message: Messages) -> None:
    hanging(server)
    seen = {f"rabbit-{n}": Seen() for n in range(3)}
    seen["rabbit-1"].finds = ["qdisc prio 1:\n", "qdisc prio 1:\n"]
    chaos = chaos_of(server, seen)
    with message.of(MachineError, hide=NAMED) as told:
        chaos.put([], for_s=0)
    assert not isinstance(told.value, ForcedError)
    assert len(chaos.existing()) == 1, "who heals it later finds it by that"


@pytest.mark.core
def test_what_others_do_to_a_pod_is_left_alone(server: ApiServer, message: Messages) -> None:
    hanging(server, "somebodys-own")
    seen = {f"rabbit-{n}": Seen() for n in range(3)}
    seen["rabbit-1"].finds = ["qdisc prio 1:\n"]
    with message.of(MachineError, hide=NAMED):
        chaos_of(server, seen).put([], for_s=0)
    assert not seen["rabbit-1"].undone
    meant = server.objects[f"{MEANT}/rabbit-1"]["spec"]["tcs"]
    assert [one["source"] for one in meant] == ["shop/somebodys-own"]


@pytest.mark.core
def test_packets_that_netem_has_met_are_counted_where_they_are_sent(server: ApiServer) -> None:
    seen = {f"rabbit-{n}": Seen() for n in range(3)}
    seen["rabbit-1"].finds = ['[{"kind": "prio"}, {"kind": "netem", "packets": 40, "drops": 2}]']
    chaos = chaos_of(server, seen)
    chaos.put([PacketRule("10.0.0.1", Treatment("drop", 5.0))], for_s=20)
    assert chaos.lost() == {"10.0.0.1": 42}


@dataclass
class Half:
    """Rules of one node that are written, and then told as a failure."""

    tool = "NetworkChaos"
    written: list[Collection[PacketRule]] = field(default_factory=list)

    def put(self, rules: Collection[PacketRule], *, for_s: float) -> None:  # noqa: ARG002 - of the protocol
        self.written.append(rules)
        if rules:
            raise MachineError("not in place after 30 s")

    def lost(self) -> Mapping[str, int]:
        return {}


def test_what_came_about_in_part_is_taken_back_where_no_one_else_would(message: Messages) -> None:
    half, link = Half(), Link("a1", "b1")
    ends = LinkMachines({}, {link.back: ["10.0.0.1"]}, {})
    hands: Any = SimpleNamespace(take=lambda *_, **__: None, leave=lambda *_: None)
    of_clients: Any = SimpleNamespace(proxied=frozenset())
    links = AttachedLinks(of_clients, BrokerLinks(ends, {"b1": half}), hands, {"b1": "rabbit@b1"})
    slow = Disturbance("netem", "delay", {"time": "80", "jitter": "10", "correlation": "0"})
    with message.of(MachineError):
        treated_packets(links, [link], slow)
    how = Treatment("delay", latency_ms=80, jitter_ms=10)
    assert half.written == [[PacketRule("10.0.0.1", how)], []]


@dataclass
class Forced(HeldLinks):
    """Heals, and tells that it had to be forced."""

    nodes = frozenset({"a1", "b1"})

    def _bring(self, how: Any, links: Any) -> None:  # noqa: ARG002 - of all kinds
        if not any(self._wanted[link] for link in links):
            raise ForcedError("its deletion hung")


def test_what_was_healed_by_force_is_reported_and_is_not_left_in_the_journal(tmp_path: Path, message: Messages) -> None:
    stated: Any = SimpleNamespace(offers=Offers(ssh=Ssh()), allow={"cut": 1})
    hands = BlastRadius(stated, Journal(tmp_path / "journal.jsonl"))
    hands.take("cut", ["rabbit@b1"], for_s=20)
    proxied: Any = type("None", (), {"proxied": frozenset(), "restore": lambda *_: None})()
    links = AttachedLinks(proxied, Forced(), hands, {"a1": "rabbit@a1", "b1": "rabbit@b1"})
    with message.of(ForcedError):
        links.restore([Link("a1", "b1")])
    assert hands.journal.unhealed() == []
    assert hands.held(["cut"]) == []
