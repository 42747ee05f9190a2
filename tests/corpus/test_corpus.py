"""Judge each run of the corpus again: recorded on real brokers, each has the verdict and the numbers that it had.

A golden number changes only in a commit that explains it: ``pytest tests/corpus --write-golden``, and read the diff.
"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.runner.judging import judge_run
from tests.corpus.reading import FIRST, first_runs, judged, names, read_golden, unpacked, write_golden

NAMES = names()
GOLDEN = read_golden()


@pytest.mark.parametrize("name", NAMES)
def test_a_run_is_judged_the_same(name: str, tmp_path: Path, pytestconfig: pytest.Config) -> None:
    found = judged(unpacked(name, tmp_path))
    if pytestconfig.getoption("--write-golden"):
        write_golden({**read_golden(), name: found})
    else:
        assert found == GOLDEN[name]


def test_golden_lines_are_those_of_runs() -> None:
    assert sorted(GOLDEN) == NAMES


def test_each_verdict_and_several_versions_are_there() -> None:
    documents = [json.loads((first_runs() / name / "verdict.json").read_text(encoding="utf-8")) for name in FIRST]
    assert {document["verdict"] for document in documents} == set(map(str, Verdict))
    assert {document["driver"] for document in documents} >= {"local", "docker"}
    assert len({document["broker_version"] for document in documents}) >= 4


def test_a_whole_document_and_its_page_are_made(tmp_path: Path) -> None:
    """The rest of verdict.json, which is no judgement, of one run."""
    run = unpacked("minority_zone_cut_off-3.10.8", tmp_path)
    before = json.loads(run.verdict_file.read_text(encoding="utf-8"))
    run.verdict_file.unlink()
    judge_run(run)
    after = json.loads(run.verdict_file.read_text(encoding="utf-8"))
    assert after.keys() - {"erlang_version"} == before.keys()  # it was recorded before that was
    same = ("verdict", "seed", "topology", "queue_type", "broker_version", "driver", "formed_in_s", "started_at")
    assert {name: after[name] for name in same} == {name: before[name] for name in same}
    assert (after["expected"], after["as_expected"], after["duration_s"]) == ("VALID", True, before["duration_s"])
    assert after["others_cpu"] == before["others_cpu"]
    assert run.report.exists()


def test_a_damaged_record_still_gets_its_verdict(tmp_path: Path) -> None:
    run = unpacked(NAMES[0], tmp_path)
    stream = next(run.history.glob("*.deliveries.arrows"))
    stream.write_bytes(b"nonsense" * 100)
    document = judge_run(run).document
    assert (document["verdict"], document["consequences"]) == ("UNKNOWN", None)
    assert document["assumptions"]["history_whole"]["verdict"] == "UNKNOWN"
    assert run.read_verdict()["verdict"] == "UNKNOWN"
