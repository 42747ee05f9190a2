"""Each kind of act that is done to machines, and how an onlooker sees on a machine that it is in effect.

``python -m`` this module does one of them, and waits to be killed: FILE KIND FOR_S. Its watchdogs have no margin.
"""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Mapping
from contextlib import closing
from dataclasses import dataclass
from pathlib import Path

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.attached_cluster import AttachedCluster
from rabbitmq_resilience.extensions.attached.attaching import Attachment
from rabbitmq_resilience.extensions.attached.cluster_file import load
from rabbitmq_resilience.extensions.attached.packet_rules import Treatment
from rabbitmq_resilience.model import topology_catalogue
from rabbitmq_resilience.model.broker_changes import MAINTENANCE, BrokerChange
from rabbitmq_resilience.nemesis.alarm import LIMITS, Resource
from tests.clusters.attached.machines import DISK, Machines

TOPOLOGY = topology_catalogue.load("three_nodes_three_zones")
#: All to and from the broker of host3.
LINKS = [link for link in TOPOLOGY.links if "c1" in link]
LOST = Treatment("drop", 5.0)


@dataclass(frozen=True)
class Kind:
    """``is_on``: whether a machine shows it. ``lasts_s``: RabbitMQ's tools take ten seconds where much else runs."""

    do: Callable[[AttachedCluster], None]
    undo: Callable[[AttachedCluster], None]
    is_on: Callable[[Machines], bool]
    lasts_s: float = 15.0


def brokers(machines: Machines) -> list[str]:
    """The states of those of host2."""
    rows = machines.ask("host2", "ps -eo stat=,args= | grep -e '-s rabbit boot' | grep -v grep || true").splitlines()
    return [row.split()[0] for row in rows]


def rules(machines: Machines, name: str) -> str:
    return machines.ask(name, "nft list ruleset")


def verdicts(machines: Machines) -> str:
    """What the rules on host2 that are ours do with packets; engines have rules of their own there."""
    return machines.ask("host2", "nft list table inet rabbitmq_resilience 2> /dev/null || true")


def free_blocks(machines: Machines) -> int:
    return int(machines.ask("host2", f"stat -f -c %a {DISK}"))


def has_alarm(machines: Machines, resource: Resource) -> bool:
    return f"{resource},rabbit@host2" in machines.ask("host2", "rabbitmqctl -q eval 'rabbit_alarm:get_alarms().'")


def takes_clients(machines: Machines) -> bool:
    return bool(machines.ask("host2", "ss -Hltn 'sport = :5672'"))


def alarm(cluster: AttachedCluster, resource: Resource) -> BrokerChange:
    limit = LIMITS[resource]
    (row,) = (row for row in cluster.api("b1").nodes() if row["name"] == "rabbit@host2")
    undo = ("rabbitmqctl", limit.command, *limit.restored, str(row[limit.shown]))
    do = ("rabbitmqctl", limit.command, *limit.impossible)
    return BrokerChange("alarm", f"{resource}-alarm", do, undo, alarm=resource)


#: What ``changed`` has done.
_DONE: list[tuple[str, BrokerChange]] = []


def changed(cluster: AttachedCluster, change: BrokerChange) -> None:
    _DONE.append(("b1", change))
    cluster.change("b1", change)


def changed_back(cluster: AttachedCluster) -> None:
    while _DONE:
        cluster.change_back(*_DONE.pop())


KINDS: Mapping[str, Kind] = {
    "kill": Kind(lambda c: c.kill("b1"), lambda c: c.start("b1"), lambda m: not brokers(m)),
    "stop": Kind(lambda c: c.stop("b1"), lambda c: c.start("b1"), lambda m: not brokers(m)),
    "pause": Kind(lambda c: c.pause("b1"), lambda c: c.resume("b1"), lambda m: "T" in "".join(brokers(m))),
    "cut": Kind(lambda c: c.links.cut(LINKS), lambda c: c.links.restore(LINKS), lambda m: " drop" in verdicts(m)),
    "refuse": Kind(lambda c: c.links.refuse(LINKS), lambda c: c.links.accept(LINKS), lambda m: "reject" in verdicts(m)),
    "lose_packets": Kind(
        lambda c: c.links.treat(LINKS, how=LOST),
        lambda c: c.links.untreat(LINKS, how=LOST),
        lambda m: "numgen" in verdicts(m),
    ),
    "fill_disk": Kind(lambda c: c.disk("b1").fill(), lambda c: c.disk("b1").empty(), lambda m: free_blocks(m) == 0),
    "memory_alarm": Kind(
        lambda c: changed(c, alarm(c, "memory")), changed_back, lambda m: has_alarm(m, "memory"), lasts_s=40
    ),
    "disk_alarm": Kind(
        lambda c: changed(c, alarm(c, "disk")), changed_back, lambda m: has_alarm(m, "disk"), lasts_s=40
    ),
    "drain": Kind(lambda c: changed(c, MAINTENANCE), changed_back, lambda m: not takes_clients(m), lasts_s=40),
}


def main(file: Path, kind: str, for_s: float) -> None:
    watchdog.MARGIN_S = 0.0
    with closing(Attachment(load(file))) as attachment:
        KINDS[kind].do(attachment.form(TOPOLOGY, LINKS).lasting(for_s))
        print("broken", flush=True)
        threading.Event().wait()


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2], float(sys.argv[3]))
