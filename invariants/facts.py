"""What the events say, in the form that checkers ask for: cluster, queues, phases, faults and what was observed."""

from __future__ import annotations

import math
import re
from bisect import bisect_left, bisect_right
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from invariants.verdict import seconds
from reports.events import Event
from reports.variation import Variation
from topologies.spec import is_client

Pair = frozenset[str]

#: The one step of schedules that is no fault, by its name.
REBALANCE = "rebalance"

#: The time of what has not happened within the record.
NEVER_US = math.inf


@dataclass(frozen=True)
class ClusterFacts:
    nodes: tuple[str, ...]
    partition_handling: str
    net_ticktime_s: float
    broker_version: tuple[int, ...]
    preferred: frozenset[str] = frozenset()
    recover: str = ""
    khepri: bool = False

    @property
    def handles_partitions(self) -> bool:
        """Where the metadata store is Raft (Khepri: always from 4.3 on) the strategies have no effect."""
        return not self.khepri and self.broker_version < (4, 3)

    @property
    def pauses_minorities(self) -> bool:
        return self.handles_partitions and self.partition_handling == "pause_minority"

    @property
    def pauses_without_preferred(self) -> bool:
        """A node pauses while it reaches none of the ``preferred`` ones."""
        return self.handles_partitions and self.partition_handling == "pause_if_all_down"

    @property
    def pauses(self) -> bool:
        return self.pauses_minorities or self.pauses_without_preferred


@dataclass(frozen=True)
class QueueFacts:
    name: str
    kind: str
    members: frozenset[str]


@dataclass(frozen=True)
class Step:
    """One step of the schedule as it went. ``states`` gives the first moment of each state that was reached.

    Its effect lasts at least over ``sure_us`` and at most over ``possible_us``: injecting and healing take time, and
    an ``intermittent`` effect is never sure. A ``sudden`` cut closes connections, so that both ends know at once.
    """

    number: int
    fault: str
    states: Mapping[str, int]
    down: frozenset[str] = frozenset()
    cut: frozenset[Pair] = frozenset()
    sudden: bool = False
    intermittent: bool = False
    #: The alarm that it raises ("memory" or "disk"; empty if none), and on which nodes.
    alarm: str = ""
    alarmed: frozenset[str] = frozenset()

    @property
    def blocks_publishers(self) -> bool:
        """An alarm on any node blocks them on all."""
        return bool(self.alarmed)

    @property
    def is_fault(self) -> bool:
        """Rebalancing takes nothing away, so that there is nothing to heal."""
        return self.fault != REBALANCE

    @property
    def injected(self) -> bool:
        return "injecting" in self.states or "injected" in self.states

    @property
    def possible_us(self) -> tuple[float, float]:
        start = self.states.get("injecting", self.states.get("injected", NEVER_US))
        return start, self.states.get("healed", NEVER_US)

    @property
    def sure_us(self) -> tuple[float, float]:
        start = self.states.get("injected", self.states.get("injecting", NEVER_US))
        if self.intermittent:
            return start, start
        return start, self.states.get("healing", self.states.get("healed", NEVER_US))

    def __str__(self) -> str:
        return f"step {self.number} ({self.fault})"


