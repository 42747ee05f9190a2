"""Rules for packets as text, and what kernels list of them."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.extensions.attached.bystanders import changes, things
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.packet_rules import DROP, RESET, PacketRule, PacketRules, Treatment
from tests.messages import Messages

NFT = """table inet rabbitmq_resilience {
    chain incoming {
        type filter hook input priority -150; policy accept;
        ip saddr 10.0.0.2 counter packets 12 bytes 720 drop
        ip saddr 10.0.0.3 tcp flags & rst == 0 counter packets 1 bytes 60 reject with tcp reset
        ip saddr 10.0.0.2 numgen random mod 10000 < 500 counter packets 3 bytes 60 drop
        ip saddr 10.0.0.4 tcp dport 25672 numgen random mod 10000 < 500 counter packets 2 bytes 60 drop
        ip saddr 10.0.0.4 tcp sport 25672 numgen random mod 10000 < 500 counter packets 4 bytes 60 drop
    }
}"""
IPTABLES = """Chain rabbitmq_resilience (1 references)
    pkts      bytes target     prot opt in     out     source               destination
       7      420 DROP       all  --  *      *       10.0.0.2             0.0.0.0/0
       2      120 REJECT     tcp  --  *      *       10.0.0.3             0.0.0.0/0
       3       60 DROP       all  --  *      *       10.0.0.2   0.0.0.0/0 statistic mode random probability 0.05
       6       60 DROP       all  --  *      *       10.0.0.4   0.0.0.0/0 statistic mode random probability 0.05
"""


class Shell:
    """A machine that has one tool, and notes what it is asked."""

    description = "a machine"
    state = "/run/rabbitmq-resilience"

    def __init__(self, tool: str, listing: str = "") -> None:
        self.tool, self.listing, self.ran = tool, listing, list[tuple[str, ...]]()

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:  # noqa: ARG002 - the protocol's
        self.ran.append((script, *arguments))
        if "command -v nft > /dev/null &&" in script and not arguments:
            return self.tool
        return self.listing


@pytest.mark.parametrize(
    ("tool", "listing"),
    [("nft", NFT), ("iptables", IPTABLES)],
)
def test_what_some_packets_lost_is_counted_and_nothing_else(tool: str, listing: str) -> None:
    lost = PacketRules(Shell(tool, listing), key="h1").lost()  # type: ignore[arg-type]
    assert lost == {"10.0.0.2": 3, "10.0.0.4": 6}


def test_the_watchdog_is_there_before_the_rule() -> None:
    shell = Shell("nft")
    PacketRules(shell, key="h1").put([PacketRule("10.0.0.2", DROP)], for_s=8)  # type: ignore[arg-type]
    _, armed, rule = shell.ran
    assert armed[1:3] == ("/run/rabbitmq-resilience/h1:packets", "38")
    assert "nft delete table inet rabbitmq_resilience" in armed[3]
    assert "ip saddr 10.0.0.2 counter drop" in rule[0]


def test_nothing_is_done_where_no_watchdog_can_be_set(message: Messages) -> None:
    class Refusing(Shell):
        def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
            if arguments:
                raise MachineError("read-only file system")
            return super().run(script, *arguments, timeout_s=timeout_s)

    shell = Refusing("nft")
    with message.of(MachineError):
        PacketRules(shell, key="h1").put([PacketRule("10.0.0.2", DROP)], for_s=8)  # type: ignore[arg-type]
    assert len(shell.ran) == 1, "it was asked which tool it has"


def test_a_machine_without_tools_is_reported(message: Messages) -> None:
    with message.of(MachineError):
        PacketRules(Shell(""), key="h1").put([PacketRule("10.0.0.2", DROP)], for_s=8)  # type: ignore[arg-type]


def written(tool: str, rules: list[PacketRule]) -> str:
    """The script that a machine with that tool is given for them."""
    shell = Shell(tool)
    PacketRules(shell, key="h1").put(rules, for_s=8)  # type: ignore[arg-type]
    return shell.ran[-1][0]


def test_rules_for_iptables_by_family_and_port() -> None:
    text = written("iptables", [PacketRule("10.0.0.2", DROP, 25672), PacketRule("fd00::2", RESET)])
    assert "iptables -w -A rabbitmq_resilience -s 10.0.0.2 -p tcp --dport 25672 -j DROP" in text
    assert "iptables -w -A rabbitmq_resilience -s 10.0.0.2 -p tcp --sport 25672 -j DROP" in text
    assert "ip6tables -w -A rabbitmq_resilience -s fd00::2 -p tcp ! --tcp-flags RST RST -j REJECT" in text


def test_what_takes_all_comes_before_what_takes_some() -> None:
    """Counted is what some packets lost; what is cut off loses none in that sense."""
    rules = [PacketRule("10.0.0.2", Treatment("drop", 5)), PacketRule("10.0.0.2", DROP)]
    nft, iptables = written("nft", rules), written("iptables", rules)
    assert nft.index("10.0.0.2 counter drop") < nft.index("10.0.0.2 numgen random mod 10000 < 500 counter drop")
    assert iptables.index("-s 10.0.0.2 -j DROP") < iptables.index("--probability 0.0500 -j DROP")


def test_what_others_have_is_reported_by_name_and_no_secret_is_kept(message: Messages) -> None:
    before = {
        "users": [{"name": "bob", "password_hash": "x"}],
        "vhosts": [{"name": "/"}, {"name": "ours"}],
        "policies": [{"vhost": "/", "name": "ha", "definition": {"a": 1}}],
        "queues": [{"vhost": "ours", "name": "q1"}, {"vhost": "/", "name": "orders"}],
    }
    after = {
        **before,
        "users": [{"name": "bob", "password_hash": "y"}, {"name": "eve", "password_hash": "z"}],
        "queues": [],
        "policies": [{"vhost": "/", "name": "ha", "definition": {"a": 2}}],
    }
    first, second = things(before, ours={"ours"}), things(after, ours={"ours"})
    assert changes(first, first) == []
    told = sorted(changes(first, second))
    assert [text.partition(" is ")[0] for text in told] == ["policy / ha", "queue / orders", "user bob", "user eve"]
    for text in told:
        message(text)
    assert not any(secret in str(first) for secret in ("'x'", "password"))
