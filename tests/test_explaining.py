"""What is shown where something goes wrong before a verdict: a sentence and its remedy, and where the traceback is."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.plugin.failures import REMEDIES, TRACEBACKS, interrupted, sentence
from rabbitmq_resilience.runner import run
from rabbitmq_resilience.sut.last_words import MORE_MEMORY, cause_of, last_words

pytest_plugins = ["pytester"]

SCENARIO = """
version: 1
title: A client goes and comes
topology: three_nodes_three_zones
workload: {queue_type: quorum, queues: 1, rate_per_s: 100}
phases: {steady_s: 2, recovery_s: 60, settled_s: 1}
schedule:
  - {at_s: 1, for_s: 1, fault: kill_client, client: "publisher:0"}
invariants: {no_loss: {}}
"""


def played(pytester: pytest.Pytester, *options: str) -> str:
    (pytester.path / "some.fault.yaml").write_text(SCENARIO)
    result = pytester.runpytest("some.fault.yaml", "-p", "no:cacheprovider", *options)
    return result.stdout.str()


@pytest.mark.core
def test_a_run_directory_that_cannot_be_made(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pytester.path)
    told = played(pytester, "--resilience-runs-dir=/proc/runs")
    assert TRACEBACKS not in told
    assert "/proc/runs: No such file or directory; make the folder that it is in, or" in told
    assert "Traceback" not in told
    assert ", line " not in told


@pytest.mark.core
def test_its_traceback_is_in_a_file(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(pytester.path)

    def broken(*_: object, **__: object) -> None:
        raise ClusterError("b1 ended with status 1; it says why")

    monkeypatch.setattr(run, "_play", broken)
    told = played(pytester)
    assert "b1 ended with status 1; it says why" in told
    assert "The run ended before the load began. Its record: " in told
    kept = pytester.path / "reports" / "runs" / TRACEBACKS
    assert f"The traceback is in {kept}" in told
    assert "in broken" in kept.read_text()
    assert "raise ClusterError" not in told
    assert "raise ClusterError" in played(pytester, "--full-trace")


def test_each_errno_has_its_remedy() -> None:
    for number in REMEDIES:
        told = sentence(OSError(number, "it cannot be", "/some/file"))
        assert told.startswith("/some/file: it cannot be; ")
    assert sentence(OSError(errno.EIO, "Input/output error")) == "Input/output error"


def test_what_is_of_no_known_kind_is_a_defect_of_this_suite() -> None:
    assert sentence(KeyError("q1")) == "this suite failed, which is a defect of the suite: KeyError: 'q1'"


@pytest.mark.parametrize(
    ("error", "said"),
    [
        (MemoryError(), f"there is no memory left for this program; {REMEDIES[errno.ENOMEM]}"),
        (RuntimeError("can't start new thread"), f"no thread could be started; {REMEDIES[errno.EAGAIN]}, or "),
    ],
)
def test_want_of_memory_is_no_defect_of_this_suite(error: BaseException, said: str) -> None:
    assert sentence(error).startswith(said)


@pytest.mark.parametrize(
    ("status", "printed", "said"),
    [
        (-9, "", "if memory is short, the kernel does that"),
        (137, "", "if memory is short, the kernel does that"),
        (1, "erts_mmap: Failed to create super carrier of size 1024 MB\n", "as it got no memory"),
        (134, 'eheap_alloc: Cannot allocate 1048576 bytes of memory (of type "heap").\n', "as it got no memory"),
        (1, "Traceback (most recent call last):\nMemoryError\n", "as it got no memory"),
    ],
)
def test_a_process_that_got_no_memory_says_so(status: int, printed: str, said: str, tmp_path: Path) -> None:
    (tmp_path / "output").write_text(printed)
    cause = cause_of(status, tmp_path / "output")
    assert said in cause
    assert MORE_MEMORY in cause


def test_a_process_that_ended_for_another_reason_says_nothing_of_memory(tmp_path: Path) -> None:
    (tmp_path / "output").write_text("You've tried to set heartbeatt\n")
    assert cause_of(1, tmp_path / "output") == cause_of(1, tmp_path / "nothing") == cause_of(-15) == ""


def test_an_interrupted_run_says_where_it_was_and_where_its_record_is() -> None:
    told: list[str] = []
    with pytest.raises(KeyboardInterrupt), interrupted("A zone is cut off", told.append):
        error = KeyboardInterrupt()
        error.add_note("The run ended in the phase steady. Its record: /runs/1/report.html")
        raise error
    assert told == [
        "STOPPED  A zone is cut off: The run ended in the phase steady. Its record: /runs/1/report.html",
    ]


def test_the_first_errors_of_a_broker_are_reported_before_reports_of_what_ended_for_them(tmp_path: Path) -> None:
    output = tmp_path / "output"
    output.write_text(
        "2026-11-29 10:29:54.316347+00:00 [error] <0.160.0> You've tried to set heartbeatt, but there is no such\n"
        "\nBOOT FAILED\n"
        "2026-11-29 10:29:54.364140+00:00 [error] <0.160.0> BOOT FAILED\n"
        "2026-11-29 10:29:55.365851+00:00 [error] <0.160.0>     supervisor: {local,rabbit_prelaunch_sup}\n"
    )
    assert last_words("b1", output) == (
        "output of b1 has these errors first:\nYou've tried to set heartbeatt, but there is no such"
    )
    output.write_text("\n".join(f"line {number}" for number in range(20)))
    assert last_words("b1", output).startswith("output of b1 ends:\nline 5\n")
    assert last_words("b1", tmp_path / "nothing") == "nothing of b1 ends:"
