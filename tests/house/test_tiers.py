"""The tiers hold what they promise, and the ledger of parts has each run."""

from __future__ import annotations

import socket
import sys
import time
from pathlib import Path

import pytest

from tests import parts
from tests.parts import Part
from tests.tiers import BarredError, Measured, alone_s


def test_check_refuses_sockets_and_sleep() -> None:
    with pytest.raises(BarredError, match="test_check_refuses"):
        time.sleep(0)
    with socket.socket() as barred, pytest.raises(BarredError):
        barred.bind(("127.0.0.1", 0))


@pytest.mark.core
def test_a_slow_item_is_measured_again_alone() -> None:
    node = f"{Path(__file__).relative_to(parts.ROOT)}::test_check_refuses_sockets_and_sleep"
    measured = Measured()
    assert 0 < alone_s(node) < measured.limit_s
    taken_s = 2 * measured.limit_s
    report = pytest.TestReport(node, ("", 0, ""), {}, "passed", None, "teardown", user_properties=[("cpu_s", taken_s)])
    measured.pytest_runtest_logreport(report)
    assert measured.slow == {node: taken_s}


def test_parts_are_run_entered_and_gone_on_with(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parts, "LEDGER", tmp_path / "tests.jsonl")
    monkeypatch.setattr(parts, "PAGE", tmp_path / "tests.md")
    closing = "== 3 passed, 1 skipped in 0.12s =="
    played = {
        "green": Part("what is green", (sys.executable, "-c", f"print('{closing}')")),
        "red": Part("what is red", (sys.executable, "-c", "raise SystemExit(1)")),
    }
    monkeypatch.setattr(parts, "PARTS", played)
    assert parts.main([]) == 1
    assert [(run.part, run.outcome, run.counts) for run in parts.runs()] == [
        ("green", "green", "3 passed, 1 skipped"),
        ("red", "red", ""),
    ]
    assert parts.main([]) == 1  # goes on with what was not green on this commit
    assert [run.part for run in parts.runs()] == ["green", "red", "red"]
    entered = parts.runs()
    assert parts.main(["--", "-k", "one"]) == 0  # neither is run by pytest
    with pytest.raises(SystemExit):
        parts.main(["red", "--", "-k", "one"])
    assert parts.runs() == entered
    assert "| what is red | never |" in (tmp_path / "tests.md").read_text(encoding="utf-8")


def test_options_are_passed_to_pytest_and_what_they_choose_is_not_entered(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(parts, "LEDGER", tmp_path / "tests.jsonl")
    monkeypatch.setattr(parts, "PAGE", tmp_path / "tests.md")
    monkeypatch.setattr(parts, "PARTS", {"all": Part("all tests", (*parts.PYTEST, "--version"))})
    assert parts.main(["all", "--", "-VV"]) == 0
    assert "pytest" in capfd.readouterr().out
    assert parts.runs() == []
    assert parts.Part("marked").command_of("engine", ["-x"])[-3:] == ["-m", "engine", "-x"]
