"""All invariants and assumptions, by the names that fault files and verdicts use."""

from __future__ import annotations

from collections.abc import Mapping

from invariants.alarms import Alarms
from invariants.assumptions import DrainComplete, FaultsProven, HistoryWhole, LoadNotZero, RunEnded, Watched
from invariants.availability import Availability
from invariants.backlog import Backlog
from invariants.followers import Followers
from invariants.leaders_spread import LeadersSpread
from invariants.memory import Memory
from invariants.metadata import Metadata
from invariants.no_loss import NoLoss
from invariants.order import Order
from invariants.partition_mode import PartitionMode
from invariants.recovery import Recovery
from invariants.throughput import Throughput
from invariants.unacked import Unacked
from invariants.verdict import Assumption, InvariantSpec

INVARIANTS: Mapping[str, type[InvariantSpec]] = {
    "no_loss": NoLoss,
    "order": Order,
    "availability": Availability,
    "recovery": Recovery,
    "throughput": Throughput,
    "partition_mode": PartitionMode,
    "metadata": Metadata,
    "memory": Memory,
    "alarms": Alarms,
    "leaders_spread": LeadersSpread,
    "followers": Followers,
    "unacked": Unacked,
    "backlog": Backlog,
}

ASSUMPTIONS: Mapping[str, Assumption] = {
    "run_ended": RunEnded(),
    "faults_proven": FaultsProven(),
    "load_not_zero": LoadNotZero(),
    "drain_complete": DrainComplete(),
    "history_whole": HistoryWhole(),
    "watched": Watched(),
}
