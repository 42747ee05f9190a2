"""What machines lack for an act: looked for before anything is started."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

from rabbitmq_resilience.clusters.attached.held_links import on_each
from rabbitmq_resilience.clusters.attached.machine import MachineError
from rabbitmq_resilience.clusters.attached.spec import ClusterFile
from rabbitmq_resilience.clusters.attached.ways import Ways

#: By Erlang name, at which addresses its machine finds each host.
Addresses = Mapping[str, Mapping[str, Sequence[str]]]


def lacking(
    act: str, stated: ClusterFile, ways: Ways, folders: Mapping[str, str], addresses: Addresses | None = None
) -> list[str]:
    """In words, of all machines that are reached by ssh. ``folders``: where brokers store, by Erlang name."""

    def rules(name: str) -> list[str]:
        return [] if ways.rules[name].tool else ["there is neither nft nor iptables that we may use"]

    def disk(name: str) -> list[str]:
        return ways.disks[name].lacking(stored_in=folders.get(name, ""))

    def delays(name: str) -> list[str]:
        peers = {} if addresses is None else addresses[name]
        return ways.delays[name].lacking([address for found in peers.values() for address in found])

    looks: Mapping[str, Callable[[str], list[str]]] = {
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
