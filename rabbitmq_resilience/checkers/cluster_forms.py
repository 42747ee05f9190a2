"""Find the forms that a cluster may have had during a run: upgrades and feature flags change what it promises.

Until such a step has ended, the cluster may be as before or as after the step. A demand must follow from every such
form, a permission from at least one of them.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import replace

from rabbitmq_resilience.checkers.cluster_facts import ClusterFacts
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.observed_faults import NEVER_US, ObservedFault
from rabbitmq_resilience.checkers.times import Period
from rabbitmq_resilience.model.feature_flags import KHEPRI

_FLAG = re.compile(r"[a-z][a-z0-9_.]*")
_VERSION = re.compile(r"\d+(\.\d+)+")
#: The first series in which ``khepri_db`` is a stable feature flag, and the first without Mnesia.
_KHEPRI_STABLE_SINCE, _KHEPRI_ONLY_SINCE = (4, 2), (4, 3)


def forms(facts: Facts, cluster: ClusterFacts, period_us: Period) -> tuple[ClusterFacts, ...]:
    """Return the forms that the cluster may have had during the period; the form before all changes comes first.

    The cluster may have a version as soon as one node may have it, and until all nodes surely have another one.
    """
    return facts.once(_forms, cluster, _begun(facts, period_us[1]), _ended(facts, period_us[0]))


def handled_until_us(facts: Facts) -> float:
    """Return the moment from which a step may have ended partition handling; NEVER_US without such a step."""
    return min((step.possible_us[0] for step in _changes(facts) if _may_end_handling(step)), default=NEVER_US)


def unhandled_from_us(facts: Facts) -> float:
    """Return the moment from which a step has surely ended partition handling; NEVER_US without such a step."""
    sure = (step for step in _changes(facts) if _surely_ends_handling(facts, step))
    return min((step.possible_us[1] for step in sure), default=NEVER_US)


def _changes(facts: Facts) -> Iterator[ObservedFault]:
    return (step for step in facts.steps if step.effect.becomes and step.injected)


def _begun(facts: Facts, until_us: float) -> frozenset[int]:
    return frozenset(step.number for step in _changes(facts) if step.possible_us[0] < until_us)


def _ended(facts: Facts, by_us: float) -> frozenset[int]:
    return frozenset(step.number for step in _changes(facts) if step.possible_us[1] <= by_us)


def _forms(
    facts: Facts, cluster: ClusterFacts, begun: frozenset[int], ended: frozenset[int]
) -> tuple[ClusterFacts, ...]:
    changes = [step for step in _changes(facts) if step.number in begun]
    over = [step for step in changes if step.number in ended]
    replaced = frozenset(node for step in over if version_of(step.effect.becomes) for node in step.down)
    versions = [] if replaced >= set(cluster.nodes) else [cluster.broker_version]
    versions += [version for step in changes if (version := version_of(step.effect.becomes))]
    stores = {cluster.khepri, cluster.khepri or any(map(_may_end_handling, changes))}
    if any(_surely_ends_handling(facts, step) for step in over):
        stores = {True}
    found = (replace(cluster, broker_version=v, khepri=k) for v in versions for k in sorted(stores))
    return tuple(dict.fromkeys(found))


def version_of(becomes: str) -> tuple[int, ...]:
    """Return the version that a version or an image names, or () for a feature flag and for an image without one."""
    tag = becomes.rpartition(":")[2]  # the image's name may have numbers too
    unnamed = _FLAG.fullmatch(becomes) or "/" in tag or "@" in becomes
    found = None if unnamed else _VERSION.search(tag)
    return tuple(map(int, found[0].split("."))) if found else ()


def _surely_ends_handling(facts: Facts, step: ObservedFault) -> bool:
    if step.effect.becomes == KHEPRI or version_of(step.effect.becomes) >= _KHEPRI_ONLY_SINCE:
        return True
    return _enables_khepri(step) and _all_have_it_stable(facts, step)


def _enables_khepri(step: ObservedFault) -> bool:
    """Return whether the step enables the feature flags of a version whose stable ones include ``khepri_db``."""
    return step.effect.feature_flags and version_of(step.effect.becomes) >= _KHEPRI_STABLE_SINCE


def _all_have_it_stable(facts: Facts, last: ObservedFault) -> bool:
    """Return whether that surely holds for the versions of all nodes once a step is over. Nodes enable what they have
    in common."""
    if facts.cluster is None:
        return False
    end_us = last.possible_us[1]
    begun = [step for step in _changes(facts) if version_of(step.effect.becomes) and step.possible_us[0] < end_us]
    if any(version_of(step.effect.becomes) < _KHEPRI_STABLE_SINCE for step in begun):
        return False
    replaced = (step.down for step in begun if step.possible_us[1] <= end_us)
    every = frozenset().union(*replaced) >= set(facts.cluster.nodes)
    return every or facts.cluster.broker_version >= _KHEPRI_STABLE_SINCE


def _may_end_handling(step: ObservedFault) -> bool:
    """Return whether this step may move metadata to Khepri: an image without a version may be of any version."""
    becomes, version = step.effect.becomes, version_of(step.effect.becomes)
    known = _FLAG.fullmatch(becomes) or version
    return becomes == KHEPRI or version >= _KHEPRI_ONLY_SINCE or _enables_khepri(step) or not known
