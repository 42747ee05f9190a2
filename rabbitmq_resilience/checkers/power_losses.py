"""Count lost messages and declarations that no power cut explains, so that a loss by design hides no other one."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np

from rabbitmq_resilience.checkers.columns import Array
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fan_out import Shards
from rabbitmq_resilience.checkers.observed_faults import ObservedFault
from rabbitmq_resilience.checkers.verdict import History
from rabbitmq_resilience.history.events import SampleEvent

#: The number of no_loss, and of metadata, that is there if anything was lost in a run with a power cut.
WITHOUT_POWER_CUT = "lost_without_power_cut"
#: The number of no_loss that is there if anything was lost in a run in which all nodes lost power.
FROM_LISTED_QUEUES = "lost_from_listed_queues"


def lost_without_power_cut(history: History, queue: Array, sent_us: Array, shards: Shards) -> Mapping[str, int]:
    """Return how many of the lost messages no power cut explains, by the name of that number; empty without a cut.

    ``queue`` has the index of each lost message's queue. A cut explains messages that were sent before it had ended the
    nodes, to queues that one of these nodes holds.
    """
    facts = history.facts
    cuts = _power_cuts(facts)
    explained = np.zeros(len(queue), np.bool_)
    for step in cuts:
        held = [index for index, one in enumerate(facts.queues) if one.holders & step.down]
        mine = sorted({shard for index in held for shard in shards.group_of(index)} | {*held})
        explained |= np.isin(queue, mine) & (sent_us < step.sure_us[0])
    return {WITHOUT_POWER_CUT: int(np.count_nonzero(~explained))} if cuts else {}


def lost_from_listed_queues(history: History, queue: Array, sent_us: Array) -> Mapping[str, int]:
    """Return how many of the lost messages were not lost with their queue, by the name of that number; empty without a
    cut of all nodes.

    ``queue`` has the index of each lost message's queue. A message was lost with its queue if it had been sent before
    a cut had ended all nodes, and if brokers listed other queues after that cut, but never this one. A queue that an
    operator deleted, or that a client declared again, counts as listed.
    """
    facts = history.facts
    cuts = _cuts_of_all(facts)
    explained = np.zeros(len(queue), np.bool_)
    for step in cuts:
        after = [sample for sample in facts.of_kind(SampleEvent) if sample.t_us > step.possible_us[1]]
        listed = {name for sample in after for name in sample.queues}
        kept = listed | {other.effect.queue_deleted for other in facts.steps}
        gone = [index for index, one in enumerate(facts.queues) if listed and one.name not in kept]
        explained |= np.isin(queue, gone) & (sent_us < step.sure_us[0])
    return {FROM_LISTED_QUEUES: int(np.count_nonzero(~explained))} if cuts else {}


def forgotten_without_power_cut(facts: Facts, *, differing: int, forgotten_us: Sequence[int]) -> Mapping[str, int]:
    """Return how many items no power cut explains, by the name of that number; empty without a cut.

    ``differing``: how many items are on some nodes only. ``forgotten_us``: when those were declared that no node has. A
    cut explains that they are gone if it took all nodes, and had not ended them when the item was asked for.
    """
    cuts = _power_cuts(facts)
    until_us = max((step.sure_us[0] for step in _cuts_of_all(facts)), default=0)
    return {WITHOUT_POWER_CUT: differing + sum(at_us >= until_us for at_us in forgotten_us)} if cuts else {}


def _power_cuts(facts: Facts) -> Sequence[ObservedFault]:
    return [step for step in facts.steps if step.fault == "power_cut" and step.injected]


def _cuts_of_all(facts: Facts) -> Sequence[ObservedFault]:
    return [step for step in _power_cuts(facts) if facts.cluster is not None and step.down >= {*facts.cluster.nodes}]
