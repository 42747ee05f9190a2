"""Check items that were declared during a run: in the end every node knows an item, or none does.

Every node must know what a broker called created, unless the partition handling permits its loss.
"""

from __future__ import annotations

import itertools
import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.cluster_forms import forms
from rabbitmq_resilience.checkers.cluster_states import ClusterSide
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fault_timeline import truth_of
from rabbitmq_resilience.checkers.loss_explanations import CHOICES_MAX, most_explained
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from rabbitmq_resilience.checkers.power_losses import forgotten_without_power_cut
from rabbitmq_resilience.checkers.splits import Split, splits
from rabbitmq_resilience.checkers.times import Period, periods
from rabbitmq_resilience.checkers.units import counted
from rabbitmq_resilience.checkers.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    InvariantSpec,
    Number,
    Verdict,
)
from rabbitmq_resilience.history.events import Answer, DeclarationEvent, MetadataEvent

#: ``whole``: all nodes have the item, or none has it and it was not called created. ``differing``: some nodes have it.
#: ``lost``: it was called created, and no node has it. ``away``: the same, but it may be at home on a node that gave no
#: answer.
Fate = Literal["whole", "differing", "lost", "away"]
_BROKEN: tuple[Fate, ...] = ("differing", "lost")


def permits_lost_declarations(cluster: ClusterFacts) -> str:
    """Return why declarations of one side of a split may be missing after it; '' if the mode allows no split.

    Source: RabbitMQ, "Clustering and Network Partitions": one side of a split is trusted in the end, and the changes of
    the other sides are lost. ``pause_if_all_down`` has both ways for a split that left listed nodes on more than one
    side.
    """
    if not cluster.handles_partitions:
        return ""
    return {
        "autoheal": "autoheal restarts all sides but one, and these take over what that one has",
        "ignore": "ignore lets each side keep its own until an operator gives up all but one",
    }.get(cluster.recover or cluster.partition_handling, "")


@dataclass(frozen=True)
class Declaration:
    """One item that was to be declared through ``node``, and the nodes that know it in the end. ``answered_us`` is
    NEVER_US if no answer is recorded."""

    item: str
    node: str
    state: Answer
    asked_us: int
    answered_us: float
    known_to: ClusterSide

    def fate(self, asked_nodes: ClusterSide, *, hides_queues: bool = False) -> Fate:
        """Return what became of the item, by the answers of ``asked_nodes`` at the end of the run. ``hides_queues``: a
        queue, and its bindings, may be at home on another node."""
        if self.known_to not in (frozenset(), asked_nodes):
            return "differing"
        if self.state != "created" or self.known_to:
            return "whole"
        return "away" if hides_queues and self.item.startswith(("queue ", "binding ")) else "lost"

    def overlaps(self, period: Period) -> bool:
        """Return whether the declaration was under way during ``period``."""
        return self.asked_us <= period[1] and self.answered_us >= period[0]


@dataclass(frozen=True)
class Permit:
    """Permits the loss of items that were declared through one of ``nodes`` during ``declared_us``.

    With ``sides`` it is for a split that was never ended: nodes may differ on the item. But the nodes of ``stayed``
    that are on the same side as the declaring node must have it.
    """

    nodes: ClusterSide
    declared_us: Period
    sides: tuple[ClusterSide, ...] = ()
    stayed: ClusterSide = frozenset()

    def covers(self, declaration: Declaration, fate: Fate) -> bool:
        """Return whether the permit explains the ``fate`` of the declaration."""
        if declaration.node not in self.nodes or not declaration.overlaps(self.declared_us):
            return False
        if not self.sides:
            return fate == "lost"
        mine = (side for side in self.sides if declaration.node in side)
        return any(side & self.stayed <= declaration.known_to for side in mine)


class Metadata(InvariantSpec):
    """In the end each declared item, with or without an answer, is on all nodes or on none. If it was called created,
    it is on all. All items are looked up, also those declared during a fault. Items that a split permits to be lost are
    counted apart, and so are items on which nodes may differ because the split was not ended. Then the nodes that
    stayed on the side of the declaration must still have the item.

    If a node gives no answer in the end, queues that are no quorum queues, and their bindings, are not judged where all
    others lack them: brokers that were restarted list such a queue once the node where it is at home is back.

    Where metadata is in Khepri (with the feature flag ``khepri_db``, by default in new clusters from 4.2 on, always
    from 4.3 on), a declaration needs a majority of nodes: through a node of a minority it must not be called created.
    Brokers answer it after 30 s with a connection error 541, which counts as refused; the harness waits for 10 s, and
    counts it as unanswered.
    """

    forgives: ClassVar[frozenset[str]] = frozenset({"drain_complete", "faults_begun"})

    def check(self, history: History) -> Finding:
        facts = history.facts
        answers: Mapping[str, Sequence[str] | None] = {}
        for event in facts.of_kind(MetadataEvent):
            answers = event.nodes
        known = {node: frozenset(items) for node, items in answers.items() if items is not None}
        if facts.cluster is None or not known:
            return Finding(Verdict.UNKNOWN, "no node reported in the end which of the declared items it knows")
        declared = list(_declarations(facts, known))
        impossible = list(_created_in_a_minority(facts, facts.cluster, declared))
        return _finding(facts, declared, frozenset(known), _permits(facts, facts.cluster), impossible)


