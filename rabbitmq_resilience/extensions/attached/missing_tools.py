"""Find what machines lack for an act, before anything is started."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile
from rabbitmq_resilience.extensions.attached.held_links import on_each
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.extensions.attached.node_backends import NodeBackends
from rabbitmq_resilience.model.actions import ACTIONS

#: For each node by Erlang name, the addresses to which its machine resolves each host.
Addresses = Mapping[str, Mapping[str, Sequence[str]]]

#: Prints what identifies the network in which rules of a machine's kernel are at work.
_NETWORK = "cat /proc/sys/kernel/random/boot_id; readlink /proc/self/ns/net"


def lacking(
    act: str,
    stated: ClusterFile,
    backends: NodeBackends,
    folders: Mapping[str, str],
    addresses: Addresses | None = None,
) -> list[str]:
    """Return, in words, what machines lack for ``act`` if they are reached by ssh.

    ``folders``: the folder in which each broker stores its data, by Erlang name.
    """
    way = stated.offers.way_of(ACTIONS[act]) if act in ACTIONS else None
    if way is None or not way.needs:
        return []
    machines = backends.machines

    def texts_of(name: str) -> list[str]:
        peers = [] if addresses is None else [one for found in addresses[name].values() for one in found]
        try:
            texts = backends.nodes[name].lacking(way, stored_in=folders.get(name, ""), peers=peers)
            shared = _shared(name, machines) if way.needs in ("packet_rules", "delays") else []
            return [f"{name} ({machines[name].description}): {text}" for text in (*texts, *shared)]
        except MachineError as error:
            return [f"{name}: {error}"]

    return [text for texts in on_each(list(machines), texts_of) for text in texts]


def _shared(name: str, machines: Mapping[str, Machine]) -> list[str]:
    """Return, in words, the other nodes whose packets would be treated together with those of this node."""
    mine = machines[name].run(_NETWORK)
    others = [other for other, machine in machines.items() if other != name and machine.run(_NETWORK) == mine]
    return [f"it shares its network with {other}, so a treatment of packets there hits both" for other in others]
