"""Decide what may be done to a cluster that is not ours: what is offered and allowed, and at how many nodes at once."""

from __future__ import annotations

import threading
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from math import inf

from rabbitmq_resilience.extensions.attached.cluster_model import ClusterFile
from rabbitmq_resilience.extensions.attached.journal import Journal
from rabbitmq_resilience.extensions.attached.offers import demand
from rabbitmq_resilience.extensions.attached.packet_rules import LOST, LOST_OR_LATE, Treatment
from rabbitmq_resilience.extensions.attached.watchdog import MARGIN_S
from rabbitmq_resilience.model.actions import ACTIONS
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.packets import Disturbance

#: How long brokers may still report an alarm that is over.
ALARM_LINGERS_S = 30.0


@dataclass(frozen=True)
class FaultBudget:
    """What may be done to the cluster of a cluster file: what the file offers and allows."""

    stated: ClusterFile

    def refusal(self, verb: str, nodes: int) -> str:
        """Return why the action may not be done to ``nodes`` nodes at once, and what to change; empty if it may be."""
        action = ACTIONS.get(verb)
        if action is None or not action.ways:
            return f"it would {_words(verb)}, which is not done to an existing cluster"
        if self.stated.offers.way_of(action) is None:
            return f"it would {_words(verb)}, but no way in offers: can do that; state {demand(action)}"
        allowed = self.stated.allow.get(verb, 0)
        if not allowed:
            return f"it would {_words(verb)}, which allow: does not name; write allow: {{{verb}: {nodes}}} to allow it"
        if nodes > allowed:
            return f"it would {_words(verb)} at up to {nodes} nodes at once, but allow: has {verb}: {allowed}"
        return ""

    def untreated(self, disturbance: Disturbance) -> str:
        """Return why packets here cannot be disturbed so, and what can be done instead; empty if they can."""
        kubernetes = self.stated.offers.kubernetes
        treated = LOST_OR_LATE if kubernetes is not None and kubernetes.cut_by == "chaos_mesh" else LOST
        if (disturbance.by, disturbance.kind) in treated:
            all_are_lost = Treatment.of(disturbance).parts
            return "a loss of all packets is a cut; write fault: partition, or a lower percent" if all_are_lost else ""
        instead = " or ".join(f"{kind} by {by}" for by, kind in sorted(treated))
        return f"{disturbance.kind} by {disturbance.by} is not done to packets of this cluster; {instead} is"


def _words(verb: str) -> str:
    return verb.replace("_", " ")


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
            if text := FaultBudget(self.stated).refusal(act, counted or len({*held, *nodes})):
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