@dataclass(frozen=True)
class Facts:
    """``events`` in the order of time; everything else is read from them when first asked for."""

    events: Sequence[Event]

    def of_kind(self, kind: str) -> Iterator[Event]:
        return (event for event in self.events if event["kind"] == kind)

    @cached_property
    def origin_us(self) -> int:
        return int(self.events[0]["t_us"]) if self.events else 0

    @cached_property
    def cluster(self) -> ClusterFacts | None:
        for event in self.of_kind("cluster"):
            version = re.match(r"[\d.]+", str(event["broker_version"]))
            choice = event.get("pause_if_all_down") or {}
            return ClusterFacts(
                nodes=tuple(event["nodes"]),
                partition_handling=event["partition_handling"],
                net_ticktime_s=event["net_ticktime_s"],
                broker_version=tuple(int(n) for n in version[0].split(".") if n) if version else (),
                preferred=frozenset(choice.get("nodes", ())),
                recover=choice.get("recover", ""),
                khepri=bool(event.get("khepri")),
            )
        return None

    @cached_property
    def queues(self) -> tuple[QueueFacts, ...]:
        """As last declared, in index order."""
        declared = {name: queue for event in self.of_kind("queues") for name, queue in event["queues"].items()}
        return tuple(QueueFacts(name, q["type"], frozenset(q["members"])) for name, q in declared.items())

    def queue_name(self, index: int) -> str:
        return self.queues[index].name if index < len(self.queues) else f"queue {index}"

    def node_name(self, index: int) -> str:
        nodes = self.cluster.nodes if self.cluster else ()
        return nodes[index] if index < len(nodes) else f"node {index}"

    @cached_property
    def phases(self) -> Mapping[str, int]:
        return {event["phase"]: event["t_us"] for event in self.of_kind("phase")}

    def phase_at(self, t_us: float) -> str:
        begun = [phase for phase, start_us in self.phases.items() if start_us <= t_us]
        return begun[-1] if begun else "start"

    @cached_property
    def publishing_us(self) -> tuple[int, int] | None:
        """From the start of the steady phase to the end of publishing, if both were recorded."""
        if "steady" in self.phases and "drain" in self.phases:
            return self.phases["steady"], self.phases["drain"]
        return None

    @cached_property
    def steps(self) -> tuple[Step, ...]:
        steps: dict[int, list[Event]] = {}
        for event in self.of_kind("fault"):
            steps.setdefault(event["step"], []).append(event)
        return tuple(_step(number, changes) for number, changes in sorted(steps.items()))

    @cached_property
    def last_healed_us(self) -> int | None:
        """When the last fault was healed; None without any."""
        return max((s.states["healed"] for s in self.steps if s.is_fault and "healed" in s.states), default=None)

    @cached_property
    def node_states(self) -> tuple[tuple[int, Mapping[str, str]], ...]:
        return tuple((event["t_us"], event["states"]) for event in self.of_kind("nodes"))

    @cached_property
    def rate(self) -> Variation:
        """The target of all publishers together, messages/s; no limit where a record does not tell it."""
        for event in self.of_kind("load"):
            return Variation.of(event, "rate_per_s", "variable_rate", begins_us=event["begins_us"])
        return Variation(None)

    @cached_property
    def blocked_us(self) -> tuple[tuple[float, float], ...]:
        """When each publisher was blocked by an alarm, one period for each time; NEVER_US ends one that did not end."""
        begun: dict[str, float] = {}
        periods: list[tuple[float, float]] = []
        for event in self.of_kind("worker"):
            worker = event["worker"]
            if event["event"] == "blocked":
                begun.setdefault(worker, event["t_us"])
            elif worker in begun:  # let go, or without this connection or process
                periods.append((begun.pop(worker), event["t_us"]))
        return tuple(sorted([*periods, *((start, NEVER_US) for start in begun.values())]))

    @cached_property
    def _looked_us(self) -> list[int]:
        return [t_us for t_us, _ in self.node_states]

    @cached_property
    def _up_us(self) -> Mapping[str, list[int]]:
        """When each node was seen up."""
        moments: dict[str, list[int]] = {}
        for t_us, states in self.node_states:
            for node in (node for node, state in states.items() if state == "up"):
                moments.setdefault(node, []).append(t_us)
        return moments

    def sightings(self, start_us: float, end_us: float) -> Sequence[tuple[int, Mapping[str, str]]]:
        """The ``node_states`` of that time, both ends included."""
        return self.node_states[bisect_left(self._looked_us, start_us) : bisect_right(self._looked_us, end_us)]

    def states_at(self, t_us: float) -> Mapping[str, str] | None:
        """The latest sighting of the nodes at that moment; None before the first."""
        seen = bisect_right(self._looked_us, t_us)
        return self.node_states[seen - 1][1] if seen else None

    def first_up_us(self, node: str, *, after_us: float) -> float:
        """When ``node`` was first seen up at or after that moment; NEVER_US if it was not."""
        moments = self._up_us.get(node, [])
        first = bisect_left(moments, after_us)
        return moments[first] if first < len(moments) else NEVER_US

    def at(self, t_us: float) -> str:
        """The moment as people read it: seconds since the run's first event."""
        return f"+{seconds(t_us - self.origin_us):.3f} s"

    def beside(self, start_us: float, end_us: float) -> str:
        """The faults that were on in that time, or what else is worth saying."""
        on = [step for step in self.steps if step.injected and _overlap(step.possible_us, (start_us, end_us))]
        return "beside " + ", ".join(map(str, on)) if on else "beside no fault"


def _overlap(one: tuple[float, float], other: tuple[float, float]) -> bool:
    return one[0] <= other[1] and other[0] <= one[1]


def _step(number: int, changes: Sequence[Event]) -> Step:
    states: dict[str, int] = {}
    for event in changes:
        states.setdefault(event["state"], event["t_us"])
    effect: Mapping[str, Any] = next((event["effect"] for event in reversed(changes) if event.get("effect")), {})
    return Step(
        number=number,
        fault=changes[0]["fault"],
        states=states,
        down=frozenset(effect.get("nodes_down", ())),
        cut=pairs(effect.get("links_cut", ())),
        sudden=bool(effect.get("sudden")),
        intermittent=bool(effect.get("intermittent")),
        alarm=effect.get("alarm") or "",
        alarmed=frozenset(effect.get("nodes_alarmed") or ()),
    )


def pairs(links: Iterable[Sequence[str]]) -> frozenset[Pair]:
    """Links between brokers without their direction: a connection needs both, so one that is cut one way is cut. A
    client's link parts no brokers, and is none of them."""
    return frozenset(frozenset(link) for link in links if not any(map(is_client, link)))
