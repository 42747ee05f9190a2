"""A network partition: every pair of nodes on different sides loses its link, both ways."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, ClassVar, Literal

from pydantic import Field

from faults.fault import Arena, Effect, Proof, left_over
from faults.step import Step
from faults.targets import Resolver, TargetError, check_target, cut_between, is_fixed
from topologies.cluster import Cluster
from topologies.management import ApiError, ApiUnreachable
from topologies.spec import Link, Topology
from workloads.queues import queue_names
from workloads.spec import Workload

#: Erlang notices a silent peer between 0.75 and 1.25 times net_ticktime (kernel(6), net_ticktime).
NOTICED_AFTER_TICKTIMES = 1.25
REPORTED_WITHIN_S = 3.0
CARRIES_AGAIN_WITHIN_S = 20.0


class Partition(Step):
    """``between`` names two or more sides: targets, and at most one ``rest``.

    Packets stop on every link between the sides and come again when it heals; no connection is closed.
    """

    fault: Literal["partition"] = "partition"
    between: Annotated[tuple[str, ...], Field(min_length=2, max_length=7)]

    acts_on: ClassVar[str] = "links"

    def problems(self, topology: Topology, workload: Workload) -> Mapping[str, str]:
        try:
            for target in self.between:
                check_target(target, topology, queue_names(workload), rest=True)
            if len(set(self.between)) < len(self.between):
                raise TargetError(f"a side is named twice in {list(self.between)}")
            if self._all_fixed:
                Resolver.without_chance(topology).sides(self.between)
        except TargetError as error:
            return {"between": str(error)}
        return {}

    def touches_links(self, topology: Topology) -> frozenset[Link]:
        if not self._all_fixed:
            return topology.links
        return cut_between(Resolver.without_chance(topology).sides(self.between))

    def touches_processes(self, topology: Topology) -> frozenset[str]:  # noqa: ARG002 - it acts on no process
        return frozenset()

    def prepare(self, arena: Arena, resolver: Resolver, *, for_s: float) -> PartitionInjection:
        return PartitionInjection(arena, resolver.sides(self.between), for_s)

    @property
    def _all_fixed(self) -> bool:
        return all(target == "rest" or is_fixed(target) for target in self.between)


@dataclass(frozen=True)
class PartitionInjection:
    arena: Arena
    sides: tuple[tuple[str, ...], ...]
    for_s: float

    @property
    def effect(self) -> Effect:
        return Effect(links_cut=cut_between(self.sides))

    def inject(self) -> None:
        self.arena.cuts.add(self.effect.links_cut, self.arena.cluster.links.cut)

    def heal(self) -> None:
        self.arena.cuts.remove(self.effect.links_cut, self.arena.cluster.links.restore)

    def prove(self, *, timeout_s: float) -> Proof:
        """A cut that the brokers must notice: each side reports the other as not running. A shorter
        one: every cut link between living nodes holds bytes back."""
        links = self.arena.cluster.links
        bare = sorted(str(link) for link in self.effect.links_cut if link not in links.proxied)
        if bare:
            return Proof(
                False, f"{', '.join(bare[:4])} carr{'y' if len(bare) > 1 else 'ies'} no proxy: nothing was cut"
            )
        noticed_s = NOTICED_AFTER_TICKTIMES * self.arena.cluster.topology.net_ticktime_s
        if timeout_s > noticed_s + REPORTED_WITHIN_S:
            return self._prove_by_reports(timeout_s)
        return self._prove_by_held_bytes(timeout_s)

    def _prove_by_reports(self, timeout_s: float) -> Proof:
        started_s = time.monotonic()
        missing = left_over(self._unreported, timeout_s=timeout_s, what="each side to report the other as gone")
        if missing:
            return Proof(False, "; ".join(missing))
        states = {node: self.arena.cluster.state(node) for side in self.sides for node in side}
        reporters, paused = (" ".join(n for n in states if states[n] == state) for state in ("up", "paused"))
        told = [f"{reporters} report the other side as gone"] if reporters else []
        told += [f"{paused} paused"] if paused else []
        return Proof(True, f"{', '.join(told)}, {time.monotonic() - started_s:.1f} s after the cut")

    def _unreported(self) -> list[str]:
        """What is not yet seen of: on each side some node tells, and none that serves sees a node of another side.

        A node that has paused tells by that: it serves nobody, so it cannot be asked.
        """
        cluster = self.arena.cluster
        complaints = []
        for side in self.sides:
            others = {node for other in self.sides if other is not side for node in other}
            states = {node: cluster.state(node) for node in side}
            if not {"up", "paused"} & set(states.values()):
                complaints.append(f"nobody of {', '.join(side)} can tell: {', '.join(states.values())}")
            for node in (name for name, state in states.items() if state == "up"):
                seen = _seen_running(cluster, node)
                if seen is None:
                    complaints.append(f"{node} does not say whom it sees")
                elif seen & others:
                    complaints.append(f"{node} still sees {', '.join(sorted(seen & others))}")
        return complaints

    def _prove_by_held_bytes(self, timeout_s: float) -> Proof:
        links, cluster = self.arena.cluster.links, self.arena.cluster

        def empty() -> list[str]:
            alive = [link for link in self.effect.links_cut if all(cluster.process(n) == "running" for n in link)]
            idle = sorted(str(link) for link in alive if not links.held_bytes(link))
            return idle if alive else ["any link: there is none with a running broker at both ends"]

        idle = left_over(empty, timeout_s=timeout_s, what="held bytes")
        if idle:
            return Proof(False, f"nothing was held back on {', '.join(idle)}")
        return Proof(True, f"bytes were held back on each of {len(self.effect.links_cut)} links")

    def prove_healed(self) -> Proof:
        """Every link whose ends live carries a probe again, unless another fault still cuts it."""
        cluster, cuts = self.arena.cluster, self.arena.cuts

        def silent() -> list[str]:
            return sorted(
                str(link)
                for link in self.effect.links_cut & cluster.links.proxied
                if not cuts.is_cut(link)
                and cluster.process(link.target) == "running"
                and cluster.links.probe_ms(link, timeout_s=2.0) is None
            )

        still = left_over(silent, timeout_s=CARRIES_AGAIN_WITHIN_S, what="probes to cross the links")
        if still:
            return Proof(False, f"no probe crosses {', '.join(still)}")
        return Proof(True, "a probe crosses every link that was cut")


def _seen_running(cluster: Cluster, node: str) -> set[str] | None:
    """The nodes that ``node`` itself reports as running, by topology name; None if it does not answer."""
    try:
        running = cluster.api(node).running_nodes()
    except (ApiError, ApiUnreachable):
        return None
    return {name for name in cluster.topology.node_names if cluster.broker_name(name) in running}
