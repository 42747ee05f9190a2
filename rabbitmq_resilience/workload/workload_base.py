"""State what a load of any kind is asked for. A kind overrides what it has."""

from __future__ import annotations

from collections.abc import Sequence
from typing import ClassVar, Literal

from rabbitmq_resilience.model.base import Spec

#: How long publishers wait for a confirm if the load does not say so.
CONFIRM_TIMEOUT_S = 10.0
#: How often clients send heartbeats if the load does not say so.
HEARTBEAT_S = 4


class WorkloadBase(Spec):
    """The fields and questions of a load of any kind. ``queue_type``: the type of its queues.

    - ``own_invariants``: names of invariants that are judged only of kinds that have them here. All other invariants
      are judged of every kind.
    - ``always_judged``: names of invariants that are judged even if a scenario does not demand them.
    """

    own_invariants: ClassVar[frozenset[str]] = frozenset()
    always_judged: ClassVar[tuple[str, ...]] = ()

    kind: str
    queue_type: Literal["quorum", "mirrored", "classic"] = "quorum"

    @property
    def needs(self) -> frozenset[str]:
        """Return the features that brokers must have, by their names in ``sut.broker.versions.FEATURES``."""
        return frozenset()

    @property
    def plugins(self) -> frozenset[str]:
        """Return the plugins that brokers must have enabled."""
        return frozenset()

    @property
    def queue_names(self) -> Sequence[str] | None:
        """Return the names of all queues, in index order; None if they are not known before the load runs."""
        return None

    @property
    def clients(self) -> Sequence[str]:
        """Return the names of the clients that faults may act on, such as ``publisher:0``."""
        return ()

    @property
    def variation_s(self) -> float:
        """Return the time until the plain values apply again, in seconds."""
        return 0.0

    @property
    def takes_turns(self) -> bool:
        """Return whether only one consumer of a queue at a time gets messages."""
        return False

    @property
    def confirms_within_s(self) -> float | None:
        """Return how long a publisher waits for a confirm; None if it heeds none."""
        return CONFIRM_TIMEOUT_S

    @property
    def heartbeat_interval_s(self) -> float:
        """Return the time between two heartbeats of a client."""
        return HEARTBEAT_S

    def client_problem(self, client: str) -> str:
        """Return why faults cannot act on the client of that name; '' if they can."""
        known = ", ".join(self.clients[:8]) + (", ..." if len(self.clients) > 8 else "")
        return "" if client in self.clients else f"{client!r} is no client of the load; it has {known}"

    def queue_problem(self, queue: str) -> str:
        """Return why the load has no queue of that name; '' if it has one, or may have it."""
        if self.queue_names is None or queue in self.queue_names:
            return ""
        return f"{queue!r} is not in the workload: {', '.join(self.queue_names[:8])}"

    def emptying_problem(self, queue: str) -> str:
        """Return why no fault may take the messages of a queue; '' if it may."""
        return self.queue_problem(queue)

    def deleting_problem(self, queue: str) -> str:
        """Return why no fault may delete a queue and declare it again; '' if it may."""
        return self.emptying_problem(queue)
