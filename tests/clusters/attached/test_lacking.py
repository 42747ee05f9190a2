"""What machines lack for an act, by what they answer."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any, cast

import pytest

from rabbitmq_resilience.extensions.attached.changing import ChangedBroker
from rabbitmq_resilience.extensions.attached.missing_tools import lacking
from rabbitmq_resilience.extensions.attached.node_backends import NodeBackend, NodeBackends
from rabbitmq_resilience.extensions.attached.offers import Offers, Ssh
from tests.messages import Messages

STATED: Any = SimpleNamespace(offers=Offers(ssh=Ssh()))


class There:
    """A machine in a network of that name, without tools."""

    def __init__(self, network: str) -> None:
        self.description, self.network = "ssh root@h", network

    def run(self, script: str, *arguments: str) -> str:
        return self.network if "ns/net" in script else "".join(f"there is no {name}\n" for name in arguments)


def backends(*networks: str) -> NodeBackends:
    machines: Any = {f"rabbit@h{n}": There(network) for n, network in enumerate(networks)}
    unused, rules = cast(Any, None), cast(Any, SimpleNamespace(tool="nft"))
    return NodeBackends(
        {
            name: NodeBackend(unused, machine, rules, changed=ChangedBroker(machine, unused, name, name))
            for name, machine in machines.items()
        }
    )


@pytest.mark.parametrize("act", ["cut", "refuse", "lose_packets"])
def test_machines_that_share_a_network_are_reported(act: str, message: Messages) -> None:
    first, last = lacking(act, STATED, backends("one", "two", "one"), {})
    assert (first.split()[0], last.split()[0]) == ("rabbit@h0", "rabbit@h2")
    message(first)
    message(last)


@pytest.mark.parametrize(("act", "tool"), [("alarm", "rabbitmqctl"), ("drain", "rabbitmq-upgrade")])
def test_tools_that_are_missing_are_reported(act: str, tool: str, message: Messages) -> None:
    (text,) = lacking(act, STATED, backends("one"), {})
    assert text.startswith("rabbit@h0 (ssh root@h): ")
    assert tool in text.split()
    message(text)
