"""What may happen to packets between brokers, who can do it, and what the kernel counts of it.

iptables acts on what a node receives from others, netem on what it sends to them. So the directed link a->b is
disturbed at b by the one, at a by the other. In containers it is told in Pumba's words.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal, Protocol, runtime_checkable

from rabbitmq_resilience.clusters.spec import Link

By = Literal["iptables", "netem"]

#: Pumba's options for the addresses at the other end, and for the image that holds the program.
_PEER_OPTION: Mapping[By, str] = {"iptables": "--source", "netem": "--target"}
_IMAGE_OPTION: Mapping[By, str] = {"iptables": "--iptables-image", "netem": "--tc-image"}

#: What lists the rules of a container's network, in its own words.
LISTING: Mapping[By, tuple[str, ...]] = {
    "iptables": ("iptables", "-w", "-nvxL", "INPUT"),
    "netem": ("tc", "-s", "-j", "qdisc", "show", "dev", "eth0"),
}


@dataclass(frozen=True)
class Disturbance:
    """``kind``: one of Pumba's commands, and its own ``options``, such as ``{"percent": "20"}`` of ``loss``."""

    by: By
    kind: str
    options: Mapping[str, str]

    @property
    def action(self) -> tuple[str, ...]:
        """Pumba's command with its options."""
        return (self.kind, *(word for name, value in self.options.items() for word in (f"--{name}", value)))

    def node_of(self, link: Link) -> str:
        """In whose container it acts on the link."""
        return link.target if self.by == "iptables" else link.source

    def peer_of(self, link: Link) -> str:
        return link.source if self.by == "iptables" else link.target

    def arguments(
        self, containers: Sequence[str], *, peers: Sequence[str], image: str, for_s: float
    ) -> tuple[str, ...]:
        """What Pumba is called with; ``containers`` are names, ``peers`` addresses. Without any, Pumba would take all
        that there are."""
        assert containers, "Pumba acts on every container where none is named"
        assert peers, "Pumba acts on all packets where no address is named"
        addresses = [word for peer in peers for word in (_PEER_OPTION[self.by], f"{peer}/32")]
        options = ("--duration", f"{for_s * 1000:.0f}ms", *addresses, _IMAGE_OPTION[self.by], image)
        return (self.by, *options, "--pull-image=false", *self.action, *containers)


class DisturbedPackets(Protocol):
    """What is done to the packets of some links, until it is closed."""

    def met(self) -> Mapping[Link, int]:
        """How many packets of each link it has met by now: those that were dropped by iptables; those that went through
        netem's queue, to all peers of the source together. A link where nothing is in place is not in it."""
        ...

    def close(self) -> None:
        """Raises ``ClusterError`` where it did not last until now, or something of it is left."""
        ...


@runtime_checkable
class PacketActs(Protocol):
    """What a cluster whose packets can be disturbed offers beside what all do."""

    def disturb(self, links: Collection[Link], disturbance: Disturbance, *, for_s: float) -> DisturbedPackets:
        """Does that to the packets of links between brokers that carry no proxy; ends by itself some time after
        ``for_s``, should nobody close it. Returns once it is in place."""
        ...

    def try_connections(
        self, links: Collection[Link], *, times: int, at_once: int, wait_s: float
    ) -> Mapping[Link, Sequence[float]]:
        """Sends so many packets over each link, some of them at once, which the target's kernel answers; what each
        answer took, in ms. There is none to a packet that is lost on either way, or late."""
        ...

    def refusals(self, node: str) -> int:
        """How many connections the node's kernel has refused: as many as were knocked for, and those that arrived twice
        twice. 0 where nobody is knocked for like that."""
        ...


@dataclass(frozen=True)
class Order:
    """What one call of Pumba can do: it acts in the containers of ``nodes``, on packets from or to all of ``peers``."""

    nodes: tuple[str, ...]
    peers: tuple[str, ...]


def orders(disturbance: Disturbance, links: Collection[Link]) -> list[Order]:
    """As few calls as disturb exactly these links."""
    peers_of: dict[str, set[str]] = defaultdict(set)
    for link in links:
        peers_of[disturbance.node_of(link)].add(disturbance.peer_of(link))
    nodes_of: dict[tuple[str, ...], list[str]] = defaultdict(list)
    for node, peers in sorted(peers_of.items()):
        nodes_of[tuple(sorted(peers))].append(node)
    return [Order(tuple(nodes), peers) for peers, nodes in nodes_of.items()]


def dropped_from(listing: str) -> dict[str, int]:
    """Packets that were dropped from each address for which there is such a rule; from what ``iptables -nvxL`` prints:
    packets, bytes, target, protocol, options, in, out, source, destination, ..."""
    dropped: dict[str, int] = defaultdict(int)
    for line in listing.splitlines():
        columns = line.split()
        if len(columns) >= 9 and columns[2] == "DROP" and "statistic" in columns:
            dropped[columns[7].removesuffix("/32")] += int(columns[0])
    return dict(dropped)


def passed_netem(listing: str) -> int | None:
    """Packets that netem has let pass or dropped; None where there is no netem. From what ``tc -s -j qdisc`` prints:
    a list of objects with ``kind``, ``packets``, ``drops``, ... (iproute2, tc/tc_qdisc.c)."""
    ours = [qdisc for qdisc in json.loads(listing or "[]") if qdisc["kind"] == "netem"]
    return sum(qdisc["packets"] + qdisc["drops"] for qdisc in ours) if ours else None


def met(by: By, listing: str, *, peers: Collection[str]) -> dict[str, int]:
    """Packets met by the rule for each of the addresses ``peers``, as far as there is one: those dropped by iptables;
    those of all of them together that went through netem's queue."""
    if by == "iptables":
        return {peer: count for peer, count in dropped_from(listing).items() if peer in peers}
    passed = passed_netem(listing)
    return {} if passed is None else dict.fromkeys(peers, passed)


def resets_sent(snmp: str) -> int:
    """The counter ``OutRsts`` of /proc/net/snmp, whose lines are pairs: ``Tcp: NAME ...`` and ``Tcp: VALUE ...``."""
    names, values = (line.split() for line in snmp.splitlines() if line.startswith("Tcp:"))
    return int(values[names.index("OutRsts")])
