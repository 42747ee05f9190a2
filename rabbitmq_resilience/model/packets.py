"""Describe disturbances of packets between brokers, Pumba's calls for them, and the kernel's packet counters.

iptables acts on the packets that a node receives, netem on the packets that a node sends. So iptables disturbs the
directed link a->b at b, and netem disturbs it at a. In containers, Pumba runs both programs.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from rabbitmq_resilience.model.links import Link

By = Literal["iptables", "netem"]

#: Pumba's options for the peers' addresses, and for the image that holds the program.
_PEER_OPTION: Mapping[By, str] = {"iptables": "--source", "netem": "--target"}
_IMAGE_OPTION: Mapping[By, str] = {"iptables": "--iptables-image", "netem": "--tc-image"}

#: The command that lists the rules in a container's network namespace.
LISTING: Mapping[By, tuple[str, ...]] = {
    "iptables": ("iptables", "-w", "-nvxL", "INPUT"),
    "netem": ("tc", "-s", "-j", "qdisc", "show", "dev", "eth0"),
}


@dataclass(frozen=True)
class Disturbance:
    """A disturbance of packets. ``kind``: one of Pumba's commands; ``options``: the options of that command, such as
    ``{"percent": "20"}`` for ``loss``."""

    by: By
    kind: str
    options: Mapping[str, str]

    @property
    def action(self) -> tuple[str, ...]:
        """Return Pumba's command with its options."""
        return (self.kind, *(word for name, value in self.options.items() for word in (f"--{name}", value)))

    def node_of(self, link: Link) -> str:
        """Return the node in whose container the disturbance acts on ``link``."""
        return link.target if self.by == "iptables" else link.source

    def peer_of(self, link: Link) -> str:
        """Return the other end of ``link``, whose packets are selected by address."""
        return link.source if self.by == "iptables" else link.target

    def arguments(
        self, containers: Sequence[str], *, peers: Sequence[str], image: str, for_s: float
    ) -> tuple[str, ...]:
        """Return the arguments for Pumba. ``containers`` are names, ``peers`` are addresses. Both must not be empty:
        otherwise Pumba would act on all containers, or on all packets."""
        assert containers, "Pumba acts on every container if none is named"
        assert peers, "Pumba acts on all packets if no address is named"
        addresses = [word for peer in peers for word in (_PEER_OPTION[self.by], f"{peer}/32")]
        options = ("--duration", f"{for_s * 1000:.0f}ms", *addresses, _IMAGE_OPTION[self.by], image)
        return (self.by, *options, "--pull-image=false", *self.action, *containers)


class DisturbedPackets(Protocol):
    """A disturbance of the packets of some links that is in place until ``close``."""

    def met(self) -> Mapping[Link, int]:
        """Return how many packets of each link the disturbance has met by now. For iptables these are the dropped
        packets. For netem these are all packets in the queue of the link's source, to all its peers together. A link
        without a rule in place is left out."""
        ...

    def close(self) -> None:
        """Remove the disturbance. Raise ``ClusterError`` if it ended early, or if a part of it cannot be removed."""
        ...


@runtime_checkable
class PacketActs(Protocol):
    """A cluster whose packets between brokers can be disturbed."""

    def disturb(self, links: Collection[Link], disturbance: Disturbance, *, for_s: float) -> DisturbedPackets:
        """Disturb the packets of ``links``, which are between brokers and carry no proxy. Return once the disturbance
        is in place. It ends by itself some time after ``for_s`` if the caller does not close it."""
        ...

    def try_connections(
        self, links: Collection[Link], *, times: int, at_once: int, wait_s: float
    ) -> Mapping[Link, Sequence[float]]:
        """Send ``times`` packets over each link, ``at_once`` of them at a time, which the target's kernel answers.
        Return the round trip of each answer in ms. A packet has no answer if it or its answer is lost, or if the
        answer takes longer than ``wait_s``."""
        ...

    def refusals(self, node: str) -> int:
        """Return how many connection attempts the node's kernel has refused. An attempt whose packet arrived twice
        counts twice. Return 0 if this cluster does not try connections to closed ports."""
        ...


@dataclass(frozen=True)
class PumbaOrder:
    """One call of Pumba: it acts in the containers of ``nodes``, on packets from or to all of ``peers``."""

    nodes: tuple[str, ...]
    peers: tuple[str, ...]


def orders(disturbance: Disturbance, links: Collection[Link]) -> list[PumbaOrder]:
    """Return the smallest list of Pumba calls that disturbs exactly these links."""
    peers_of: dict[str, set[str]] = defaultdict(set)
    for link in links:
        peers_of[disturbance.node_of(link)].add(disturbance.peer_of(link))
    nodes_of: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node, peers in sorted(peers_of.items()):
        nodes_of[tuple(sorted(peers))].append(node)
    return [PumbaOrder(tuple(nodes), peers) for peers, nodes in nodes_of.items()]


def dropped_from(listing: str) -> dict[str, int]:
    """Return {address: packets dropped from it} for each address that has a DROP rule.

    ``listing`` is the output of ``iptables -nvxL``. Its columns are packets, bytes, target, protocol, options, in, out,
    source, destination, ...
    """
    dropped: dict[str, int] = defaultdict(int)
    for line in listing.splitlines():
        columns = line.split()
        if len(columns) >= 9 and columns[2] == "DROP" and "statistic" in columns:
            dropped[columns[7].partition("/")[0]] += int(columns[0])
    return dict(dropped)


def passed_netem(listing: str) -> int | None:
    """Return how many packets netem has passed or dropped; None if no netem queue is in place.

    ``listing`` is the output of ``tc -s -j qdisc``: a list of objects with ``kind``, ``packets``, ``drops``, ...
    (iproute2, tc/tc_qdisc.c).
    """
    ours = [qdisc for qdisc in json.loads(listing or "[]") if qdisc["kind"] == "netem"]
    return sum(qdisc["packets"] + qdisc["drops"] for qdisc in ours) if ours else None


def met(by: By, listing: str, *, peers: Collection[str]) -> dict[str, int]:
    """Return {address: packets met} for each address in ``peers`` that has a rule. For iptables these are the dropped
    packets from that address. For netem each address gets the total of the node's queue."""
    if by == "iptables":
        return {peer: count for peer, count in dropped_from(listing).items() if peer in peers}
    passed = passed_netem(listing)
    return {} if passed is None else dict.fromkeys(peers, passed)


def resets_sent(snmp: str) -> int:
    """Return the counter ``OutRsts`` from the text of /proc/net/snmp. Its lines are pairs: ``Tcp: NAME ...`` and
    ``Tcp: VALUE ...``."""
    names, values = (line.split() for line in snmp.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("OutRsts")])
