"""The corpus of unsafe set-ups: each file says what is unsafe, why RabbitMQ may break it, and what must be noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from faults import fault_file
from invariants.verdict import Verdict
from reports.would_notice import CORPUS, UNSAFE, corpus_titles
from suites.test_unsafe import FILES

ROOT = Path(__file__).resolve().parents[2]


def test_all_of_them_are_played() -> None:
    assert sorted(CORPUS.glob("*.yaml")) == FILES
    assert len(set(corpus_titles())) == len(FILES) >= 18


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_says_what_and_why_and_what_must_be_noticed(file: Path) -> None:
    assert file.read_text(encoding="utf-8").startswith("# "), "what is unsafe, for people"
    scenario = fault_file.load(file)
    assert scenario.title.startswith(UNSAFE)
    assert (scenario.reference or "").startswith("https://www.rabbitmq.com/docs/")
    (expected,) = scenario.expect
    assert (expected.verdict, expected.always) == (Verdict.INVALID, True)
    assert expected.invariant in scenario.chosen_invariants
    assert expected in scenario.expected("3.10.8")


def test_the_page_tells_of_each() -> None:
    page = (ROOT / "docs" / "would-notice.md").read_text(encoding="utf-8")
    assert [title for title in corpus_titles() if f"| {title.removeprefix(UNSAFE)} |" not in page] == []
