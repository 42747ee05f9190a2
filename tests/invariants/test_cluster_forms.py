"""What a cluster may have been while it was upgraded, against a slow and obvious way to the same."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.checkers.cluster_forms import forms, handled_until_us, unhandled_from_us, version_of
from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.observed_faults import NEVER_US
from tests.invariants.literal import THREE, cluster, fault, us

KHEPRI_FROM, KHEPRI_STABLE_FROM = (4, 3), (4, 2)


@pytest.mark.parametrize(
    ("becomes", "version"),
    [
        ("4.3.6", (4, 3, 6)),
        ("rabbitmq:4.3-management", (4, 3)),
        ("rabbitmq:v4.2.9-alpine3.20", (4, 2, 9)),
        ("10.1.2.3:5000/team/rabbitmq", ()),
        ("10.1.2.3:5000/team/rabbitmq:4.1.8", (4, 1, 8)),
        ("team/rabbitmq@sha256:0a1.2", ()),
        ("rabbitmq", ()),
        ("khepri_db", ()),
        ("rabbitmq_4.0.0", ()),
        ("", ()),
    ],
)
def test_the_version_that_an_image_names(becomes: str, version: tuple[int, ...]) -> None:
    assert version_of(becomes) == version


@dataclass(frozen=True)
class Change:
    """A step that made of its nodes what ``becomes`` says, or enabled a flag, from one second to another.

    ``flags``: it enabled all stable feature flags too."""

    begins_s: int
    ends_s: int
    nodes: tuple[str, ...]
    becomes: str
    flags: bool = False


def made_of(version: str, khepri: bool, changes: Sequence[Change]) -> Facts:
    steps = [
        fault(
            *(one.begins_s, one.ends_s),
            step=number,
            name="upgrade",
            down=one.nodes,
            becomes=one.becomes,
            feature_flags=one.flags,
        )
        for number, one in enumerate(changes)
    ]
    return Facts([cluster(version=version, khepri=khepri), *itertools.chain(*steps)])


changes_of = st.lists(
    st.builds(
        lambda begins_s, lasts_s, nodes, becomes, flags: Change(
            begins_s, begins_s + lasts_s, () if becomes == "khepri_db" else tuple(sorted(nodes)), becomes, flags
        ),
        st.integers(1, 20),
        st.integers(1, 10),
        st.sets(st.sampled_from(THREE), min_size=1),
        st.sampled_from(["4.1.8", "4.2.9", "4.3.6", "4.4.0", "khepri_db", "quorum_queue"]),
        st.booleans(),
    ),
    max_size=4,
)


def instants(changes: Sequence[Change], start_s: float, end_s: float) -> Iterator[float]:
    """Yield a moment between any two at which something changes, and those within the ends."""
    edges = sorted({start_s, end_s, *(t for one in changes for t in (one.begins_s, one.ends_s) if start_s < t < end_s)})
    for before, after in itertools.pairwise(edges):
        yield (before + after) / 2


def versions_at(version: str, changes: Sequence[Change], at_s: float) -> dict[str, set[tuple[int, ...]]]:
    """Return the versions that each node may have. A change that goes on may be done or not."""
    versions: dict[str, set[tuple[int, ...]]] = {node: {version_of(version)} for node in THREE}
    for one in changes:
        to = version_of(one.becomes)
        for node in one.nodes if to and one.begins_s < at_s else ():
            versions[node] = {to} if one.ends_s <= at_s else versions[node] | {to}
    return versions


def slowly(
    version: str, khepri: bool, changes: Sequence[Change], start_s: float, end_s: float
) -> set[tuple[tuple[int, ...], bool]]:
    """Return each version that some node may have with each store that the cluster may have, at some instant of the
    period."""
    found: set[tuple[tuple[int, ...], bool]] = set()
    for at_s in instants(changes, start_s, end_s):
        stores = {khepri}
        for one in changes:
            to, over = version_of(one.becomes), one.ends_s < at_s
            if one.begins_s >= at_s:
                continue
            if one.becomes == "khepri_db" or to >= KHEPRI_FROM:
                stores = {True} if over else stores | {True}
            elif one.flags and to >= KHEPRI_STABLE_FROM:  # nodes enable what they have in common
                then = versions_at(version, changes, one.ends_s)
                common = all(min(of) >= KHEPRI_STABLE_FROM for of in then.values())
                stores = {True} if over and common else stores | {True}
        versions = versions_at(version, changes, at_s)
        found |= {(one, store) for one in set().union(*versions.values()) for store in stores}
    return found


@given(
    st.sampled_from(["4.0.5", "4.2.9", "4.3.0"]),
    st.booleans(),
    changes_of,
    st.integers(0, 35),
    st.integers(1, 20),
)
def test_forms_are_those_of_all_instants(
    version: str, khepri: bool, changes: list[Change], start_s: int, lasts_s: int
) -> None:
    """Of one change at a time exactly those; of several, none is missing."""
    facts = made_of(version, khepri, changes)
    assert facts.cluster is not None
    found = forms(facts, facts.cluster, (us(start_s), us(start_s + lasts_s)))
    expected = slowly(version, khepri, changes, start_s, start_s + lasts_s)
    said = {(form.broker_version, form.khepri) for form in found}
    assert said >= expected
    if len(changes) < 2:
        assert said == expected


@given(st.sampled_from(["4.0.5", "4.2.9"]), changes_of)
def test_handling_ends_between_the_two_moments(version: str, changes: list[Change]) -> None:
    facts = made_of(version, False, changes)
    assert facts.cluster is not None
    may, must = handled_until_us(facts), unhandled_from_us(facts)
    for begin, end in itertools.pairwise(range(41)):
        handles = {form.handles_partitions for form in forms(facts, facts.cluster, (us(begin), us(end)))}
        if us(end) <= may:
            assert handles == {True}
        if us(begin) >= must:
            assert handles == {False}
        if may <= us(begin) and us(end) <= must:
            assert handles == {True, False}


def test_an_image_of_no_version_may_have_ended_it_and_never_surely_did() -> None:
    facts = made_of("4.0.5", False, [Change(10, 20, THREE, "team/rabbitmq@sha256:0a")])
    assert (handled_until_us(facts), unhandled_from_us(facts)) == (us(10), NEVER_US)
    assert facts.cluster is not None
    assert {f.khepri for f in forms(facts, facts.cluster, (us(30), us(31)))} == {True, False}
