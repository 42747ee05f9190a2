"""Judge each literal history whose truth is known. Those that are judged wrongly are listed, until they are mended."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from typing import Any

import pytest

from tests.verdict_cases import dead_letters, expectations, messages, partitions, resources, service
from tests.verdict_cases.builder import cases_of, collected
from tests.verdict_cases.known_wrong import KNOWN_WRONG

FUNCTIONS = [f for m in (dead_letters, expectations, messages, partitions, resources, service) for f in cases_of(m)]


@pytest.mark.parametrize("cases", FUNCTIONS, ids=lambda function: function.__name__)
def test_cases_are_judged_as_they_are(cases: Callable[[], Any]) -> None:
    found = collected(cases)
    wrong = {case.title: case.got for case in found if not case.is_right}
    known = {case.title: KNOWN_WRONG[case.title] for case in found if case.title in KNOWN_WRONG}
    assert wrong == known, "a case that is judged rightly by now leaves known_wrong.py"


def test_each_case_has_a_title_of_its_own() -> None:
    titles = Counter(case.title for function in FUNCTIONS for case in collected(function))
    assert [title for title, count in titles.items() if count > 1] == []
    assert set(KNOWN_WRONG) <= set(titles)
    assert len(titles) >= 150
