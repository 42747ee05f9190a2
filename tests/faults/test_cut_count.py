"""Overlapping faults on the same links: what is restored, and when."""

from __future__ import annotations

from collections.abc import Collection

import pytest

from rabbitmq_resilience.model.links import Link
from rabbitmq_resilience.nemesis.fault import CutCount

A_B, B_A = Link("a1", "b1"), Link("b1", "a1")


class Acted:
    def __init__(self) -> None:
        self.on: list[set[Link]] = []

    def __call__(self, links: Collection[Link]) -> None:
        self.on.append(set(links))


def test_only_the_last_fault_restores_a_link() -> None:
    count, cut, restored = CutCount(), Acted(), Acted()
    count.add({A_B, B_A}, cut)
    count.add({A_B}, cut)  # the same one way
    count.remove({A_B, B_A}, restored)

    assert (count.is_cut(A_B), count.is_cut(B_A)) == (True, False)
    count.remove({A_B}, restored)
    assert cut.on == [{A_B, B_A}, {A_B}]  # it may have to last longer now
    assert restored.on == [{B_A}, {A_B}]
    assert not count.is_cut(A_B)


def test_a_cut_that_failed_is_restored_like_any_other() -> None:
    count, restored = CutCount(), Acted()

    def fail(_: Collection[Link]) -> None:
        raise OSError("no proxy")

    with pytest.raises(OSError, match="no proxy"):
        count.add({A_B}, fail)
    count.remove({A_B}, restored)
    cut = Acted()
    count.add({A_B}, cut)
    assert (restored.on, cut.on) == ([{A_B}], [{A_B}])


def test_what_was_never_cut_is_not_owed_a_cut() -> None:
    count, cut = CutCount(), Acted()
    count.remove({A_B}, Acted())
    count.add({A_B}, cut)
    assert cut.on == [{A_B}]
    assert count.is_cut(A_B)
