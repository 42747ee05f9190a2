"""Drop or reject packets that a machine receives from its peers, by rules of nftables or, without nft, of iptables.

All rules of a machine are one table, which is written whole each time, so no rule is added twice or left behind. Rules
match incoming packets by the address of the peer, so they never match our own packets, which come from elsewhere.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Literal, Protocol, Self

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.machine import Machine, MachineError
from rabbitmq_resilience.model.packets import Disturbance, dropped_from

Verb = Literal["drop", "reset", "delay"]

#: Rules take a share of all packets in steps of 1 / ``_PARTS``.
_PARTS = 10_000


@dataclass(frozen=True, order=True)
class Treatment:
    """What is done to ``percent`` of the packets, drawn at random.

    A delay takes ``latency_ms``, and up to ``jitter_ms`` more or less than that.
    """

    verb: Verb
    percent: float = 100.0
    latency_ms: int = 0
    jitter_ms: int = 0

    @property
    def parts(self) -> bool:
        """Return whether no packet gets through."""
        return self.verb != "delay" and self.taken == _PARTS

    @property
    def taken(self) -> int:
        """Return how many of ``_PARTS`` packets are treated."""
        return round(self.percent / 100 * _PARTS)

    @classmethod
    def late(cls, *, latency_ms: int, jitter_ms: int) -> Self:
        """Return a delay of all packets."""
        return cls("delay", latency_ms=latency_ms, jitter_ms=jitter_ms)

    @classmethod
    def of(cls, disturbance: Disturbance) -> Self:
        """Return the treatment for the options of iptables or netem. The disturbance is one of ``LOST_OR_LATE``."""
        options = disturbance.options
        if disturbance.kind == "delay":
            return cls.late(latency_ms=int(options["time"]), jitter_ms=int(options["jitter"]))
        return cls("drop", float(options["percent"] if "percent" in options else 100 * float(options["probability"])))


DROP, RESET = Treatment("drop"), Treatment("reset")

#: The disturbances that rules can do, and those that Chaos Mesh can do, each as (part of the kernel, kind), see
#: ``packets.Disturbance``. Chaos Mesh uses netem for all of them.
LOST: frozenset[tuple[str, str]] = frozenset({("iptables", "loss")})
LOST_OR_LATE = LOST | {("netem", "loss"), ("netem", "delay")}

TABLE = "rabbitmq_resilience"

_WHICH = """
if command -v nft > /dev/null && nft list tables > /dev/null 2>&1; then echo nft
elif command -v iptables > /dev/null && iptables -w -nL INPUT > /dev/null 2>&1; then echo iptables
fi
"""

_CLEAR: Mapping[str, str] = {
    "nft": f"nft delete table inet {TABLE} 2> /dev/null || ! nft list table inet {TABLE} 2> /dev/null",
    "iptables": f"""( set +e
for tool in iptables ip6tables; do
    command -v $tool > /dev/null || continue
    while $tool -w -D INPUT -j {TABLE} 2> /dev/null; do :; done
    $tool -w -F {TABLE} 2> /dev/null; $tool -w -X {TABLE} 2> /dev/null
    $tool -w -nL {TABLE} > /dev/null 2>&1 && exit 1
done
exit 0 )""",
}


@dataclass(frozen=True)
class PacketRule:
    """The treatment of packets from ``address``; with ``port``, only of those to or from that TCP port."""

    address: str
    treatment: Treatment
    port: int | None = None

    @property
    def order(self) -> tuple[float, str]:
        """Return a sort key by which rules for all packets come before rules for some."""
        return (-self.treatment.percent, str(self))


class Rules(Protocol):
    """The treatment of packets that one node receives. Raise MachineError if it cannot be set or read."""

    @property
    def tool(self) -> str:
        """Return the name of the tool that sets rules; empty if there is none."""
        ...

    def put(self, rules: Collection[PacketRule], *, for_s: float) -> None:
        """Replace all rules of the node by these, which end by themselves some time after ``for_s``."""
        ...

    def lost(self) -> Mapping[str, int]:
        """Return how many packets were lost since their rule was written, by address, for rules that lose some."""
        ...


class PacketRules:
    """The rules of one machine. Raise MachineError if they cannot be set or read.

    ``key`` identifies the node in watchdogs.
    """

    def __init__(self, machine: Machine, *, key: str) -> None:
        self._machine = machine
        self._key = f"{key}:packets"
        self._tool: str | None = None

    @property
    def tool(self) -> str:
        """Return nft or iptables; empty if the machine has neither, or we may not use it."""
        if self._tool is None:
            self._tool = self._machine.run(_WHICH).strip()
        return self._tool

    def put(self, rules: Collection[PacketRule], *, for_s: float) -> None:
        if not rules:
            watchdog.heal(self._machine, self._key)
            if self.tool:  # rules may outlive their watchdog
                self._machine.run(_CLEAR[self.tool])
            return
        if not self.tool:
            raise MachineError(f"{self._machine.description} has neither nft nor iptables that we may use")
        watchdog.arm(self._machine, self._key, heal=_CLEAR[self.tool], after_s=for_s)
        script = _for_nft(rules) if self.tool == "nft" else _for_iptables(rules)
        self._machine.run(script)

    def lost(self) -> Mapping[str, int]:
        listing = {
            "nft": f"nft list table inet {TABLE} 2> /dev/null || true",
            "iptables": f"for tool in iptables ip6tables; do $tool -w -nvxL {TABLE} 2> /dev/null; done; true",
        }
        text = self._machine.run(listing[self.tool]) if self.tool else ""
        return _lost_nft(text) if self.tool == "nft" else dropped_from(text)


def _for_nft(rules: Collection[PacketRule]) -> str:
    lines = []
    for rule in sorted(rules, key=lambda rule: rule.order):
        family = "ip6" if ipaddress.ip_address(rule.address).version == 6 else "ip"
        how = rule.treatment
        verdict = "drop" if how.verb == "drop" else "reject with tcp reset"
        tcp = " tcp flags & rst == 0" if how.verb == "reset" else ""  # the peer must receive the reset itself
        some = "" if how.taken == _PARTS else f" numgen random mod {_PARTS} < {how.taken}"
        ways = [""] if rule.port is None else [f" tcp dport {rule.port}", f" tcp sport {rule.port}"]
        lines += [f"        {family} saddr {rule.address}{tcp}{way}{some} counter {verdict}" for way in ways]
    body = "\n".join(lines)
    return f"""nft -f - <<'END'
