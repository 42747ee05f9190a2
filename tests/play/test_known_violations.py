"""What a known violation excuses: itself, and not what could not be told besides."""

from __future__ import annotations

from pathlib import Path

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.runner.judging import judge_run, reopened
from tests.corpus.reading import unpacked
from tests.messages import Messages


def test_a_known_violation_with_another_invariant_unknown_is_unknown(tmp_path: Path, message: Messages) -> None:
    """An expired queue: the loss is expected, and nothing arrived after the fault whose order could be judged."""
    run = unpacked("unsafe_queue_expired-3.10.8", tmp_path)
    result = judge_run(reopened(run.path))
    invariants = {name: told["verdict"] for name, told in result.document["invariants"].items()}
    assert invariants == {"no_loss": "INVALID", "order": "UNKNOWN"}
    assert (result.verdict, result.document["verdict"], result.as_expected) == (Verdict.UNKNOWN, "UNKNOWN", False)
    message(result.document["notes"][0])


def test_a_known_violation_alone_passes(tmp_path: Path) -> None:
    run = unpacked("unsafe_queue_expired-3.10.8", tmp_path)
    text = run.fault_file.read_text(encoding="utf-8")
    run.fault_file.write_text("".join(line for line in text.splitlines(True) if "order:" not in line), encoding="utf-8")
    result = judge_run(reopened(run.path))
    assert (result.verdict, result.as_expected) == (Verdict.INVALID, True)
