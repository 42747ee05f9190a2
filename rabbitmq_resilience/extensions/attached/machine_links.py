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
    delays: Mapping[str, Delays] = field(default_factory=dict)
    #: The delay of each link, and until when it is wanted (``time.monotonic``).
    _delayed: dict[Link, tuple[Treatment, float]] = field(default_factory=dict)
    #: Links that may still be delayed although that is no longer wanted, as healing failed.
    _undelayed: set[Link] = field(default_factory=set)
    _numbers: count[int] = field(default_factory=lambda: count(1))

    @property
    def nodes(self) -> Collection[str]:
        return self.ends.machines.keys()

    def delay(self, links: Collection[Link], how: Treatment, *, for_s: float) -> None:
        with self._lock:
            self._delayed.update(dict.fromkeys(links, (how, time.monotonic() + for_s)))
            on_each({link.source for link in links}, self._write_delays)

    def undelay(self, links: Collection[Link]) -> None:
        with self._lock:
            self._undelayed.update(link for link in links if self._delayed.pop(link, None))
            found = self._undelayed.intersection(links)
            on_each({link.source for link in found}, self._write_delays)
            self._undelayed -= found

    @property
    def clean(self) -> bool:
        return super().clean and not self._delayed and not self._undelayed

    @property
    def delays_what_it_sends(self) -> bool:
        return bool(self.delays)

    def delayed_from(self) -> frozenset[str]:
        return frozenset(link.source for link in (*self._delayed, *self._undelayed))

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

    def _bring(self, links: Collection[Link]) -> None:
        """Write the rules of all machines that receive over ``links``, at once.

        Raise ForcedError only if the rules of all of them are as wanted. Raise MachineError if one fails.
        """
        if forced := list(filter(None, on_each({link.target for link in links}, self._write_one))):
            raise ForcedError("; ".join(forced))

    def _write_one(self, node: str) -> str:
        """Write the rules of one machine; return how that had to be forced, or an empty text."""
        wanted = {link: ways for link, ways in self._wanted.items() if link.target == node and ways}
        port = self._port(node) if self.ends.distribution_only else None
        rules = [
            PacketRule(address, how, each)
            for link, ways in wanted.items()
            for how in ways
            for address in self.ends.addresses[link.back]
            for each in ([None] if port is None else sorted({port, self._port(link.source)}))
        ]
        ends_s = max((ends for ways in wanted.values() for ends in ways.values()), default=0.0)
        try:
            self.rules[node].put(rules, for_s=max(0.0, ends_s - time.monotonic()))
        except ForcedError as error:
            return str(error)
        return ""

    def _write_delays(self, node: str) -> None:
        mine = {link: held for link, held in self._delayed.items() if link.source == node}
        delays = {address: held[0] for link, held in mine.items() for address in self.ends.addresses[link]}
        ports = {self._port(end) for link in mine for end in link} if self.ends.distribution_only else set()
        ends_s = max((held[1] for held in mine.values()), default=0.0)
        self.delays[node].put(delays, ports=sorted(ports), for_s=max(0.0, ends_s - time.monotonic()))

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
        self._put("cut", DROP, links)
        self.of_clients.cut(_of_clients(links))

    def restore(self, links: Collection[Link]) -> None:
        try:
            self._take("cut", DROP, links)
        finally:
            self.of_clients.restore(_of_clients(links))

    def refuse(self, links: Collection[Link]) -> None:
        self._put("refuse", RESET, links)
        self.of_clients.refuse(_of_clients(links))

    def accept(self, links: Collection[Link]) -> None:
        try:
            self._take("refuse", RESET, links)
        finally:
            self.of_clients.accept(_of_clients(links))

    def treat(self, links: Collection[Link], *, how: Treatment) -> None:
        """Lose some of the packets that arrive over ``links``, or delay them."""
        self._put(_act_of(how), how, links)

    def untreat(self, links: Collection[Link], *, how: Treatment) -> None:
        self._take(_act_of(how), how, links)

    def refuses(self, link: Link) -> bool:
        if link.client is not None or self.of_brokers is None:
            return self.of_clients.refuses(link)
        return self.of_brokers.is_refused(link)

    def connection(self, link: Link) -> str | None:
        return None if self.of_brokers is None or link.client is not None else self.of_brokers.connection(link)

    def delay(self, links: Collection[Link], *, latency_ms: int, jitter_ms: int) -> None:
        between, how = _between_brokers(links), Treatment.late(latency_ms=latency_ms, jitter_ms=jitter_ms)
        if between and self.of_brokers is not None and self.of_brokers.delays_what_it_sends:
            self.hands.take("delay", self._named({link.source for link in between}), for_s=self.for_s)
            self.of_brokers.delay(between, how, for_s=self.for_s)
        else:
            self.treat(links, how=how)
        self.of_clients.delay(_of_clients(links), latency_ms=latency_ms, jitter_ms=jitter_ms)

    def undelay(self, links: Collection[Link]) -> None:
        between = _between_brokers(links)
        held = set() if self.of_brokers is None else self.of_brokers.delayed(between)
        try:
            if between and self.of_brokers is not None and self.of_brokers.delays_what_it_sends:
                self.of_brokers.undelay(between)
                still = self.of_brokers.delayed_from()
                self.hands.leave("delay", self._named({link.source for link in between} - still))
            for how in held:
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

    def _put(self, act: str, how: Treatment, links: Collection[Link]) -> None:
        between = _between_brokers(links)
        if between:
            assert self.of_brokers is not None, "acts that are not offered were refused before"
            parted = self.of_brokers.parted_by(how, between) if how.parts else None
            self.hands.take(act, self._named({link.target for link in between}), for_s=self.for_s, counted=parted)
            self.of_brokers.put(how, between, for_s=self.for_s)

    def _take(self, act: str, how: Treatment, links: Collection[Link]) -> None:
        between = _between_brokers(links)
        if not between or self.of_brokers is None:
            return
        forced: ForcedError | None = None
        try:
            self.of_brokers.take(how, between)
        except ForcedError as error:  # healed, but the caller must hear that it took force
            forced = error
        still = self.of_brokers.held_by(how)
        self.hands.leave(act, self._named({link.target for link in between} - still))
        if forced is not None:
            raise forced

    def _named(self, nodes: Collection[str]) -> list[str]:
        return sorted(self.names[node] for node in nodes)


def _act_of(how: Treatment) -> str:
    if how.verb == "delay":
        return "delay"
    return "cut" if how.parts else "lose_packets"


def _between_brokers(links: Collection[Link]) -> list[Link]:
    return [link for link in links if link.client is None]


def _of_clients(links: Collection[Link]) -> list[Link]:
    return [link for link in links if link.client is not None]
