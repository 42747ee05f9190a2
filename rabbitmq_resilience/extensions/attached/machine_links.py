"""Act on the links of an existing cluster.

Links of our own clients go through Toxiproxy on this machine. Links between brokers are cut by the kernels of their
machines.
"""

from __future__ import annotations

import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import count

from rabbitmq_resilience.extensions.attached.delays import Delays
from rabbitmq_resilience.extensions.attached.fault_budget import BlastRadius
from rabbitmq_resilience.extensions.attached.held_links import HeldLinks, on_each
from rabbitmq_resilience.extensions.attached.machine import ForcedError, Machine, MachineError
from rabbitmq_resilience.extensions.attached.packet_rules import DROP, RESET, PacketRule, Rules, Treatment
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.sut.broker.handshake import Probe, answer_ms, distribution_greeting
from rabbitmq_resilience.sut.network.proxied_links import ToxiproxyLinks

_CONNECT_TIMEOUT_S = 5.0
_ANSWERS_WITHIN_S = 5.0

#: Prints established TCP connections: bytes waiting, local address and port, those of the peer (iproute2, ss).
_CONNECTIONS = "ss -Htn state established"


@dataclass(frozen=True)
class LinkMachines:
    """The machines of the nodes, by name in the topology, and how they reach each other.

    ``addresses``: the addresses at which the source of each link finds its target. ``distribution_ports``: the port at
    which each node listens for its peers. ``distribution_only``: only packets to and from these ports are treated.
    """

    machines: Mapping[str, Machine]
    addresses: Mapping[Link, Sequence[str]]
    distribution_ports: Mapping[str, int]
    distribution_only: bool = False


