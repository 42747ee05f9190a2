"""Logs as they lie in folders: rotated, twice, of one name, with comments in the configuration next to them."""

from __future__ import annotations

import gzip
from datetime import datetime, timedelta
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.incidents.fault_file_command import evidence_of
from rabbitmq_resilience.extensions.incidents.log_times import seconds
from rabbitmq_resilience.extensions.incidents.occurrences import Evidence, EvidenceError, Occurrence
from tests.evidence.test_command import LOGS, PLAYED, TICK_S, assert_played, made_of

CUT = LOGS / "3.10.8-zone-cut-off"
NODES = ("rabbit@node1", "rabbit@node2", "rabbit@node3")
BEGUN = datetime(2026, 11, 21, 12)


def lines(*entries: tuple[float, str]) -> str:
    """Return log lines of one process at these seconds."""
    moments = ((BEGUN + timedelta(seconds=at_s), text) for at_s, text in entries)
    return "".join(f"{moment:%Y-%m-%d %H:%M:%S.%f}+00:00 [info] <0.1.0> {text}\n" for moment, text in moments)


def booted(at_s: float, node: str = "") -> str:
    head = [
        (at_s, "Logging: configured log handlers are now ACTIVE"),
        (at_s, " Starting RabbitMQ 3.12.4 on Erlang 25.0"),
    ]
    return lines(*head, *([(at_s, f" node           : {node}")] if node else []))


def of_killed(node: str = "") -> str:
    """Return the log of the second node, which is killed after 3600 s and starts again 28 s later."""
    return booted(0, node) + lines((3600, "accepting AMQP connection")) + booted(3628, node)


def of_peer(node: str = "") -> str:
    entries = [(3600.1, "rabbit on node rabbit@node2 down"), (3600.1, "node rabbit@node2 down: connection_closed")]
    return booted(0, node) + lines(*entries, (3626, "node rabbit@node2 up"), (3640, "rabbit on node rabbit@node2 up"))


def killed(evidence: Evidence) -> list[Occurrence]:
    return [one for one in evidence.occurrences if one.fault == "kill"]


def test_a_file_of_each_nodes_folder_is_found_by_the_folder(tmp_path: Path) -> None:
    """Only the node that died is named by the others."""
    for name, log in zip(NODES, (of_peer(), of_killed(), of_peer()), strict=True):
        folder = tmp_path / name.partition("@")[2]
        folder.mkdir()
        (folder / "rabbit.log").write_text(log)
    evidence = evidence_of([tmp_path], net_ticktime_s=TICK_S)
    assert evidence.nodes == NODES
    (kill,) = killed(evidence)
    assert kill.sides == (frozenset({"rabbit@node2"}),)
    assert kill.end is not None
    assert kill.end - kill.begin == pytest.approx(28, abs=5)


def test_a_link_to_a_log_keeps_its_name(tmp_path: Path) -> None:
    """As the files of a container runtime are linked: the name of the link has the node."""
    (tmp_path / "kept").mkdir()
    (tmp_path / "linked").mkdir()
    for number, (name, log) in enumerate(zip(NODES, (of_peer(), of_killed(), of_peer()), strict=True)):
        (tmp_path / "kept" / f"{number}.log").write_text(log)
        (tmp_path / "linked" / f"{name}.log").symlink_to(tmp_path / "kept" / f"{number}.log")
    assert evidence_of([tmp_path / "linked"], net_ticktime_s=TICK_S).nodes == NODES


def test_what_is_there_twice_counts_once(tmp_path: Path) -> None:
    """A file and its folder, and the console of a node next to its log."""
    for name, log in zip(NODES, (of_peer, of_killed, of_peer), strict=True):
        (tmp_path / f"{name}.log").write_text(log(name))
    (tmp_path / "console.txt").write_text(of_killed(NODES[1]))
    evidence = evidence_of([tmp_path, tmp_path / f"{NODES[1]}.log"], net_ticktime_s=TICK_S)
    assert len(killed(evidence)) == 1


