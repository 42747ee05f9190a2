"""Find what machines lack for an act, before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile
from rabbitmq_resilience.extensions.attached.foreign_broker import RemoteBroker
from rabbitmq_resilience.extensions.attached.held_links import on_each
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.extensions.attached.ways import Ways
from rabbitmq_resilience.model.actions import ACTIONS

#: For each node by Erlang name, the addresses to which its machine resolves each host.
Addresses = Mapping[str, Mapping[str, Sequence[str]]]

#: Prints what identifies the network in which rules of a machine's kernel are at work.
_NETWORK = "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/net"


def lacking(
    act: str, stated: ClusterFile, ways: Ways, folders: Mapping[str, str], addresses: Addresses | None = None
) -> list[str]:
    """Return, in words, what machines lack for ``act`` if they are reached by ssh.

    ``folders``: the folder in which each broker stores its data, by Erlang name.
    """
    way = stated.offers.way_of(ACTIONS[act]) if act in ACTIONS else None
    if way is None or not way.needs:
        return []

    def rules(name: str) -> list[str]:
        tool = [] if ways.rules[name].tool else ["there is neither nft nor iptables that we may use"]
        return [*tool, *_shared(name, ways.machines)]

    def disk(name: str) -> list[str]:
        return [*service(name), *ways.disks[name].lacking(stored_in=folders.get(name, ""))]

    def delays(name: str) -> list[str]:
        peers = {} if addresses is None else addresses[name]
        there = [address for found in peers.values() for address in found]
        return [*ways.delays[name].lacking(there), *_shared(name, ways.machines)]

    def service(name: str) -> list[str]:
        broker = ways.brokers[name]
        assert isinstance(broker, RemoteBroker), "that is how brokers are reached by ssh"
        return broker.lacking()

    def tools(name: str) -> list[str]:
        return ways.changed[name].lacking(way.programs)

    looks: Mapping[str, Callable[[str], list[str]]] = {
        "service": service,
        "tools": tools,
        "packet_rules": rules,
        "delays": delays,
        "disk": disk,
    }
    look = looks[way.needs]

    def texts_of(name: str) -> list[str]:
        try:
            return [f"{name} ({ways.machines[name].description}): {text}" for text in look(name)]
        except MachineError as error:
            return [f"{name}: {error}"]

    return [text for texts in on_each(list(ways.machines), texts_of) for text in texts]


def _shared(name: str, machines: Mapping[str, Machine]) -> list[str]:
    """Return, in words, the other nodes whose packets would be treated together with those of this node."""
    mine = machines[name].run(_NETWORK)
    others = [other for other, machine in machines.items() if other != name and machine.run(_NETWORK) == mine]
    return [f"it shares its network with {other}, so a treatment of packets there hits both" for other in others]
