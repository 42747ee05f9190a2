"""Compute which nodes must pause and which may, and when, from the truth and from how fast brokers notice.

Sources: Erlang, kernel application, ``net_ticktime`` and ``net_setuptime``; RabbitMQ, "Clustering and Network
Partitions" (pause_minority, pause_if_all_down); rabbit_node_monitor of 3.10: it counts the nodes that Erlang is
connected to. A node that reaches too few looks again every second until it reaches enough.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_forms import forms, unhandled_from_us
from rabbitmq_resilience.checkers.cut_pairs import Pair
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fault_timeline import FaultTimeline, Moment, truth_of
from rabbitmq_resilience.checkers.observed_faults import NEVER_US, ObservedFault
from rabbitmq_resilience.checkers.times import NEVER, Period, Times, at_least, later, periods, times, union
from rabbitmq_resilience.history.events import Effect
from rabbitmq_resilience.model.durations import TICKS_MAX

#: How long a node may take to close its listeners, once it has noticed that it must pause.
CLOSES_WITHIN_S = 3.0
#: How long a node waits for a connection that cannot be made (kernel(6), net_setuptime).
NET_SETUPTIME_S = 7.0

#: How long the losing sides may take to stop and to start again once a split is healed.
RESTARTED_WITHIN_S = 30.0


def pause_margin_s(nodes: int, version: tuple[int, ...] = ()) -> float:
    """Return how long a node may need beyond 1.25 times ``net_ticktime`` to pause, in seconds.

    When a node takes the first peer for dead, it writes that to the metadata store. It then waits for each other peer
    that is silent too and not yet taken for dead; from 4.0 on also for the dead one (seen on 4.0.5: 15 to 21 s in three
    cuts, while 3.10.8 took 5 to 7).
    """
    waited_for = nodes - 1 if version >= (4,) else nodes - 2
    return CLOSES_WITHIN_S + max(0, waited_for) * NET_SETUPTIME_S


@dataclass(frozen=True, eq=False)
class Pauses:
    """The pauses that a schedule demands and permits during ``span_us``.

    ``margin_s``: the time that a node may need beyond 1.25 times ``net_ticktime``; by default ``pause_margin_s``.
    ``patience``: the factor by which everything may take longer.
    """

    truth: FaultTimeline
    span_us: Period
    margin_s: float | None = None
    patience: float = 1.0

    @property
    def facts(self) -> Facts:
        return self.truth.facts

    @cached_property
    def tick_us(self) -> float:
        return self.truth.cluster.net_ticktime_s * 1e6

    @cached_property
    def within_us(self) -> float:
        """Return the longest time until every node has acted on a loss, on a machine without other load."""
        cluster = self.truth.cluster
        margin_s = self.margin_s
        if margin_s is None:
            slowest = max(form.broker_version for form in forms(self.facts, cluster, self.span_us))
            margin_s = pause_margin_s(len(cluster.nodes), slowest)
        return TICKS_MAX * self.tick_us + margin_s * 1e6

    @property
    def acted_within_us(self) -> float:
        return self.patience * self.within_us

    @property
    def restarted_within_us(self) -> float:
        return self.patience * RESTARTED_WITHIN_S * 1e6

    @cached_property
    def moments(self) -> tuple[Moment, ...]:
        return tuple(self.truth.moments(self.span_us))

    @cached_property
    def must(self) -> Mapping[str, Times]:
        """Return when each node must be paused, after the time that it may need."""
        span = times([self.span_us])
        return {
            node: self._short_of(node, {peer: self._surely_acted_on(node, peer) for peer in self._peers(node)}) & span
            for node in self.truth.cluster.nodes
        }

    @cached_property
    def may(self) -> Mapping[str, Times]:
        """Return when each node may begin to be paused, or to look paused."""
        handled = times([(-NEVER_US, unhandled_from_us(self.facts))])
        return {
            node: self._weakened(node)
            | handled
            & (
                self._short_of(node, {peer: self._maybe_noticed(node, peer) for peer in self._peers(node)})
                | self._doubtful(node)
                | self.restarting
            )
            for node in self.truth.cluster.nodes
        }

    def _peers(self, node: str) -> list[str]:
        return [peer for peer in self.truth.cluster.nodes if peer != node]

    def _short_of(self, node: str, lost: Mapping[str, Times]) -> Times:
        """Return when ``node`` reaches too few peers to serve, if each peer is ``lost`` to it at those times."""
        cluster = self.truth.cluster
        if cluster.pauses_minorities:
            return at_least(-(-len(cluster.nodes) // 2), list(lost.values()))
        if cluster.pauses_without_preferred and node not in cluster.preferred:
            return at_least(len(cluster.preferred), [lost[peer] for peer in sorted(cluster.preferred)])
        return NEVER

    @cached_property
    def lonely(self) -> Mapping[str, Times]:
        """Return when each node surely reached too few peers, whether or not it had noticed."""
        return {
            node: self._short_of(node, {peer: self._loss(node, peer) for peer in self._peers(node)})
            for node in self.truth.cluster.nodes
        }

    def _loss(self, node: str, peer: str) -> Times:
        """Return when ``peer`` surely was out of reach of ``node``."""
        return self.truth.cut[frozenset((node, peer))].surely | self.truth.away[peer].surely

    def _surely_acted_on(self, node: str, peer: str) -> Times:
        """Return when ``node`` has noticed the loss of ``peer`` and has had the time to act.

        Nodes do not pause while they start (pause_minority). So a node that did not serve when it lost the peer need
        not pause. A node that was suspended notices the loss again when it wakes up.
        """
        away = times(self.truth.absences(node))
        acted: list[Period] = []
        for start, end in periods(self._loss(node, peer)):
            for begin, until in periods(times([(start, end)]) - away):
                if self._knows(node, begin) if begin == start else self._woke(node, begin):
                    acted.append((begin + self.acted_within_us, until))
        return times(acted)

    def _knows(self, node: str, t_us: float) -> bool:
        """Return whether ``node`` serves when it loses a peer, or is paused and had a reason for it just before."""
        states = self.facts.states_at(t_us)
        state = "up" if states is None else states.get(node)
        return state == "up" or (state == "paused" and t_us - 1 in self.lonely[node])

    def _woke(self, node: str, t_us: float) -> bool:
        """Return whether an absence of ``node`` that ended then was seen as a suspension, and as nothing else."""
        absence = next(a for a in self.truth.absences(node) if a[1] == t_us)
        seen = self.truth.seen(node, absence)
        return "suspended" in seen and seen <= {"suspended", "up"}

    def _maybe_noticed(self, node: str, peer: str) -> Times:
        """Return when ``node`` may take the peer for dead, until it surely sees the peer again."""
        cuts = [step for step in self.truth.steps if frozenset((node, peer)) in step.cut]
        sudden = times(step.possible_us for step in cuts if step.effect.sudden) | self.truth.away[peer].possibly
        silent = times(step.possible_us for step in cuts if not step.effect.sudden)
        noticed = (
            (known, end + self.acted_within_us) for (_, end), known in self.truth.noticeable(silent, sudden=NEVER)
        )
        return later(sudden, end_us=self.acted_within_us) | times(noticed)

    def _weakened(self, node: str) -> Times:
        """Return when ``node`` may look paused, or pause, after it was killed, stopped or suspended: it looks paused
        while it boots, and may pause when it wakes up and finds its connections gone."""
        return later(times(self.truth.absences(node)), end_us=self.acted_within_us)

    def _doubtful(self, node: str) -> Times:
        """Return when ``node`` may pause because one node sees a peer that another node does not see."""
        partial = times(
            (moment.start_us, moment.end_us)
            for moment in self.moments
            if self.truth.cluster.pauses
            and any(node in c and world.cut_within(c) for world in moment.worlds for c in world.components)
        )
        both = ((max(a, known), min(b, end)) for a, b in periods(partial) for known, end in self._loss_noticed)
        return times((start, end + self.acted_within_us) for start, end in both if start <= end)

    @cached_property
    def _loss_noticed(self) -> tuple[Period, ...]:
        """Return when any node may take another one for dead. The other node may have been away first, and cut off
        then."""
        away = union(bounds.possibly for bounds in self.truth.away.values())
        lost = union([away, *(bounds.possibly for bounds in self.truth.cut.values())])
        return tuple((known, end) for (_, end), known in self.truth.noticeable(lost, sudden=self.truth.sudden | away))

    @cached_property
    def restarting(self) -> Times:
        """Return when any node may be among those that restart as a split is healed; the winning side is not predicted.
        Nodes of a side that has to pause may have noticed the cut too late to pause."""
        if not self.truth.cluster.heals_splits:
            return NEVER
        truth = self.truth.as_apart
        split = times(
            (moment.start_us, moment.end_us)
            for moment in truth.moments(self.span_us)
            if any(world.cut for world in moment.worlds)
        )
        found = []
        for (_, end), known in truth.noticeable(split, sudden=truth.sudden):
            ends = [step.sure_us[1] for step in truth.steps if step.cut and known < step.possible_us[1] <= end]
            found.append(
                (max(known, min(ends, default=known)), mended_us(self.truth, end, within_us=self.restarted_within_us))
            )
        return times(found)

    @cached_property
    def idle_pairs(self) -> tuple[tuple[Pair, Period], ...]:
        """Return the pairs that were cut apart while a third node surely saw both from the beginning: one node of the
        pair had to pause. Brokers ask the third node when they lose the peer, and not again when that node comes
        back."""
        if not self.truth.cluster.pauses_minorities:
            return ()
        nodes, span = self.truth.cluster.nodes, times([self.span_us])
        there = {node: span - self.truth.away[node].possibly for node in nodes}
        whole = {pair: span - bounds.possibly for pair, bounds in self.truth.cut.items()}
        found = []
        for pair in self.truth.pairs:
            one, other = sorted(pair)
            for third in (node for node in nodes if node not in pair):
                seen = whole[frozenset((one, third))] & whole[frozenset((other, third))] & there[third]
                partial = self.truth.cut[pair].surely & seen & there[one] & there[other]
                partial -= self.lonely[one] | self.lonely[other]
                begun = {start for start, _ in periods(self.truth.cut[pair].surely)}
                for start, end in periods(partial):
                    if start in begun and end - start > self.acted_within_us and self._served(pair, start):
                        found.append((pair, (start, end)))
        return tuple(dict.fromkeys(found))

    def _served(self, pair: Pair, t_us: float) -> bool:
        return all(self._knows(node, t_us) for node in pair)

    @cached_property
    def excused(self) -> tuple[ObservedFault, ...]:
        """Return the times in which nodes that may have paused were seen not to serve, as if a step had taken them
        away."""
        return tuple(step for node, may in self.may.items() for step in self._excused(node, may))

    def _excused(self, node: str, may: Times) -> Iterator[ObservedFault]:
        before_us, away = self.span_us[0], False
        for t_us, states in self.facts.sightings(*self.span_us):
            if states.get(node) == "up":
                away = False
            elif not away and t_us in may:
                away = True
                back_us = self.facts.first_up_us(node, after_us=t_us)
                # A node that had gone by itself before is excused from now on only.
                seen = {"injecting": int(before_us)} | ({"healed": int(back_us)} if back_us < NEVER_US else {})
                yield ObservedFault(number=-1, fault="paused", states=seen, effect=Effect(nodes_down=(node,)))
            before_us = t_us if node in states else before_us


def mended_us(truth: FaultTimeline, healed_us: float, *, within_us: float = RESTARTED_WITHIN_S * 1e6) -> float:
    """Return by when the nodes have surely mended a split that was healed at ``healed_us``.

    The nodes begin only once all of them run and see each other (rabbit_autoheal, "nodes_down"). Until then any node
    whose own cut is long over may still restart.
    """
    calm = truth.calm((healed_us, NEVER_US), lasts_s=RESTARTED_WITHIN_S)
    return calm[0][0] + within_us if calm else NEVER_US


def pauses_of(facts: Facts, cluster: ClusterFacts, span_us: Period, margin_s: float | None = None) -> Pauses:
    """Return the pauses that the schedule demands and permits in ``span_us``."""
    return facts.once(_pauses, cluster, span_us, margin_s)


def _pauses(facts: Facts, cluster: ClusterFacts, span_us: Period, margin_s: float | None) -> Pauses:
    return Pauses(truth_of(facts, cluster), span_us, margin_s)
