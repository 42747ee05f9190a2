"""What machines lack for an act: looked for before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rabbitmq_resilience.clusters.attached.broker import RemoteBroker
from rabbitmq_resilience.clusters.attached.held_links import on_each
from rabbitmq_resilience.clusters.attached.machine import Machine, MachineError
from rabbitmq_resilience.clusters.attached.spec import ClusterFile
from rabbitmq_resilience.clusters.attached.ways import Ways

#: By Erlang name, at which addresses its machine finds each host.
Addresses = Mapping[str, Mapping[str, Sequence[str]]]

#: Names the network in which rules of a machine's kernel are at work.
_NETWORK = "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/net"
#: By which of RabbitMQ's own tools acts are done and undone.
_TOOLS: Mapping[str, Sequence[str]] = {"alarm": ["rabbitmqctl"], "drain": ["rabbitmq-upgrade"]}


def lacking(
    act: str, stated: ClusterFile, ways: Ways, folders: Mapping[str, str], addresses: Addresses | None = None
) -> list[str]:
    """In words, of all machines that are reached by ssh. ``folders``: where brokers store, by Erlang name."""

    def rules(name: str) -> list[str]:
        tool = [] if ways.rules[name].tool else ["there is neither nft nor iptables that we may use"]
        return [*tool, *_beside(name, ways.machines)]

    def disk(name: str) -> list[str]:
        return [*service(name), *ways.disks[name].lacking(stored_in=folders.get(name, ""))]

    def delays(name: str) -> list[str]:
        peers = {} if addresses is None else addresses[name]
        there = [address for found in peers.values() for address in found]
        return [*ways.delays[name].lacking(there), *_beside(name, ways.machines)]

    def service(name: str) -> list[str]:
        broker = ways.brokers[name]
        assert isinstance(broker, RemoteBroker), "that is how brokers are reached by ssh"
        return broker.lacking()

    def tools(name: str) -> list[str]:
        return ways.changed[name].lacking(_TOOLS[act])

    looks: Mapping[str, Callable[[str], list[str]]] = {
        "kill": service,
        "stop": service,
        "alarm": tools,
        "drain": tools,
        "cut": rules,
        "refuse": rules,
        "lose_packets": rules,
        "delay": delays,
        "fill_disk": disk,
    }

    def told(name: str) -> list[str]:
        try:
            return [f"{name} ({ways.machines[name].told}): {text}" for text in looks[act](name)]
        except MachineError as error:
            return [f"{name}: {error}"]

    if stated.offers.ssh is None or act not in looks:
        return []
    return [text for texts in on_each(list(ways.machines), told) for text in texts]


def _beside(name: str, machines: Mapping[str, Machine]) -> list[str]:
    """Whether packets of others are hit by what is done to those of this node."""
    mine = machines[name].run(_NETWORK)
    others = [other for other, machine in machines.items() if other != name and machine.run(_NETWORK) == mine]
    return [f"it has one network with {other}, so what is done to packets there is done to both" for other in others]
