"""Logs as people have them: several pods in one file, packed, of a version that handles no partitions."""

from __future__ import annotations

import bz2
import json
import lzma
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.incidents import fault_file_command
from rabbitmq_resilience.extensions.incidents.draft import draft
from rabbitmq_resilience.extensions.incidents.fault_file_command import evidence_of, main, next_command
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.tools.distributions import BrokerHome
from tests.evidence.test_command import LOGS, PLAYED, TICK_S, assert_played, made_of

CUT = LOGS / "3.10.8-zone-cut-off"


def test_the_logs_of_pods_in_one_file_are_distinguished(tmp_path: Path) -> None:
    """As ``kubectl logs --prefix -l app=rabbit`` gives them; nodes are called by their pods."""
    lines = []
    for log in CUT.iterdir():
        of_pod = log.read_text().replace("@localhost", ".nodes.mine").replace("a1.nodes", "rabbit@a1.nodes")
        for node in ("a2", "b1", "b2", "c1"):
            of_pod = of_pod.replace(f"{node}.nodes", f"rabbit@{node}.nodes")
        lines += [f"[pod/{log.stem}/rabbitmq] {line}" for line in of_pod.splitlines(keepends=True)]
    (tmp_path / "pods.txt").write_text("".join(sorted(lines, key=lambda line: line.partition("] ")[2])))
    evidence = evidence_of([tmp_path / "pods.txt"], net_ticktime_s=TICK_S)
    assert evidence.nodes == tuple(f"rabbit@{node}.nodes.mine" for node in ("a1", "a2", "b1", "b2", "c1"))
    assert len(evidence.sources) == len(list(CUT.iterdir()))


@pytest.mark.parametrize("time", ["2026-11-21T16:00:00.123456789Z ", "2026-11-21T16:00:00.1+01:00 stdout F "])
@pytest.mark.parametrize("as_json", [True, False])
def test_times_that_others_write_before_each_line_are_left_out(time: str, as_json: bool, tmp_path: Path) -> None:
    for log in CUT.iterdir():
        lines = []
        for line in log.read_text().splitlines():
            found = re.match(r"(\S+ \S+) \[(\w+)\] (<[\d.]+>) ?(.*)", line)
            its = dict(zip(("time", "level", "pid", "msg"), found.groups(), strict=True)) if found and as_json else None
            lines.append(time + (json.dumps(its) if its else line))
        (tmp_path / log.name).write_text("\n".join(lines))
    assert_played(made_of(tmp_path), PLAYED["3.10.8-zone-cut-off"])


@pytest.mark.parametrize(("suffix", "packed"), [(".xz", lzma.compress), (".bz2", bz2.compress)])
def test_packed_logs_are_read(suffix: str, packed: Callable[[bytes], bytes], tmp_path: Path) -> None:
    for log in CUT.iterdir():
        (tmp_path / f"{log.name}{suffix}").write_bytes(packed(log.read_bytes()))
    assert_played(made_of(tmp_path), PLAYED["3.10.8-zone-cut-off"])


@pytest.mark.parametrize("suffix", [".gz", ".xz", ".bz2"])
def test_what_is_damaged_is_reported(suffix: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / f"a1.log{suffix}").write_bytes(b"no archive")
    with pytest.raises(SystemExit, match="2"):
        main([str(tmp_path)])
    assert f"a1.log{suffix}: cannot be read: " in capsys.readouterr().err


def of_version(version: str, tmp_path: Path) -> str:
    for log in (LOGS / "4.3.6-cut-off").iterdir():
        boot = f"2026-11-21 20:03:00.000000+00:00 [info] <0.1.0>  Starting RabbitMQ {version} on Erlang 27.0 [jit]\n"
        (tmp_path / log.name).write_text(boot + log.read_text())
    return draft(evidence_of([tmp_path], net_ticktime_s=TICK_S))


def test_from_4_3_on_no_partition_handling_is_asked_for(tmp_path: Path) -> None:
    text = of_version("4.3.1", tmp_path)
    assert "  partition_handling: ignore  # RabbitMQ has none from 4.3 on\n" in text
    assert "# The brokers were RabbitMQ 4.3.1.\n" in text
    fault_file.parse(text)


def test_before_that_it_is_to_be_filled_in(tmp_path: Path) -> None:
    assert "  partition_handling: ignore  # FILL IN: this is RabbitMQ's default\n" in of_version("4.2.1", tmp_path)


def test_a_version_that_is_not_reported_is_marked() -> None:
    assert "# FILL IN: the version of the brokers" in draft(evidence_of([LOGS / "4.3.6-cut-off"]))


@pytest.mark.parametrize(
    ("versions", "told"),
    [
        ((), "pytest 'my file.yaml' (on a broker at home, as no evidence has the version; --broker VERSION"),
        (("4.3.6",), "pytest 'my file.yaml' --broker 4.3.6"),
        (("4.2.1",), "pytest 'my file.yaml' --broker 4.2.1 (its release is fetched; the nearest at home is 4.3.6)"),
        (
            ("3.12.4", "3.13.7"),
            "pytest 'my file.yaml' --broker 3.13.7 (its release is fetched; the nearest at home is 3.10.8)",
        ),
    ],
)
def test_the_next_command_names_the_version(
    versions: tuple[str, ...], told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    homes = [BrokerHome(Path("/home"), Path("/erlang"), version) for version in ("4.0.5", "4.3.6", "3.10.8")]
    monkeypatch.setattr(fault_file_command, "brokers_at_home", lambda: homes)
    monkeypatch.setattr(fault_file_command, "OPTION", "--")
    assert next_command(Path("my file.yaml"), versions).startswith(told)


def test_it_is_reported_at_the_end(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main([str(CUT), "--to", str(tmp_path / "made.fault.yaml")]) == 0
    assert f"\nNext: pytest {tmp_path}/made.fault.yaml" in capsys.readouterr().err
