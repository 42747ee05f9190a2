"""What may be done to a cluster that is not ours: what is offered, what is allowed, and at how many nodes at once."""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from rabbitmq_resilience.clusters.attached.journal import Journal
from rabbitmq_resilience.clusters.attached.spec import ClusterFile
from rabbitmq_resilience.clusters.attached.watchdog import MARGIN_S
from rabbitmq_resilience.clusters.errors import ClusterError

#: By what each act can be done; "api": by the management API, which every cluster file has.
OFFERED_BY: Mapping[str, frozenset[str]] = {
    "kill": frozenset({"ssh", "commands", "kubernetes"}),
    "stop": frozenset({"ssh", "commands", "kubernetes"}),
    "pause": frozenset({"ssh", "commands", "kubernetes"}),
    "cut": frozenset({"ssh", "commands", "kubernetes"}),
    "refuse": frozenset({"ssh", "kubernetes"}),
    "lose_packets": frozenset({"ssh", "kubernetes"}),
    "rebalance": frozenset({"api"}),
}


#: What a NetworkPolicy cannot do.
_BY_RULES = frozenset({"refuse", "lose_packets"})


def offers(stated: ClusterFile, act: str) -> frozenset[str]:
    """The ways in that a cluster file has for ``act``."""
    ways = {"api", *(name for name in type(stated.offers).model_fields if getattr(stated.offers, name))}
    commands, kubernetes = stated.offers.commands, stated.offers.kubernetes
    if kubernetes is not None and kubernetes.cut_by == "network_policy" and act in _BY_RULES:
        ways.discard("kubernetes")
    return frozenset(ways if commands is None or commands.act(act) is not None else ways - {"commands"})


def refusal(stated: ClusterFile, act: str, nodes: int) -> str:
    """Why ``act`` is not done to so many nodes at once, with what would let it be done; empty if it may be."""
    ways = OFFERED_BY.get(act, frozenset())
    if not ways:
        return f"it would {_told(act)}, which is not done to a cluster that is there already"
    if not ways & offers(stated, act):
        return f"it would {_told(act)}, and nothing in offers: can; {' or '.join(sorted(ways))} would"
    allowed = stated.allow.get(act, 0)
    if not allowed:
        return f"it would {_told(act)}, which allow: does not name; write allow: {{{act}: {nodes}}} if that may be"
    if nodes > allowed:
        return f"it would {_told(act)} at up to {nodes} nodes at once, and allow: has {act}: {allowed}"
    return ""


def _told(act: str) -> str:
    return act.replace("_", " ")


@dataclass
class Hands:
    """Counts at how many nodes each act is at work, and refuses what would be more than is allowed, whatever drew the
    targets."""

    stated: ClusterFile
    journal: Journal
    _held: dict[str, set[str]] = field(default_factory=dict)
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

    def leave(self, act: str, nodes: Collection[str]) -> None:
        """Once it is healed there."""
        with self._lock:
            held = self._held.get(act, set())
            for node in held & set(nodes):
                self.journal.healed(act, node)
            held.difference_update(nodes)
