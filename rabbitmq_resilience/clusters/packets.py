"""What may happen to packets between brokers in containers, in Pumba's words, and what the kernel counts of it.

iptables acts on what a container receives from others, netem on what it sends to them. So the directed link a->b is
disturbed in b's container by the one, in a's by the other.
"""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import Literal

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
    """``action``: one of Pumba's commands with its own options, such as ``("loss", "--percent", "20")``."""

    by: By
    action: tuple[str, ...]

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
