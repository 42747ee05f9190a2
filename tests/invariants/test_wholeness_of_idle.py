"""What is told of processes that only keep connections, which the record of messages does not know."""

from __future__ import annotations

from tests.invariants.test_wholeness import STEP, of_one_step


def test_a_process_that_only_keeps_connections_is_told_once_if_it_hangs() -> None:
    record = of_one_step(*STEP)
    record.happened(91, "worker", worker="idle-3", event="hung", node="", detail="", life=0)
    assert record.finding().examples == ("idle-3 hung at the end, and had to be killed",)
    record.events[-1]["event"] = "stopped"
    assert record.finding().examples == ("idle-3 is no worker of the load, and has events",)
