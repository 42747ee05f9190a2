"""What machines lack for an act, by what they answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from rabbitmq_resilience.extensions.attached.changing import ChangedBroker
from rabbitmq_resilience.extensions.attached.missing_tools import lacking
from rabbitmq_resilience.extensions.attached.offers import Offers, Ssh
from rabbitmq_resilience.extensions.attached.ways import Ways
from tests.messages import Messages

STATED: Any = SimpleNamespace(offers=Offers(ssh=Ssh()))


class There:
    """A machine in a network of that name, without tools."""

    def __init__(self, network: str) -> None:
        self.description, self.network = "ssh root@h", network

    def run(self, script: str, *arguments: str) -> str:
        return self.network if "ns/net" in script else "".join(f"there is no {name}\n" for name in arguments)


def ways(*networks: str) -> Ways:
    machines: Any = {f"rabbit@h{n}": There(network) for n, network in enumerate(networks)}
    rules: Any = dict.fromkeys(machines, SimpleNamespace(tool="nft"))
    changed: Any = {name: ChangedBroker(machine, None, name, name) for name, machine in machines.items()}  # type: ignore[arg-type]
    return Ways(machines, rules=rules, changed=changed)


@pytest.mark.parametrize("act", ["cut", "refuse", "lose_packets"])
def test_machines_that_share_a_network_are_told(act: str, message: Messages) -> None:
    first, last = lacking(act, STATED, ways("one", "two", "one"), {})
    assert (first.split()[0], last.split()[0]) == ("rabbit@h0", "rabbit@h2")
    message(first)
    message(last)


@pytest.mark.parametrize(("act", "tool"), [("alarm", "rabbitmqctl"), ("drain", "rabbitmq-upgrade")])
def test_tools_that_are_missing_are_told(act: str, tool: str, message: Messages) -> None:
    (text,) = lacking(act, STATED, ways("one"), {})
    assert text.startswith("rabbit@h0 (ssh root@h): ")
    assert tool in text.split()
    message(text)
