"""Delay packets to peers when they leave a machine, by netem (tc of iproute2).

Each device by which a peer is reached gets a prio qdisc in place of the kernel's default, with a band for each delay.
Packets to a peer's address go to its band. All other packets, also the answers to our ssh, take their usual way. A
device that has a qdisc of its own is left alone.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.extensions.attached.packet_rules import Treatment

#: The handle that marks a qdisc as ours.
_HANDLE = "7e57:"
#: A prio qdisc has 16 bands at most, and its first three take what no filter has met (tc-prio(8)).
_BANDS_MAX, _OTHERS = 16, 3
_PACKETS_HELD_MAX = 100_000

_CLEAR = f"""
for device in $(tc qdisc show | sed -n 's/^qdisc prio {_HANDLE} dev \\([^ ]*\\) root.*/\\1/p'); do
    tc qdisc del dev "$device" root
done
! tc qdisc show | grep -qF ' {_HANDLE} '
"""

_FUNCTIONS = f"""
set -eu
device_to() {{ ip -o route get "$1" | sed -n 's/.* dev \\([^ ]*\\).*/\\1/p'; }}
taken() {{
    tc qdisc show dev "$1" | sed -nE 's/^qdisc ([^ ]+ [^ ]+)( dev [^ ]+)? root.*/\\1/p' \\
        | grep -v -e ' 0:$' -e ' {_HANDLE}$'
}}
"""

#: Prints each address that is reached by a device with a qdisc that others made (the kernel's own have the handle 0:).
_TAKEN = f"""{_FUNCTIONS}
for address in "$@"; do
    device=$(device_to "$address")
    [ -n "$device" ] || {{ echo "there is no route to $address"; continue; }}
    kind=$(taken "$device") && echo "$device has a qdisc of its own ($kind), which would be replaced"
done | sort -u
"""

#: Prints what is missing, a line each. It tries what the kernel can do in a temporary network namespace. If it may not
#: make one, it looks for the kernel's modules.
_LACKS = """
for program in tc ip; do command -v $program > /dev/null || echo "there is no $program (iproute2)"; done
command -v tc > /dev/null || exit 0
kernel_has() {
    if unshare -n true 2> /dev/null; then unshare -n sh -c "$2" 2> /dev/null; return; fi
    [ -d "/sys/module/$1" ] || modprobe -nq "$1" 2> /dev/null \\
        || grep -qs "/$1[.]ko" "/lib/modules/$(uname -r)/modules.builtin"
}
needs() { kernel_has "$1" "$2" || echo "the kernel has no $1"; }
needs sch_netem "tc qdisc add dev lo root netem delay 1ms"
needs sch_prio "tc qdisc add dev lo root handle 1: prio"
needs cls_u32 "tc qdisc add dev lo root handle 1: prio && tc filter add dev lo parent 1: protocol ip prio 1 \\
    u32 match ip dst 192.0.2.1/32 flowid 1:1"
exit 0
"""


@dataclass(frozen=True)
class Delays:
    """Delays of packets that one machine sends. Raise MachineError if they cannot be set or removed.

    ``ssh_port``: answers from that port are never delayed. ``key`` identifies the node in watchdogs.
    """

    machine: Machine
    ssh_port: int
    key: str

    def lacking(self, peers: Collection[str]) -> list[str]:
        """Return, in words, what the machine lacks for delays, or what prevents delays to these addresses."""
        missing = self.machine.run(_LACKS).splitlines()
        return missing or self._taken(peers)

    def put(self, delays: Mapping[str, Treatment], *, ports: Collection[int], for_s: float) -> None:
        """Replace all delays of the machine by these, which end by themselves some time after ``for_s``.

        ``delays`` has addresses of peers as keys. If ``ports`` are given, only packets to or from one of these TCP
        ports are delayed.
        """
        if not delays:
            if not watchdog.heal(self.machine, self._key):
                self.machine.run(_CLEAR)  # delays may outlive their watchdog
            return
        if taken := self._taken(delays):
            raise MachineError(f"{self.machine.description}: {'; '.join(taken)}; nothing was done")
        watchdog.arm(self.machine, self._key, heal=_CLEAR, after_s=for_s)
        self.machine.run(_script(delays, ports=ports, ssh_port=self.ssh_port))

    def _taken(self, peers: Collection[str]) -> list[str]:
        return self.machine.run(_TAKEN, *sorted(peers)).splitlines()

    @property
    def _key(self) -> str:
        return f"{self.key}:delays"


def _script(delays: Mapping[str, Treatment], *, ports: Collection[int], ssh_port: int) -> str:
    """Return a script that removes our qdiscs and makes new ones for ``delays``."""
    kinds = sorted({*delays.values()})
    if len(kinds) > _BANDS_MAX - _OTHERS:
        raise MachineError(f"{len(kinds)} different delays at once are too many: at most {_BANDS_MAX - _OTHERS}")
    lines = [_FUNCTIONS, f"( set +e\n{_CLEAR} )", f"for device in $(for a in {' '.join(sorted(delays))}; do"]
    lines += ['device_to "$a"; done | sort -u); do']
    lines += [f'tc qdisc add dev "$device" root handle {_HANDLE} prio bands {_OTHERS + len(kinds)}']
    for band, kind in enumerate(kinds, start=_OTHERS + 1):
        jitter = f" {kind.jitter_ms}ms" if kind.jitter_ms else ""
        lines += [
            f'tc qdisc add dev "$device" parent {_HANDLE}{band:x} '
            f"netem delay {kind.latency_ms}ms{jitter} limit {_PACKETS_HELD_MAX}"
        ]
    for order, (family, match) in enumerate((("ip", "ip"), ("ipv6", "ip6"))):
        tcp = f"match {match} protocol 6 0xff match {match} sport {ssh_port} 0xffff"
        lines += [_filter(family, 2 * order + 1, tcp, band=1)]
        for address, kind in sorted(delays.items()):
            version = ipaddress.ip_address(address).version
            if (version == 6) == (family == "ipv6"):
                to = f"match {match} dst {address}/{128 if version == 6 else 32}"
                ends = [f"match {match} {end} {port} 0xffff" for port in ports for end in ("sport", "dport")]
                both = [f"{to} match {match} protocol 6 0xff {end}" for end in ends] or [to]
                band = _OTHERS + 1 + kinds.index(kind)
                lines += [_filter(family, 2 * order + 2, each, band=band) for each in both]
    return "\n".join([*lines, "done"])


def _filter(family: str, order: int, match: str, *, band: int) -> str:
    where = f'dev "$device" parent {_HANDLE} protocol {family} prio {order}'
    return f"tc filter add {where} u32 {match} flowid {_HANDLE}{band:x}"