def _declarations(facts: Facts, known: Mapping[str, frozenset[str]]) -> Iterator[Declaration]:
    """Yield each declaration with its answer; ``created`` wins over other answers for the same item."""
    answered = [event for event in facts.of_kind(DeclarationEvent) if event.state != "asked"]
    answers = {event.item: event for event in sorted(answered, key=lambda event: event.state == "created")}
    for event in facts.of_kind(DeclarationEvent):
        if event.state == "asked":
            answer = answers.get(event.item)
            yield Declaration(
                item=event.item,
                node=event.node,
                state="unanswered" if answer is None else answer.state,
                asked_us=event.t_us,
                answered_us=NEVER_US if answer is None else answer.t_us,
                known_to=frozenset(node for node, items in known.items() if event.item in items),
            )


def _created_in_a_minority(
    facts: Facts, cluster: ClusterFacts, declared: Sequence[Declaration]
) -> Iterator[Declaration]:
    """Yield the declarations that were called created although the metadata surely was in Khepri and the node surely in
    a minority, from the request to the answer. Nodes that reach each other through others count as one side."""
    created = [d for d in declared if d.state == "created"]
    if not created:
        return
    span_us = min(d.asked_us for d in created), max(d.answered_us for d in created) + 1
    moments = list(truth_of(facts, cluster).moments(span_us))
    for d in created:
        if any(form.handles_partitions for form in forms(facts, cluster, (d.asked_us, d.answered_us))):
            continue
        meanwhile = [m for m in moments if m.start_us <= d.answered_us and m.end_us > d.asked_us]
        sides = [side for m in meanwhile for world in m.worlds for side in world.components if d.node in side]
        if sides and all(2 * len(side) <= len(cluster.nodes) for side in sides):
            yield d


def _permits(facts: Facts, cluster: ClusterFacts) -> Iterator[tuple[tuple[Permit, ...], ...]]:
    """Yield the alternative sets of permits for each time that a side of a split gave way; one of the sets holds. What
    was declared on that side may be lost. If the split was not ended, the nodes of each side keep their own items."""
    span_us = facts.publishing_us
    if span_us is None or not permits_lost_declarations(cluster):
        return
    kept: frozenset[ClusterSide] = frozenset()
    for split in splits(facts, cluster, span_us):
        if cluster.heals_splits or split.ended_us < NEVER_US:
            yield from _given_way(split)
            continue
        all_nodes = frozenset(cluster.nodes)
        stayed, kept = all_nodes - split.absences.keys(), _kept_apart(kept | split.sides.keys())
        not_ended = (Permit(all_nodes, (split.apart_us[0], span_us[1]), tuple(kept), stayed),)
        rounds = list(_given_way(split)) if split.may_be_ended else [()]
        if math.prod(map(len, rounds)) <= CHOICES_MAX:
            yield (not_ended, *(tuple(itertools.chain.from_iterable(way)) for way in itertools.product(*rounds)))
        else:  # too many ways to try: each round may then be explained by the split that lasts
            yield from ((not_ended, *sets) for sets in rounds)


def _given_way(split: Split) -> Iterator[tuple[tuple[Permit, ...], ...]]:
    """Yield the sets of permits for each round of a split that ended: one set for each node that may be trusted."""
    for round_ in split.rounds:
        yield tuple(
            tuple(
                Permit(frozenset({node}), period)
                for node, when in split.lost_with(survivor, round_).items()
                for period in periods(when)
            )
            for survivor in round_.survivors
        )


def _kept_apart(sides: frozenset[ClusterSide]) -> frozenset[ClusterSide]:
    """Return all groups that nodes may end in which were on those sides one after another. Nodes that lost each other
    once, and were not restarted, stay apart."""
    found = sides
    while more := {one & other for one, other in itertools.combinations(found, 2)} - found - {frozenset()}:
        found |= more
    return found


