"""What may be done to a cluster that is not ours: what is offered, what is allowed, and at how many nodes at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from rabbitmq_resilience.clusters.attached.journal import Journal
from rabbitmq_resilience.clusters.attached.offers import would
from rabbitmq_resilience.clusters.attached.packet_rules import LOST, LOST_OR_LATE, Treatment
from rabbitmq_resilience.clusters.attached.spec import ClusterFile
from rabbitmq_resilience.clusters.attached.watchdog import MARGIN_S
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.packets import Disturbance

#: By what each act can be done; "api": by the management API, which every cluster file has.
OFFERED_BY: Mapping[str, frozenset[str]] = {
    "kill": frozenset({"ssh", "commands", "kubernetes"}),
    "stop": frozenset({"ssh", "commands", "kubernetes"}),
    "pause": frozenset({"ssh", "commands", "kubernetes"}),
    "cut": frozenset({"ssh", "commands", "kubernetes"}),
    "refuse": frozenset({"ssh", "kubernetes"}),
    "lose_packets": frozenset({"ssh", "kubernetes"}),
    "fill_disk": frozenset({"ssh"}),
    "delay": frozenset({"ssh", "kubernetes"}),
    "alarm": frozenset({"ssh"}),
    "drain": frozenset({"ssh"}),
    "drain_node": frozenset({"kubernetes"}),
    "restart_all": frozenset({"kubernetes"}),
    "lose_data": frozenset({"kubernetes"}),
    "rebalance": frozenset({"api"}),
}
#: What an act needs of its way in beside that.
_WITH: Mapping[str, str] = {"fill_disk": " with disk: /FOLDER"}

#: How long brokers may go on telling of an alarm that is over.
TOLD_S = 30.0


def offers(stated: ClusterFile, act: str) -> frozenset[str]:
    """The ways in that a cluster file has for ``act``."""
    ways = {"api", *(name for name in type(stated.offers).model_fields if getattr(stated.offers, name))}
    commands, kubernetes = stated.offers.commands, stated.offers.kubernetes
    if kubernetes is not None and not kubernetes.can(act):
        ways.discard("kubernetes")
    if act == "fill_disk" and (stated.offers.ssh is None or stated.offers.ssh.disk is None):
        ways.discard("ssh")
    return frozenset(ways if commands is None or commands.act(act) is not None else ways - {"commands"})


def refusal(stated: ClusterFile, act: str, nodes: int) -> str:
    """Why ``act`` is not done to so many nodes at once, with what would let it be done; empty if it may be."""
    ways = OFFERED_BY.get(act, frozenset())
    if not ways:
        return f"it would {_told(act)}, which is not done to a cluster that is there already"
    if not ways & offers(stated, act):
        can = " or ".join(would(way, act) + (_WITH.get(act, "") if way == "ssh" else "") for way in sorted(ways))
        return f"it would {_told(act)}, and nothing in offers: can; {can} would"
    allowed = stated.allow.get(act, 0)
    if not allowed:
        return f"it would {_told(act)}, which allow: does not name; write allow: {{{act}: {nodes}}} if that may be"
    if nodes > allowed:
        return f"it would {_told(act)} at up to {nodes} nodes at once, and allow: has {act}: {allowed}"
    return ""


def untreated(stated: ClusterFile, disturbance: Disturbance) -> str:
    """Why packets are not disturbed so, with what is done instead; empty if they are."""
    kubernetes = stated.offers.kubernetes
    treated = LOST_OR_LATE if kubernetes is not None and kubernetes.cut_by == "chaos_mesh" else LOST
    if (disturbance.by, disturbance.kind) in treated:
        all_are_lost = Treatment.of(disturbance).parts
        return (
            "where all packets are lost it is a cut; write fault: partition, or a lower percent" if all_are_lost else ""
        )
    instead = " or ".join(f"{kind} by {by}" for by, kind in sorted(treated))
    return f"{disturbance.kind} by {disturbance.by} is not done to packets of this cluster; {instead} is"


def _told(act: str) -> str:
    return act.replace("_", " ")


@dataclass
class Hands:
    """Counts at how many nodes each act is at work, and refuses what would be more than is allowed, whatever drew the
    targets."""

    stated: ClusterFile
    journal: Journal
    _held: dict[str, set[str]] = field(default_factory=dict)
    #: By node and resource, until when an alarm of it is ours (``time.monotonic``).
    _alarms: dict[tuple[str, str], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, act: str, nodes: Collection[str], *, for_s: float, counted: int | None = None) -> None:
        """To be called before the act, which is in the journal then. ``counted``: what counts as so many nodes, by
        default each does. Raises ClusterError, and takes none of them then."""
        with self._lock:
            held = self._held.setdefault(act, set())
            if text := refusal(self.stated, act, counted or len({*held, *nodes})):
                raise ClusterError(f"refused: {text}")
            try:
                for node in nodes:
                    self.journal.begun(act, node, heals_by_itself_s=for_s + MARGIN_S)
            except OSError as error:
                raise ClusterError(f"refused: the journal {self.journal.path} cannot be written: {error}") from error
            held.update(nodes)

    def held(self, acts: Collection[str]) -> list[str]:
        """The nodes at which one of these is not healed."""
        with self._lock:
            return sorted({node for act in acts for node in self._held.get(act, ())})

    def alarming(self, node: str, resource: str) -> None:
        """To be called before an act that raises an alarm of ``resource`` (memory, disk) at the node."""
        with self._lock:
            self._alarms[node, resource] = inf

    def calmed(self, node: str, resource: str) -> None:
        """Once that is healed."""
        with self._lock:
            if (node, resource) in self._alarms:
                self._alarms[node, resource] = time.monotonic() + TOLD_S

    def alarmed(self) -> set[tuple[str, str]]:
        """The alarms that are ours, by node and resource, or were until just now: brokers take their time to tell."""
        with self._lock:
            return {alarm for alarm, until_s in self._alarms.items() if time.monotonic() < until_s}

    def leave(self, act: str, nodes: Collection[str]) -> None:
        """Once it is healed there."""
        with self._lock:
            held = self._held.get(act, set())
            for node in held & set(nodes):
                self.journal.healed(act, node)
            held.difference_update(nodes)
