"""Have other machines' kernels lose or delay packets between brokers, and probe that they do."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.extensions.attached.machine_links import AttachedLinks, BrokerLinks
from rabbitmq_resilience.extensions.attached.packet_rules import Treatment
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.model.packets import Disturbance
from rabbitmq_resilience.sut.network.knocks import knocked
from rabbitmq_resilience.tools.locations import PACKAGE

_KNOCKED_WITHIN_S = 90.0
_PROBE = PACKAGE / "sut" / "broker" / "erlang" / "resilience_probe.erl"
#: Every machine with a broker has escript: RabbitMQ's own tools are escripts, too.
_KNOCK = """
set -eu
export HOME="${{HOME:-/}}" ERL_CRASH_DUMP_SECONDS=0
escript=$(command -v escript || true)
[ -n "$escript" ] || escript=$(ls "$(dirname "$(readlink "/proc/$1/exe")")"/../../bin/escript)
shift
file=$(mktemp)
trap 'rm -f "$file"' EXIT
cat > "$file" <<'END'
#!/usr/bin/env escript
{module}
END
"$escript" "$file" "$@" < /dev/null
"""


@dataclass(frozen=True)
class TreatedPackets:
    """Packets that arrive over the links ``on`` are lost or late, until ``close``; see ``packets.DisturbedPackets``."""

    links: AttachedLinks
    on: frozenset[Link]
    how: Treatment

    def met(self) -> Mapping[Link, int]:
        assert isinstance(self.links.of_brokers, BrokerLinks), "acts that are not offered were refused before"
        return self.links.of_brokers.lost(self.on)

    def close(self) -> None:
        try:
            gone = sorted(self.on - self.met().keys())
        finally:
            self.links.untreat(self.on, how=self.how)
        if left := self.met():
            raise ClusterError(f"packets on {', '.join(map(str, sorted(left)))} are still lost or late")
        if gone:
            raise ClusterError(f"packets on {', '.join(map(str, gone))} were not lost or late until the end")


def treated_packets(links: AttachedLinks, on: Collection[Link], disturbance: Disturbance) -> TreatedPackets:
    """Disturb the packets that arrive over the links ``on`` from now on. Raise MachineError if that fails."""
    how = Treatment.of(disturbance)
    try:
        links.treat(on, how=how)
    except MachineError as error:  # part of the rules may be in place, and no caller could remove them
        try:
            links.untreat(on, how=how)
        except MachineError as second:
            raise MachineError(f"{error}; {second}") from error
        raise
    return TreatedPackets(links, frozenset(on), how)


@dataclass(frozen=True)
class Knocker:
    """Open connections from machine to machine. ``pids``: the process number of each source's broker."""

    machines: Mapping[str, Machine]
    pids: Mapping[str, int]
    addresses: Mapping[Link, Sequence[str]]
    ports: Mapping[str, int]

    def knock(self, links: Collection[Link], *, times: int, at_once: int, wait_s: float) -> dict[Link, list[float]]:
        """Connect to the port at which each target listens for its peers; return the ms that each answer took, by link.

        That port is used because firewalls let its packets pass between brokers.
        """
        script = _KNOCK.format(module=_PROBE.read_text(encoding="utf-8"))

        def end_of(link: Link) -> tuple[str, int]:
            return self.addresses[link][0], self.ports[link.target]

        def run(source: str, words: Sequence[str]) -> str:
            return self.machines[source].run(script, str(self.pids[source]), *words, timeout_s=_KNOCKED_WITHIN_S)

        return knocked(links, times=times, at_once=at_once, wait_s=wait_s, counts="any", end_of=end_of, run=run)