@pytest.mark.parametrize("packed", [True, False])
def test_logs_that_were_rotated_by_day_are_joined(packed: bool, tmp_path: Path) -> None:
    for log in CUT.iterdir():
        written = log.read_bytes().splitlines(keepends=True)
        earlier, later = b"".join(written[: len(written) // 2]), b"".join(written[len(written) // 2 :])
        (tmp_path / log.name).write_bytes(later)
        rotated = tmp_path / f"{log.name}-20261121{'.gz' if packed else ''}"
        rotated.write_bytes(gzip.compress(earlier) if packed else earlier)
    assert_played(made_of(tmp_path), PLAYED["3.10.8-zone-cut-off"])


@pytest.mark.parametrize(
    ("name", "text", "known_s"),
    [
        ("rabbitmq.conf", "# net_ticktime = 60\nnet_ticktime = 5\n", 5),
        ("rabbitmq.conf", "net_ticktime = 15\nnet_ticktime = 5\n", 5),
        ("rabbitmq.conf", "# net_ticktime = 15\n", None),
        ("advanced.config", "[{kernel, [{net_ticktime, 5}]}]. % {net_ticktime, 60}", 5),
    ],
)
def test_only_what_a_configuration_states_counts(name: str, text: str, known_s: float | None, tmp_path: Path) -> None:
    (tmp_path / f"{NODES[0]}.log").write_text(booted(0, NODES[0]))
    (tmp_path / name).write_text(text)
    assert evidence_of([tmp_path]).net_ticktime_s == known_s


def test_a_node_that_was_revived_did_not_stop(tmp_path: Path) -> None:
    drained = lines(
        (600, "This node is being put into maintenance (drain) mode"),
        (1200, "This node is being revived from maintenance (drain) mode"),
    )
    (tmp_path / f"{NODES[1]}.log").write_text(booted(0, NODES[1]) + drained)
    assert evidence_of([tmp_path], net_ticktime_s=TICK_S).occurrences == ()


def test_an_alarm_that_is_set_again_at_once_is_another_one(tmp_path: Path) -> None:
    node = NODES[0]
    alarms = lines(
        (10, f"disk resource limit alarm set on node {node}"),
        (20, f"disk resource limit alarm cleared on node {node}"),
        (21, f"disk resource limit alarm set on node {node}"),
        (80, f"disk resource limit alarm cleared on node {node}"),
    )
    (tmp_path / f"{node}.log").write_text(booted(0, node) + alarms)
    (tmp_path / f"{NODES[1]}.log").write_text(booted(0, NODES[1]) + alarms)
    found = evidence_of([tmp_path], net_ticktime_s=TICK_S).occurrences
    assert [(one.fault, round((one.end or 0) - one.begin)) for one in found] == [("alarm", 10), ("alarm", 59)]


@pytest.mark.parametrize("text", ["closing AMQP connection (1 -> 2):\nclient unexpectedly closed TCP connection"])
def test_a_lost_client_is_found_if_the_reason_has_a_line_of_its_own(text: str, tmp_path: Path) -> None:
    (tmp_path / f"{NODES[0]}.log").write_text(booted(0, NODES[0]) + lines((5, text)))
    (note,) = [note for note in evidence_of([tmp_path]).notes if "closed properly" in note]
    assert note.startswith("1 connection of a client was not closed properly; ")


def test_compact_times_are_days_and_times_of_day() -> None:
    assert seconds("20260131121000") - seconds("202601311200") == 600
    assert seconds("20260131120000") == seconds("2026-01-31T12:00:00Z")
    assert seconds("1769860800000") == 1769860800


@pytest.mark.parametrize("named", ["logs.tar.gz", "."])
def test_an_archive_of_several_files_is_refused(named: str, tmp_path: Path) -> None:
    (tmp_path / "logs.tar.gz").write_bytes(gzip.compress(b"several files"))
    with pytest.raises(EvidenceError, match=r"logs\.tar\.gz is an archive of several files: unpack it, and name"):
        evidence_of([tmp_path / named], net_ticktime_s=TICK_S)


def test_links_that_are_back_at_different_times_may_have_been_several_cuts(tmp_path: Path) -> None:
    back_s = {frozenset(NODES[:2]): 400, frozenset(NODES[::2]): 100, frozenset(NODES[1:]): 400}
    for node in NODES:
        entries = []
        for pair, at_s in back_s.items():
            for peer in pair - {node} if node in pair else ():
                entries += [(60, f"rabbit on node {peer} down"), (60, f"node {peer} down: net_tick_timeout")]
                entries += [(at_s, f"node {peer} up")]
        (tmp_path / f"{node}.log").write_text(booted(0, node) + lines(*sorted(entries, key=lambda entry: entry[0])))
    (cut,) = evidence_of([tmp_path], net_ticktime_s=TICK_S).occurrences
    assert cut.fault == "partition"
    assert "its last link was back 300 s after its first: there may have been several cuts" in cut.notes


def test_colours_of_a_console_are_left_out(tmp_path: Path) -> None:
    for log in CUT.iterdir():
        coloured = "".join(f"\x1b[38;5;246m{line}\x1b[0m\n" for line in log.read_text().splitlines())
        (tmp_path / log.name).write_text(coloured)
    assert_played(made_of(tmp_path), PLAYED["3.10.8-zone-cut-off"])
