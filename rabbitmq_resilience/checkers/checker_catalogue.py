"""List all invariants and assumptions, by the names that fault files and verdicts use.

Another package adds an invariant by an entry point of the group ``rabbitmq_resilience.invariants``: the entry point has
the invariant's name, and its object is the class, an ``checkers.verdict.InvariantSpec``.
"""

from __future__ import annotations

from collections.abc import Mapping

from rabbitmq_resilience.checkers.alarms import Alarms
from rabbitmq_resilience.checkers.alerts import Alerts
from rabbitmq_resilience.checkers.assumptions import (
    DrainComplete,
    FaultsBegun,
    FaultsProven,
    LoadNotZero,
    RunEnded,
    Watched,
)
from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.backlog import Backlog
from rabbitmq_resilience.checkers.committed import Committed
from rabbitmq_resilience.checkers.consumers_back import ConsumersBack
from rabbitmq_resilience.checkers.dead_letters import DeadLetterPromise
from rabbitmq_resilience.checkers.disk import Disk
from rabbitmq_resilience.checkers.flow import SteadyFlow
from rabbitmq_resilience.checkers.followers import Followers
from rabbitmq_resilience.checkers.held_back import HeldBack
from rabbitmq_resilience.checkers.latency_bound import LatencyBounds
from rabbitmq_resilience.checkers.leaders_spread import LeadersSpread
from rabbitmq_resilience.checkers.memory import Memory
from rabbitmq_resilience.checkers.metadata import Metadata
from rabbitmq_resilience.checkers.no_crash import NoCrash
from rabbitmq_resilience.checkers.no_loss import NoLoss
from rabbitmq_resilience.checkers.order import Order
from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.reconnects import Reconnects
from rabbitmq_resilience.checkers.recovery import Recovery
from rabbitmq_resilience.checkers.settled import Settled
from rabbitmq_resilience.checkers.single_active_consumer import SingleActiveConsumer
from rabbitmq_resilience.checkers.stays_up import StaysUp
from rabbitmq_resilience.checkers.throughput import Throughput
from rabbitmq_resilience.checkers.unacked import Unacked
from rabbitmq_resilience.checkers.uptime import Uptime
from rabbitmq_resilience.checkers.verdict import Assumption, InvariantSpec
from rabbitmq_resilience.checkers.wholeness import HistoryWhole
from rabbitmq_resilience.tools.entry_points import merged

OURS: Mapping[str, type[InvariantSpec]] = {
    "no_loss": NoLoss,
    "order": Order,
    "availability": Availability,
    "recovery": Recovery,
    "throughput": Throughput,
    "no_crash": NoCrash,
    "partition_mode": PartitionMode,
    "metadata": Metadata,
    "memory": Memory,
    "disk": Disk,
    "alarms": Alarms,
    "alerts": Alerts,
    "leaders_spread": LeadersSpread,
    "followers": Followers,
    "unacked": Unacked,
    "backlog": Backlog,
    "uptime": Uptime,
    "latency": LatencyBounds,
    "single_active_consumer": SingleActiveConsumer,
    "flow": SteadyFlow,
    "held_back": HeldBack,
    "dead_letters": DeadLetterPromise,
    "stays_up": StaysUp,
    "reconnects": Reconnects,
    "consumers": ConsumersBack,
    "settled": Settled,
    "committed": Committed,
}

INVARIANTS: Mapping[str, type[InvariantSpec]] = merged(OURS, "invariants", base=InvariantSpec)

ASSUMPTIONS: Mapping[str, Assumption] = {
    "run_ended": RunEnded(),
    "faults_begun": FaultsBegun(),
    "faults_proven": FaultsProven(),
    "load_not_zero": LoadNotZero(),
    "drain_complete": DrainComplete(),
    "history_whole": HistoryWhole(),
    "watched": Watched(),
}