@dataclass
class BrokerLinks(HeldLinks):
    """Links between brokers: cut and refused by rules at the machine that receives, delayed at the one that sends."""

    ends: LinkMachines
    rules: Mapping[str, Rules]
    #: Delays at the senders; without them, rules at the receivers delay packets.
    delays: Mapping[str, Delays] = field(default_factory=dict)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def nodes(self) -> Collection[str]:
        return self.ends.machines.keys()

    def end_of(self, how: Treatment, link: Link) -> str:
        return link.source if self._is_sent_late(how) else link.target

    def _is_sent_late(self, how: Treatment) -> bool:
        return how.verb == "delay" and bool(self.delays)

    def lost(self, links: Collection[Link]) -> Mapping[Link, int]:
        """Return how many packets were lost on each of these links that has a rule which loses some packets."""

        def at(node: str) -> dict[Link, int]:
            lost, here = self.rules[node].lost(), [link for link in links if link.target == node]
            found = {link: [lost[a] for a in self.ends.addresses[link.back] if a in lost] for link in here}
            return {link: sum(counts) for link, counts in found.items() if counts}

        counted = on_each({link.target for link in links}, at)
        return {link: number for found in counted for link, number in found.items()}

    def probe(self, link: Link, *, direct: bool) -> Probe | None:
        """Return a probe that the source's machine opens, or None if it cannot.

        ``direct``: the target's own machine opens it, and the call waits for the connection.
        """
        machine, port = self.ends.machines[link.target if direct else link.source], self._port(link.target)
        try:
            opened = machine.connect(self._address(link), port, timeout_s=_CONNECT_TIMEOUT_S if direct else None)
        except (OSError, ClusterError):
            return None
        return Probe(opened, distribution_greeting(f"probe{next(self._numbers)}@localhost"))

    def probe_ms(self, link: Link, *, timeout_s: float, direct: bool) -> float | None:
        """Return the ms from the connection to the answer, or None without an answer."""
        probe = self.probe(link, direct=direct)
        if probe is None:
            return None
        with probe:
            try:
                return answer_ms(probe, timeout_s=timeout_s)
            except OSError:
                return None

    def is_refused(self, link: Link) -> bool:
        machine = self.ends.machines[link.source]
        try:
            machine.connect(self._address(link), self._port(link.target), timeout_s=_CONNECT_TIMEOUT_S).close()
        except ConnectionError:
            return True
        except (OSError, ClusterError):
            return False
        return False

    def connection(self, link: Link) -> str | None:
        """Return the link's connection as the addresses and ports of its ends; None if there is none or it is unknown.

        One of its ports is the one at which a node listens for its peers.
        """
        there, theirs, ours = self.ends.addresses[link], self._port(link.target), self._port(link.source)
        try:
            rows = [line.split() for line in self.ends.machines[link.source].run(_CONNECTIONS).splitlines()]
        except MachineError:
            return None
        for *_, here, peer in (row for row in rows if len(row) >= 4):
            (_, _, port), (address, _, peer_port) = here.rpartition(":"), peer.rpartition(":")
            known = address.strip("[]").removeprefix("::ffff:") in there
            if known and (peer_port == str(theirs) or port == str(ours)):
                return f"{here}-{peer}"
        return None

    def machines_answer(self) -> bool:
        """Return whether all machines run commands now."""

        def answers(machine: Machine) -> bool:
            try:
                machine.run("true", timeout_s=_ANSWERS_WITHIN_S)
            except MachineError:
                return False
            return True

        return all(on_each(self.ends.machines.values(), answers))

    def _bring(self, how: Treatment, links: Collection[Link]) -> None:
        """Write the rules of all machines that receive over ``links``, or the delays of those that send, at once.

        Raise ForcedError only if all of them are as wanted. Raise MachineError if one fails.
        """
        write = self._write_delays if self._is_sent_late(how) else self._write_one
        if forced := list(filter(None, on_each({self.end_of(how, link) for link in links}, write))):
            raise ForcedError("; ".join(forced))

    def _wanted_at(self, node: str, *, late: bool) -> dict[Link, dict[Treatment, float]]:
        """Return the treatments at a node, by link: those that send packets ``late``, or those by rules."""
        return {
            link: mine
            for link, ways in self._wanted.items()
            if (mine := {how: ends_s for how, ends_s in ways.items() if self._is_sent_late(how) == late})
            and node == (link.source if late else link.target)
        }

    def _write_one(self, node: str) -> str:
        """Write the rules of one machine; return how that had to be forced, or an empty text."""
        wanted = self._wanted_at(node, late=False)
        port = self._port(node) if self.ends.distribution_only else None
        rules = [
            PacketRule(address, how, each)
            for link, ways in wanted.items()
            for how in ways
            for address in self.ends.addresses[link.back]
            for each in ([None] if port is None else sorted({port, self._port(link.source)}))
        ]
        try:
            self.rules[node].put(rules, for_s=_left_s(wanted))
        except ForcedError as error:
            return str(error)
        return ""

    def _write_delays(self, node: str) -> str:
        """Write the delays of one machine; return an empty text, as nothing there is forced."""
        wanted = self._wanted_at(node, late=True)
        # A link has one delay: the last that was asked for.
        delays = {address: [*ways][-1] for link, ways in wanted.items() for address in self.ends.addresses[link]}
        ports = {self._port(end) for link in wanted for end in link} if self.ends.distribution_only else set()
        self.delays[node].put(delays, ports=sorted(ports), for_s=_left_s(wanted))
        return ""

    def _address(self, link: Link) -> str:
        return self.ends.addresses[link][0]

    def _port(self, node: str) -> int:
        return self.ends.distribution_ports[node]