def _excused(
    declared: Sequence[tuple[Declaration, Fate]], choices: Iterable[tuple[tuple[Permit, ...], ...]]
) -> frozenset[str]:
    """Return the items that may be lost or differing. Of each split one side was trusted: the side that explains the
    most items is assumed."""
    explained = [
        [
            np.array([any(permit.covers(d, fate) for permit in permits) for d, fate in declared], np.bool_)
            for permits in s
        ]
        for s in choices
    ]
    chosen = most_explained(explained)
    return frozenset(d.item for i, (d, _) in enumerate(declared) if any(flags[i] for flags in chosen))


def _finding(
    facts: Facts,
    declared: Sequence[Declaration],
    asked_nodes: ClusterSide,
    permits: Iterable[tuple[tuple[Permit, ...], ...]],
    impossible: Sequence[Declaration],
) -> Finding:
    silent = sorted(set(facts.cluster.nodes if facts.cluster else ()) - asked_nodes)
    hides_queues = bool(silent) and any(queue.kind != "quorum" for queue in facts.queues)
    ends = [(d, d.fate(asked_nodes, hides_queues=hides_queues)) for d in declared]
    excused = _excused([(d, fate) for d, fate in ends if fate in _BROKEN], permits)
    fates: dict[tuple[Fate, bool], list[Declaration]] = defaultdict(list)
    for d, fate in ends:
        fates[fate, d.item in excused].append(d)
    during_cut = [d for d in declared if _during_cut(facts, d)]
    lost, away = fates["lost", False], fates["away", False]
    wrong = [_described(facts, d, asked_nodes) for d in [*fates["differing", False], *lost]]
    summary = f"{counted(len(declared), 'item was', 'items were')} declared, {len(during_cut)} of them during a cut"
    minority = [f"{_described(facts, d, asked_nodes)}; {d.node} was in a minority" for d in impossible]
    if wrong:
        verdict, summary = (
            Verdict.INVALID,
            f"{summary}; {counted(len(wrong), 'is', 'are')} on some nodes only, or gone: {wrong[0]}",
        )
    elif minority:
        verdict, summary = (
            Verdict.INVALID,
            f"{summary}; {counted(len(minority), 'was', 'were')} created in a minority: {minority[0]}",
        )
    elif silent:
        verdict, summary = Verdict.UNKNOWN, f"{summary}; {', '.join(silent)} did not report which of them they know"
        if away:
            summary += f"; {counted(len(away), 'item', 'items')} that no other node lists may be of a queue there"
    elif not declared:
        verdict, summary = Verdict.UNKNOWN, "nothing was declared while the run went on"
    else:
        verdict, summary = Verdict.VALID, f"{summary}; the nodes agree on them, and have what was created"
    permitted = len(fates["differing", True]), len(fates["lost", True])
    if any(permitted) and facts.cluster is not None:
        reason = permits_lost_declarations(facts.cluster)
        summary += f", except {permitted[0]} that may differ and {permitted[1]} that may be lost: {reason}"
    counts: dict[str, Number] = {
        f"{fate}{'_permitted' * may}": len(fates[fate, may]) for fate in _BROKEN for may in (False, True)
    }
    counts["created_in_a_minority"] = len(impossible)
    counts |= forgotten_without_power_cut(
        facts, differing=len(fates["differing", False]), forgotten_us=[d.asked_us for d in lost]
    )
    counts["lost_through"] = " ".join(sorted({d.node for d in lost}))
    coverage = Coverage(0 if silent else len(declared) - len(excused), len(declared), "items")
    return Finding(
        verdict, summary, _numbers(declared, during_cut) | counts, tuple([*wrong, *minority][:EXAMPLES_MAX]), coverage
    )


def _numbers(declared: Sequence[Declaration], during_cut: Sequence[Declaration]) -> dict[str, Number]:
    states = Counter(d.state for d in declared)
    return {
        "declared": len(declared),
        "declared_beside_cut": len(during_cut),
        "created": states["created"],
        "created_beside_cut": sum(d.state == "created" for d in during_cut),
        "refused": states["refused"],
        "unanswered": states["unanswered"],
    }


def _during_cut(facts: Facts, declaration: Declaration) -> bool:
    """Return whether a step may have cut nodes apart, or taken nodes away, during the declaration."""
    return any(
        (step.cut or step.down) and step.injected and declaration.overlaps(step.possible_us) for step in facts.steps
    )


def _described(facts: Facts, declaration: Declaration, asked_nodes: ClusterSide) -> str:
    d = declaration
    faults = facts.faults_during(d.asked_us, d.asked_us)
    asked = f"{d.item} was declared through {d.node} at {facts.at(d.asked_us)}, {faults}"
    answered = d.state if d.answered_us == NEVER_US else f"{d.state} at {facts.at(d.answered_us)}"
    there, missing = " ".join(sorted(d.known_to)), " ".join(sorted(asked_nodes - d.known_to))
    return f"{asked}, and {answered}; it is on {there or 'no node'}" + (f" and not on {missing}" if there else "")
