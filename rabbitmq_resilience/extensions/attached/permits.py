"""Decide what may be done to a cluster that is not ours: what is offered and allowed, and at how many nodes at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field
from math import inf

from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile
from rabbitmq_resilience.extensions.attached.journal import Journal
from rabbitmq_resilience.extensions.attached.offers import would
from rabbitmq_resilience.extensions.attached.packet_rules import LOST, LOST_OR_LATE, Treatment
from rabbitmq_resilience.extensions.attached.watchdog import MARGIN_S
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.packets import Disturbance

#: The ways by which each act can be done; "api" is the management API, which every cluster file has.
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
#: What else an act needs of its way.
_WITH: Mapping[str, str] = {"fill_disk": " with disk: /FOLDER"}

#: How long brokers may still report an alarm that is over.
ALARM_LINGERS_S = 30.0


def offers(stated: ClusterFile, act: str) -> frozenset[str]:
    """Return the ways that a cluster file states, without those whose own settings rule out ``act``."""
    ways = {"api", *(name for name in type(stated.offers).model_fields if getattr(stated.offers, name))}
    commands, kubernetes = stated.offers.commands, stated.offers.kubernetes
    if kubernetes is not None and not kubernetes.can(act):
        ways.discard("kubernetes")
    if act == "fill_disk" and (stated.offers.ssh is None or stated.offers.ssh.disk is None):
        ways.discard("ssh")
    return frozenset(ways if commands is None or commands.act(act) is not None else ways - {"commands"})


def refusal(stated: ClusterFile, act: str, nodes: int) -> str:
    """Return why ``act`` may not be done to ``nodes`` nodes at once, and what to change; empty if it may be done."""
    ways = OFFERED_BY.get(act, frozenset())
    if not ways:
        return f"it would {_words(act)}, which is not done to an existing cluster"
    if not ways & offers(stated, act):
        can = " or ".join(would(way, act) + (_WITH.get(act, "") if way == "ssh" else "") for way in sorted(ways))
        return f"it would {_words(act)}, but no way in offers: can do that; state {can}"
    allowed = stated.allow.get(act, 0)
    if not allowed:
        return f"it would {_words(act)}, which allow: does not name; write allow: {{{act}: {nodes}}} to allow it"
    if nodes > allowed:
        return f"it would {_words(act)} at up to {nodes} nodes at once, but allow: has {act}: {allowed}"
    return ""


def untreated(stated: ClusterFile, disturbance: Disturbance) -> str:
    """Return why packets of this cluster cannot be disturbed so, and what can be done instead; empty if they can."""
    kubernetes = stated.offers.kubernetes
    treated = LOST_OR_LATE if kubernetes is not None and kubernetes.cut_by == "chaos_mesh" else LOST
    if (disturbance.by, disturbance.kind) in treated:
        all_are_lost = Treatment.of(disturbance).parts
        return "a loss of all packets is a cut; write fault: partition, or a lower percent" if all_are_lost else ""
    instead = " or ".join(f"{kind} by {by}" for by, kind in sorted(treated))
    return f"{disturbance.kind} by {disturbance.by} is not done to packets of this cluster; {instead} is"


def _words(act: str) -> str:
    return act.replace("_", " ")


@dataclass
class BlastRadius:
    """The blast radius: counts the nodes at which each act is in effect, and refuses acts at more than are allowed."""

    stated: ClusterFile
    journal: Journal
    _held: dict[str, set[str]] = field(default_factory=dict)
    #: By node and resource, until when an alarm there counts as ours (``time.monotonic``).
    _alarms: dict[tuple[str, str], float] = field(default_factory=dict)
    _lock: threading.Lock = field(default_factory=threading.Lock)

    def take(self, act: str, nodes: Collection[str], *, for_s: float, counted: int | None = None) -> None:
        """Permit an act at ``nodes``, and record it in the journal; to be called before the act.

        ``counted``: how many nodes count as affected; by default, all at which the act is in effect. Raise ClusterError
        if that is more than allowed or the journal cannot be written. Then no node is taken, but the journal may have
        some as begun.
        """
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
        """Return the nodes at which any of these acts is not healed."""
        with self._lock:
            return sorted({node for act in acts for node in self._held.get(act, ())})

    def alarming(self, node: str, resource: str) -> None:
        """Expect an alarm of ``resource`` (memory, disk) at the node; to be called before the act that raises it."""
        with self._lock:
            self._alarms[node, resource] = inf

    def calmed(self, node: str, resource: str) -> None:
        """Expect the alarm to be over soon; to be called once its cause is healed."""
        with self._lock:
            if (node, resource) in self._alarms:
                self._alarms[node, resource] = time.monotonic() + ALARM_LINGERS_S

    def alarmed(self) -> set[tuple[str, str]]:
        """Return the alarms that are ours, by node and resource, also those that ended just now.

        Brokers may report an alarm for a while after its end.
        """
        with self._lock:
            return {alarm for alarm, until_s in self._alarms.items() if time.monotonic() < until_s}

    def leave(self, act: str, nodes: Collection[str]) -> None:
        """Release ``nodes``, and record the act as healed there; to be called once it is."""
        with self._lock:
            held = self._held.get(act, set())
            for node in held & set(nodes):
                self.journal.healed(act, node)
            held.difference_update(nodes)
