"""Describe an hour of rolling restarts with many queues, at the full scale of the case study."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import numpy as np
import numpy.typing as npt

from rabbitmq_resilience.model.topology_catalogue import load
from rabbitmq_resilience.nemesis.fault_catalogue import AnyFault
from rabbitmq_resilience.nemesis.rebalance import Rebalance
from rabbitmq_resilience.nemesis.stop import Stop
from rabbitmq_resilience.scenario.model import Invariants, Phases, Scenario
from rabbitmq_resilience.workload.load import PROCESSES_MAX
from rabbitmq_resilience.workload.workload_model import Workload

STEADY_S, RECOVERY_S, SETTLED_S, DRAIN_S = 10, 10, 50, 20
ROUND_S, TURN_S, AWAY_S, BACK_S = 60, 15, 2, 7
#: How often workers write their rows, even a few (``workload.publisher``, ``workload.consumer``).
FLUSH_S = 0.1

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Hour:
    """An hour in ``rounds`` of one minute each, with ``messages`` in all and ``queues``.

    A consumer of its own reads the messages of each publisher. These ``pairs`` share the queues.
    """

    messages: int = 25_000_000
    queues: int = 100
    rounds: int = 60
    pairs: int = 100

    @cached_property
    def nodes(self) -> tuple[str, ...]:
        return load("three_nodes_three_zones").node_names

    @cached_property
    def names(self) -> tuple[str, ...]:
        return tuple(f"q{i + 1}" for i in range(self.queues))

    @property
    def chaos_s(self) -> int:
        return self.rounds * ROUND_S

    @cached_property
    def phases_s(self) -> Mapping[str, int]:
        chaos_end = STEADY_S + self.chaos_s
        drain = chaos_end + RECOVERY_S + SETTLED_S
        return {"steady": 0, "chaos": STEADY_S, "recovery": chaos_end, "drain": drain, "end": drain + DRAIN_S}

    @property
    def each(self) -> int:
        """Return the number of messages of each publisher."""
        return self.messages // self.pairs

    @property
    def rows_together(self) -> int:
        """Return how many rows a process of several clients writes at once."""
        return max(1, round(self.messages / PROCESSES_MAX * FLUSH_S / self.phases_s["drain"]))

    def home(self, client: int) -> int:
        return client % len(self.nodes)

    def stops_s(self, node: int) -> Array:
        """Return the seconds at which that node is stopped, one in each round; it is back ``BACK_S`` later."""
        return STEADY_S + node * TURN_S + ROUND_S * np.arange(self.rounds)

    def away(self, node: int, at_s: Array) -> npt.NDArray[np.bool_]:
        """Return for each of these times whether the node does not serve."""
        since_s = (at_s - STEADY_S - node * TURN_S) % ROUND_S
        stopped: npt.NDArray[np.bool_] = (
            (since_s > 0) & (since_s < BACK_S) & (at_s >= STEADY_S) & (at_s < STEADY_S + self.chaos_s)
        )
        return stopped

    @cached_property
    def scenario(self) -> Scenario:
        rate_per_s = self.messages // self.phases_s["drain"]
        workload = {"queues": self.queues, "publishers": self.pairs, "consumers": self.pairs}
        judged = ("no_loss", "order", "availability", "recovery", "throughput", "partition_mode", "backlog", "memory")
        order = {"shared_queues": "judged" if self.pairs > self.queues else "named"}
        return Scenario(
            title=f"Rolling restarts for {self.rounds} min, recorded by hand",
            seed=4711,
            topology=load("three_nodes_three_zones"),
            workload=Workload.model_validate({**workload, "queue_type": "quorum", "rate_per_s": rate_per_s}),
            phases=Phases(steady_s=STEADY_S, chaos_s=self.chaos_s),
            metrics=True,
            schedule=tuple(self._schedule()),
            invariants=Invariants.model_validate(
                {name: {} for name in (*judged, "alarms", "leaders_spread", "followers", "unacked")} | {"order": order}
            ),
        )

    def _schedule(self) -> Iterator[AnyFault]:
        for begin_s in range(0, self.chaos_s, ROUND_S):
            for i, node in enumerate(self.nodes):
                yield Stop(at_s=begin_s + i * TURN_S, for_s=AWAY_S, node=node)
            yield Rebalance(at_s=begin_s + len(self.nodes) * TURN_S, for_s=AWAY_S)
