"""The corpus of unsafe set-ups: each file says what is unsafe, why RabbitMQ may break it, and what must be noticed."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.extensions.tables.would_notice import CORPUS, corpus
from rabbitmq_resilience.scenario import fault_file

ROOT = Path(__file__).resolve().parents[2]
FILES = sorted(CORPUS.glob("*.fault.yaml"))


def test_all_of_them_are_played() -> None:
    assert sorted(CORPUS.iterdir()) == FILES
    assert len(set(corpus().values())) == len(FILES) >= 18


@pytest.mark.parametrize("file", FILES, ids=lambda file: file.stem)
def test_each_says_what_and_why_and_what_must_be_noticed(file: Path) -> None:
    assert file.read_text(encoding="utf-8").startswith("# "), "what is unsafe, for people"
    scenario = fault_file.load(file)
    assert scenario.title == f"Unsafe: {scenario.name}"
    assert scenario.markers == ("unsafe",)
    assert scenario.tries == 3, "most lose messages only where a fault meets them at work"
    assert (scenario.reference or "").startswith("https://www.rabbitmq.com/docs/")
    (expected,) = scenario.expect
    assert (expected.verdict, expected.intermittent) == (Verdict.INVALID, False)
    assert expected.invariant in scenario.chosen_invariants
    assert expected in scenario.expected("3.10.8")


def test_the_page_has_each() -> None:
    page = (ROOT / "reports" / "would-notice.md").read_text(encoding="utf-8")
    assert [name for name in corpus().values() if f"| {name} |" not in page] == []
