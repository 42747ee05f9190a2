"""What is told of processes that only keep connections, which the record of messages does not know."""

from __future__ import annotations

from tests.invariants.test_wholeness import STEP, of_one_step
from tests.messages import Messages


def test_a_process_that_only_keeps_connections_is_reported_once_if_it_hangs(message: Messages) -> None:
    record = of_one_step(*STEP)
    record.happened(91, "worker", worker="idle-3", event="hung", node="", detail="", life=0)
    (hung,) = record.finding().examples
    message(hung)
    assert "idle-3" in hung
    record.events[-1]["event"] = "stopped"
    (stranger,) = record.finding().examples
    message(stranger)
    assert "idle-3" in stranger
