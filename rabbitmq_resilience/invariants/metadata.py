"""What is declared while a run goes on is known to every node afterwards, or to none; what a broker called created is
known to all, unless the way in which the cluster handles partitions permits its loss."""

from __future__ import annotations

import itertools
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import ClassVar, Literal

import numpy as np

from rabbitmq_resilience.invariants.cluster_forms import forms
from rabbitmq_resilience.invariants.explaining import most_explained
from rabbitmq_resilience.invariants.facts import ClusterFacts, Facts
from rabbitmq_resilience.invariants.splits import splits
from rabbitmq_resilience.invariants.steps import NEVER_US
from rabbitmq_resilience.invariants.times import Period, periods
from rabbitmq_resilience.invariants.truth import truth_of
from rabbitmq_resilience.invariants.units import counted
from rabbitmq_resilience.invariants.verdict import (
    EXAMPLES_MAX,
    Coverage,
    Finding,
    History,
    InvariantSpec,
    Number,
    Verdict,
)
from rabbitmq_resilience.invariants.worlds import Side
from rabbitmq_resilience.record.events import Answer, DeclarationEvent, MetadataEvent

#: ``whole``: on all nodes, or on none without having been called created. ``differing``: on some. ``lost``: created,
#: and on none.
Fate = Literal["whole", "differing", "lost"]
_BROKEN: tuple[Fate, ...] = ("differing", "lost")


def permits_lost_declarations(cluster: ClusterFacts) -> str:
    """Why what one side of a split declared may be missing after it; '' where the mode lets no split happen.

    Source: RabbitMQ, "Clustering and Network Partitions": of the sides of a split one is trusted in the end, and what
    was changed on the others is lost. ``pause_if_all_down`` has the two ways for a split that left listed nodes on
    more than one side.
    """
    if not cluster.handles_partitions:
        return ""
    return {
        "autoheal": "autoheal restarts all sides but one, and these take over what that one has",
        "ignore": "ignore lets each side keep its own until an operator gives up all but one",
    }.get(cluster.recover or cluster.partition_handling, "")


@dataclass(frozen=True)
class Declaration:
    """One item that was asked for through ``node``, and which nodes know it in the end. ``answered_us`` is NEVER_US
    where no answer is recorded."""

    item: str
    node: str
    state: Answer
    asked_us: int
    answered_us: float
    known_to: Side

    def fate(self, asked_nodes: Side) -> Fate:
        if self.known_to not in (frozenset(), asked_nodes):
            return "differing"
        return "lost" if self.state == "created" and not self.known_to else "whole"

    def overlaps(self, period: Period) -> bool:
        return self.asked_us <= period[1] and self.answered_us >= period[0]


@dataclass(frozen=True)
class Permit:
    """What was declared through one of ``nodes`` in that time may be lost. Where nobody ended a split, nodes may differ
    on it instead: but for those ``stayed`` that went on together with its own on each of ``sides``."""

    nodes: Side
    declared_us: Period
    sides: tuple[Side, ...] = ()
    stayed: Side = frozenset()

    def covers(self, declaration: Declaration, fate: Fate) -> bool:
        if declaration.node not in self.nodes or not declaration.overlaps(self.declared_us):
            return False
        if not self.sides:
            return fate == "lost"
        mine = (side for side in self.sides if declaration.node in side)
        return any(side & self.stayed <= declaration.known_to for side in mine)