@dataclass
class AttachedLinks:
    """The links of clients and of brokers, as ``protocol.Links``. ``for_s``: how long the acts on them are to last."""

    of_clients: ToxiproxyLinks
    of_brokers: HeldLinks | None
    hands: BlastRadius
    #: The Erlang name of each node.
    names: Mapping[str, str]
    #: The links between brokers that may be acted on.
    broker_links: frozenset[Link] = frozenset()
    for_s: float = 0.0

    def lasting(self, for_s: float) -> AttachedLinks:
        return replace(self, for_s=for_s)

    @property
    def proxied(self) -> frozenset[Link]:
        """Return the links that can be acted on."""
        return self.of_clients.proxied | (self.broker_links if self.of_brokers is not None else frozenset())

    @property
    def remade(self) -> Sequence[str]:
        return self.of_clients.remade

    def cut(self, links: Collection[Link]) -> None:
        self.treat(links, how=DROP)
        self.of_clients.cut(_of_clients(links))

    def restore(self, links: Collection[Link]) -> None:
        try:
            self.untreat(links, how=DROP)
        finally:
            self.of_clients.restore(_of_clients(links))

    def refuse(self, links: Collection[Link]) -> None:
        self.treat(links, how=RESET)
        self.of_clients.refuse(_of_clients(links))

    def accept(self, links: Collection[Link]) -> None:
        try:
            self.untreat(links, how=RESET)
        finally:
            self.of_clients.accept(_of_clients(links))

    def treat(self, links: Collection[Link], *, how: Treatment) -> None:
        """Treat the packets so that go over those of ``links`` which are between brokers."""
        between = _between_brokers(links)
        if between:
            assert self.of_brokers is not None, "acts that are not offered were refused before"
            parted = self.of_brokers.parted_by(how, between) if how.parts else None
            self.hands.take(_act_of(how), self._treating(how, between), for_s=self.for_s, counted=parted)
            self.of_brokers.put(how, between, for_s=self.for_s)

    def untreat(self, links: Collection[Link], *, how: Treatment) -> None:
        between, act = _between_brokers(links), _act_of(how)
        if not between or self.of_brokers is None:
            return
        forced: ForcedError | None = None
        try:
            self.of_brokers.take(how, between)
        except ForcedError as error:  # healed, but the caller must hear that it took force
            forced = error
        still = self._named(self.of_brokers.held_by(lambda other: _act_of(other) == act))
        self.hands.leave(act, [name for name in self._treating(how, between) if name not in still])
        if forced is not None:
            raise forced

    def refuses(self, link: Link) -> bool:
        if link.client is not None or self.of_brokers is None:
            return self.of_clients.refuses(link)
        return self.of_brokers.is_refused(link)

    def connection(self, link: Link) -> str | None:
        return None if self.of_brokers is None or link.client is not None else self.of_brokers.connection(link)

    def delay(self, links: Collection[Link], *, latency_ms: int, jitter_ms: int) -> None:
        self.treat(links, how=Treatment.late(latency_ms=latency_ms, jitter_ms=jitter_ms))
        self.of_clients.delay(_of_clients(links), latency_ms=latency_ms, jitter_ms=jitter_ms)

    def undelay(self, links: Collection[Link]) -> None:
        try:
            for how in set() if self.of_brokers is None else self.of_brokers.delays_of(links):
                self.untreat(links, how=how)
        finally:
            self.of_clients.undelay(_of_clients(links))

    def held_bytes(self, link: Link) -> int | None:  # noqa: ARG002 - unknown of brokers that are not ours
        return None

    def probe_ms(self, link: Link, *, timeout_s: float, direct: bool = False) -> float | None:
        if link.client is not None or self.of_brokers is None:
            return self.of_clients.probe_ms(link, timeout_s=timeout_s, direct=direct)
        return self.of_brokers.probe_ms(link, timeout_s=timeout_s, direct=direct)

    def probe(self, link: Link, *, direct: bool = False) -> Probe | None:
        if link.client is not None or self.of_brokers is None:
            return self.of_clients.probe(link, direct=direct)
        return self.of_brokers.probe(link, direct=direct)

    def server_answers(self) -> bool:
        """Return whether what carries probes answers: the proxies, if there are any, and the machines."""
        carried = self.of_clients.server_answers() if self.of_clients.proxied else True
        return carried and (self.of_brokers is None or self.of_brokers.machines_answer())

    def attested(self, links: Collection[Link]) -> Mapping[Link, bool] | None:
        return None if self.of_brokers is None else self.of_brokers.attested(_between_brokers(links))

    @property
    def clean(self) -> bool:
        return self.of_clients.clean and (self.of_brokers is None or self.of_brokers.clean)

    def _treating(self, how: Treatment, links: Collection[Link]) -> list[str]:
        """Return the nodes at which these links are treated so."""
        assert self.of_brokers is not None
        return self._named({self.of_brokers.end_of(how, link) for link in links})

    def _named(self, nodes: Collection[str]) -> list[str]:
        return sorted(self.names[node] for node in nodes)


def _act_of(how: Treatment) -> str:
    if how.verb == "drop":
        return "cut" if how.parts else "lose_packets"
    return "delay" if how.verb == "delay" else "refuse"


def _left_s(wanted: Mapping[Link, Mapping[Treatment, float]]) -> float:
    """Return for how long the first of these treatments is still wanted.

    One watchdog heals all of a node: no treatment may last longer than its own time if this process is gone. The rest
    is written again when the first is taken back.
    """
    ends_s = min((ends_s for ways in wanted.values() for ends_s in ways.values()), default=0.0)
    return max(0.0, ends_s - time.monotonic())


def _between_brokers(links: Collection[Link]) -> list[Link]:
    return [link for link in links if link.client is None]


def _of_clients(links: Collection[Link]) -> list[Link]:
    return [link for link in links if link.client is not None]