table inet {TABLE} {{}}
delete table inet {TABLE}
table inet {TABLE} {{
    chain incoming {{
        type filter hook input priority -150; policy accept;
{body}
    }}
}}
END"""


def _for_iptables(rules: Collection[PacketRule]) -> str:
    """Return a script that removes our old chain, fills a new one, and then lets packets enter it."""
    lines = ["set -e", _CLEAR["iptables"]]
    tools = {"iptables": 4, "ip6tables": 6}
    ordered = sorted(rules, key=lambda rule: rule.order)
    for tool, version in tools.items():
        mine = [rule for rule in ordered if ipaddress.ip_address(rule.address).version == version]
        if not mine:
            continue
        lines.append(f"{tool} -w -N {TABLE}")
        for rule in mine:
            how = rule.treatment
            jump = "-j DROP" if how.verb == "drop" else "-j REJECT --reject-with tcp-reset"
            tcp = "-p tcp " if how.verb == "reset" or rule.port is not None else ""
            tcp += "! --tcp-flags RST RST " if how.verb == "reset" else ""
            some = "" if how.taken == _PARTS else f"-m statistic --mode random --probability {how.taken / _PARTS:.4f} "
            ways = [""] if rule.port is None else [f"--dport {rule.port} ", f"--sport {rule.port} "]
            lines += [f"{tool} -w -A {TABLE} -s {rule.address} {tcp}{way}{some}{jump}" for way in ways]
        lines.append(f"{tool} -w -I INPUT 1 -j {TABLE}")
    return "\n".join(lines)


def _lost_nft(listing: str) -> dict[str, int]:
    """Return {address: lost packets} from lines of nft, as ``dropped_from`` does from lines of iptables.

    A line is ``ip saddr 10.0.0.2 numgen random mod 10000 < 500 counter packets 12 bytes 720 drop``, for example.
    """
    found: dict[str, int] = {}
    for words in (line.split() for line in listing.splitlines()):
        if "saddr" in words and "numgen" in words:
            address, count = words[words.index("saddr") + 1], words[words.index("packets") + 1]
            found[address] = found.get(address, 0) + int(count)
    return found