class Metadata(InvariantSpec):
    """Each item that was declared, with or without an answer, is on all nodes or on none in the end; on all if it was
    called created. All are looked up, whatever went on when they were declared. What a split permits to be lost, or to
    differ where nobody ended it, is counted apart: of the side on which it was declared, nodes that stayed have it.

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
            return Finding(Verdict.UNKNOWN, "no node told in the end which of the declared items it knows")
        declared = list(_declarations(facts, known))
        impossible = list(_created_in_a_minority(facts, facts.cluster, declared))
        return _finding(facts, declared, frozenset(known), _permits(facts, facts.cluster), impossible)


def _declarations(facts: Facts, known: Mapping[str, frozenset[str]]) -> Iterator[Declaration]:
    told = [event for event in facts.of_kind(DeclarationEvent) if event.state != "asked"]
    answers = {event.item: event for event in sorted(told, key=lambda event: event.state == "created")}
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
    """Yield what was called created although metadata surely was in Khepri, and its node surely in a minority, from
    the question to the answer. Nodes that reach each other by way of others count as one side."""
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
    """For each time that a side of a split gave way the sets of permits of which one holds: what was declared on that
    side may be lost; where nobody ended the split, the nodes of each side keep their own."""
    span_us = facts.publishing_us
    if span_us is None or not permits_lost_declarations(cluster):
        return
    kept: frozenset[Side] = frozenset()
    for split in splits(facts, cluster, span_us):
        if split.ended_us == NEVER_US and not cluster.heals_splits:
            everybody = frozenset(cluster.nodes)
            stayed, kept = everybody - split.absences.keys(), _kept_apart(kept | split.sides.keys())
            yield ((Permit(everybody, (split.apart_us[0], span_us[1]), tuple(kept), stayed),),)
            continue
        for round_ in split.rounds:
            yield tuple(
                tuple(
                    Permit(frozenset({node}), period)
                    for node, when in split.lost_with(survivor, round_).items()
                    for period in periods(when)
                )
                for survivor in round_.survivors
            )


def _kept_apart(sides: frozenset[Side]) -> frozenset[Side]:
    """Return all parts that nodes may be in, who were on those sides one after another: who lost each other once and
    was not restarted stays apart."""
    found = sides
    while more := {one & other for one, other in itertools.combinations(found, 2)} - found - {frozenset()}:
        found |= more
    return found


def _excused(
    declared: Sequence[tuple[Declaration, Fate]], choices: Iterable[tuple[tuple[Permit, ...], ...]]
) -> frozenset[str]:
    """The items that may be as they are. One side of each split was trusted: taken are those that explain the most."""
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
    asked_nodes: Side,
    permits: Iterable[tuple[tuple[Permit, ...], ...]],
    impossible: Sequence[Declaration],
) -> Finding:
    silent = sorted(set(facts.cluster.nodes if facts.cluster else ()) - asked_nodes)
    ends = [(d, d.fate(asked_nodes)) for d in declared]
    excused = _excused([(d, fate) for d, fate in ends if fate in _BROKEN], permits)
    fates: dict[tuple[Fate, bool], list[Declaration]] = defaultdict(list)
    for d, fate in ends:
        fates[fate, d.item in excused].append(d)
    beside_cut = [d for d in declared if _beside_cut(facts, d)]
    wrong = [_told(facts, d, asked_nodes) for d in [*fates["differing", False], *fates["lost", False]]]
    told = f"{counted(len(declared), 'item was', 'items were')} declared, {len(beside_cut)} of them during a cut"
    minority = [f"{_told(facts, d, asked_nodes)}; {d.node} was in a minority" for d in impossible]
    if wrong:
        verdict, told = (
            Verdict.INVALID,
            f"{told}; {counted(len(wrong), 'is', 'are')} on some nodes only, or gone: {wrong[0]}",
        )
    elif minority:
        verdict, told = (
            Verdict.INVALID,
            f"{told}; {counted(len(minority), 'was', 'were')} created in a minority: {minority[0]}",
        )
    elif silent:
        verdict, told = Verdict.UNKNOWN, f"{told}; {', '.join(silent)} did not tell which of them they know"
    elif not declared:
        verdict, told = Verdict.UNKNOWN, "nothing was declared while the run went on"
    else:
        verdict, told = Verdict.VALID, f"{told}; the nodes agree on them, and have what was created"
    permitted = len(fates["differing", True]), len(fates["lost", True])
    if any(permitted) and facts.cluster is not None:
        reason = permits_lost_declarations(facts.cluster)
        told += f", but for {permitted[0]} that may differ and {permitted[1]} that may be lost: {reason}"
    counts: dict[str, Number] = {
        f"{fate}{'_permitted' * may}": len(fates[fate, may]) for fate in _BROKEN for may in (False, True)
    }
    counts["created_in_a_minority"] = len(impossible)
    counts["lost_through"] = " ".join(sorted({d.node for d in fates["lost", False]}))
    coverage = Coverage(0 if silent else len(declared) - len(excused), len(declared), "items")
    return Finding(
        verdict, told, _numbers(declared, beside_cut) | counts, tuple([*wrong, *minority][:EXAMPLES_MAX]), coverage
    )


def _numbers(declared: Sequence[Declaration], beside_cut: Sequence[Declaration]) -> dict[str, Number]:
    states = Counter(d.state for d in declared)
    return {
        "declared": len(declared),
        "declared_beside_cut": len(beside_cut),
        "created": states["created"],
        "created_beside_cut": sum(d.state == "created" for d in beside_cut),
        "refused": states["refused"],
        "unanswered": states["unanswered"],
    }


def _beside_cut(facts: Facts, declaration: Declaration) -> bool:
    return any(
        (step.cut or step.down) and step.injected and declaration.overlaps(step.possible_us) for step in facts.steps
    )


def _told(facts: Facts, declaration: Declaration, asked_nodes: Side) -> str:
    d = declaration
    asked = f"{d.item} was declared through {d.node} at {facts.at(d.asked_us)}, {facts.beside(d.asked_us, d.asked_us)}"
    answered = d.state if d.answered_us == NEVER_US else f"{d.state} at {facts.at(d.answered_us)}"
    there, missing = " ".join(sorted(d.known_to)), " ".join(sorted(asked_nodes - d.known_to))
    return f"{asked}, and {answered}; it is on {there or 'no node'}" + (f" and not on {missing}" if there else "")
