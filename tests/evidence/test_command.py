"""Fault files made of logs and timelines have the faults that were played; the logs are extracts of recorded runs."""

from __future__ import annotations

import gzip
import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest

from rabbitmq_resilience.extensions.incidents.draft import draft
from rabbitmq_resilience.extensions.incidents.fault_file_command import evidence_of, main
from rabbitmq_resilience.extensions.incidents.log_times import seconds
from rabbitmq_resilience.extensions.incidents.occurrences import EvidenceError
from rabbitmq_resilience.nemesis.partition import Partition
from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario
from tests.messages import Messages

LOGS = Path(__file__).parent / "logs"
TICK_S = 5
NEAR_S = 1.0

#: A fault, the fields that say where, when it began after the first, and how long it lasted.
Step = tuple[str, dict[str, object], float, float]

#: By folder, as the runs' own events have it.
PLAYED: dict[str, list[Step]] = {
    "3.8.9-cut-off": [("partition", {"between": ("c1", "rest")}, 0, 24.2)],
    "3.10.8-zone-cut-off": [("partition", {"between": ("c1", "rest")}, 0, 26.2)],
    "3.10.8-partial-cut": [("partition", {"between": ("zone:a", "zone:b")}, 0, 18.6)],
    "3.10.8-one-way": [("partition", {"between": ("c1", "rest"), "one_way": True}, 0, 32.8)],
    # raising and clearing it took seconds: the events allow 5.5 to 13.9 s, and this is what the log's two lines say
    "3.10.8-disk-alarm": [("alarm", {"node": "b1", "resource": "disk"}, 0, 7.4)],
    "4.0.5-cut-off": [("partition", {"between": ("c1", "rest")}, 0, 25.8)],
    "4.0.5-killed": [("kill", {"node": "b1"}, 0, 5.4)],
    "4.3.6-cut-off": [("partition", {"between": ("c1", "rest")}, 0, 26.2)],
    "4.3.6-disk-lost": [("lose_disk", {"node": "c1"}, 0, 5.5)],
}


def made_of(*paths: Path, net_ticktime_s: float | None = TICK_S) -> Scenario:
    return fault_file.parse(draft(evidence_of(paths, net_ticktime_s=net_ticktime_s)))


def assert_played(scenario: Scenario, played: list[Step]) -> None:
    assert [step.fault for step in scenario.schedule] == [fault for fault, *_ in played]
    for step, (_, where, at_s, for_s) in zip(scenario.schedule, played, strict=True):
        assert {name: getattr(step, name) for name in where} == where
        assert step.at_s == pytest.approx(at_s, abs=NEAR_S)
        assert step.for_s == pytest.approx(for_s, abs=NEAR_S)


@pytest.mark.parametrize("name", PLAYED)
def test_logs_give_the_schedule_back(name: str) -> None:
    assert_played(made_of(LOGS / name), PLAYED[name])


def test_drained_restarts_are_stops_one_after_another() -> None:
    scenario = made_of(LOGS / "3.10.8-drained")
    steps = [(step.fault, getattr(step, "node", None), getattr(step, "drain", None)) for step in scenario.schedule]
    assert steps == [("stop", "a1", True), ("stop", "b1", True), ("stop", "c1", True), ("rebalance", None, None)]


def test_the_cluster_is_known_by_its_logs() -> None:
    scenario = made_of(LOGS / "3.10.8-zone-cut-off")
    assert scenario.topology.zones == {"a": 2, "b": 2, "c": 1}
    assert scenario.topology.partition_handling == "pause_minority"
    assert scenario.workload.queue_type == "quorum"


def test_brokers_that_tell_of_each_missed_tick_tell_the_tick_time() -> None:
    assert made_of(LOGS / "4.3.6-cut-off", net_ticktime_s=None).topology.net_ticktime_s == TICK_S


def test_the_tick_time_is_found_in_a_configuration_next_to_the_logs(tmp_path: Path) -> None:
    for log in (LOGS / "3.10.8-zone-cut-off").iterdir():
        (tmp_path / log.name).write_text(log.read_text())
    (tmp_path / "advanced.config").write_text("[{kernel, [{net_ticktime, 5}]}].")
    assert_played(made_of(tmp_path, net_ticktime_s=None), PLAYED["3.10.8-zone-cut-off"])


def test_an_unknown_tick_time_is_marked() -> None:
    text = draft(evidence_of([LOGS / "3.10.8-zone-cut-off"]))
    assert re.search(r"net_ticktime_s: 60  # FILL IN", text)


def as_of_3_8(text: str) -> str:
    """The form of 3.8: no time zone, milliseconds, and no time on the further lines of a message."""
    lines: list[str] = []
    last = ""
    for line in text.splitlines():
        found = re.match(r"(\S+ \S+?)\d{3}\+00:00( \[\w+\] <[\d.]+> )(.*)", line)
        assert found
        head = found[1] + found[2]
        lines.append(found[3] if head == last and found[3].startswith("**") else head + found[3])
        last = head
    return "\n".join(lines) + "\n"


def as_json(text: str) -> str:
    found = [re.match(r"(\S+ \S+) \[(\w+)\] (<[\d.]+>) (.*)", line) for line in text.splitlines()]
    return "\n".join(json.dumps({"time": m[1], "level": m[2], "msg": m[4], "pid": m[3]}) for m in found if m)


@pytest.mark.parametrize("form", [as_of_3_8, as_json])
def test_every_form_of_a_log_gives_the_same(form: object, tmp_path: Path) -> None:
    assert callable(form)
    for log in (LOGS / "3.10.8-zone-cut-off").iterdir():
        (tmp_path / log.name).write_text(form(log.read_text()))
    assert_played(made_of(tmp_path), PLAYED["3.10.8-zone-cut-off"])


def test_a_folder_a_node_and_packed_rotated_files_are_read(tmp_path: Path) -> None:
    for log in (LOGS / "3.10.8-zone-cut-off").iterdir():
        lines = log.read_text().splitlines(keepends=True)
        folder = tmp_path / log.stem
        folder.mkdir()
        (folder / "rabbit.log").write_text("".join(lines[6:]))
        with gzip.open(folder / "rabbit.log.1.gz", "wt") as packed:
            packed.write("".join(lines[:6]))
    assert_played(made_of(*sorted(tmp_path.iterdir())), PLAYED["3.10.8-zone-cut-off"])


def test_one_nodes_log_is_enough_for_a_guess_that_says_so() -> None:
    text = draft(evidence_of([LOGS / "4.3.6-cut-off" / "c1.log"], net_ticktime_s=TICK_S))
    assert "a1@localhost, b1@localhost" in text
    assert_played(fault_file.parse(text), PLAYED["4.3.6-cut-off"])


def test_an_end_that_is_not_reported_is_refused_with_its_place(tmp_path: Path, message: Messages) -> None:
    for log in (LOGS / "4.3.6-cut-off").iterdir():
        kept = [line for line in log.read_text().splitlines(keepends=True) if line < "2026-11-21 20:04:30"]
        (tmp_path / log.name).write_text("".join(kept))
    with message.of(fault_file.FaultFileError) as refused:
        made_of(tmp_path)
    assert "schedule[0].for_s: " in str(refused.value)


TIMELINE = """time,node,zone,event,end,duration
2026-01-31T12:00:00Z,rabbit@h1,,partition,,40s
2026-01-31T12:01:00+00:00,rabbit@h2,,broker killed,,
1769860875,rabbit@h2,,started again,,
2026-01-31T13:01:30+01:00,rabbit@h3,,memory alarm,2026-01-31T12:01:50Z,
2026-01-31T12:02:00Z,rabbit@h3,,somebody had lunch,,
"""


def test_a_timeline_gives_its_schedule(tmp_path: Path, message: Messages) -> None:
    path = tmp_path / "timeline.csv"
    path.write_text(TIMELINE)
    evidence = evidence_of([path])
    (note,) = evidence.notes
    assert "row 6 " in note
    assert "somebody had lunch" in note
    message(note)
    assert_played(
        fault_file.parse(draft(evidence)),
        [
            ("partition", {"between": ("a1", "rest")}, 0, 40),
            ("kill", {"node": "b1"}, 60, 15),
            ("alarm", {"node": "c1", "resource": "memory"}, 90, 20),
        ],
    )


def test_json_lines_and_given_zones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "timeline.jsonl"
    rows = [{"time": 1769860800 + i, "node": f"n{i}", "zone": zone, "event": "stop", "duration": 5 + i}
            for i, zone in enumerate(["east", "east", "west"])]  # fmt: skip
    path.write_text("\n".join(map(json.dumps, rows)))
    scenario = fault_file.parse(draft(evidence_of([path])))
    assert scenario.topology.zones == {"east": 2, "west": 1}
    assert [getattr(step, "node", None) for step in scenario.schedule] == ["east1", "east2", "west1"]


def test_what_a_timeline_and_logs_both_report_is_reported_once(tmp_path: Path) -> None:
    path = tmp_path / "timeline.csv"
    path.write_text("time,node,event,duration\n2026-11-21T20:04:20Z,c1@localhost,network partition,10\n")
    scenario = made_of(LOGS / "4.3.6-cut-off", path)
    assert_played(scenario, PLAYED["4.3.6-cut-off"])


@pytest.mark.parametrize(
    ("row", "told"),
    [
        ("noon,n1,kill,", "row 2, time: 'noon'"),
        ("2026-01-31T12:00:00Z,,kill,", "row 2: "),
        ("2026-01-31T12:00:00Z,n1,kill,long", "row 2, duration: 'long'"),
    ],
)
def test_a_wrong_row_is_refused_with_its_place(tmp_path: Path, row: str, told: str, message: Messages) -> None:
    path = tmp_path / "timeline.csv"
    path.write_text(f"time,node,event,duration\n{row}\n")
    with message.of(EvidenceError) as refused:
        evidence_of([path])
    assert told in str(refused.value)


def test_files_without_any_evidence_are_refused(tmp_path: Path, message: Messages) -> None:
    (tmp_path / "a.log").write_text("nothing\n")
    with message.of(EvidenceError):
        evidence_of([tmp_path])
    with message.of(EvidenceError):
        evidence_of([tmp_path / "b.log"])


def test_what_is_empty_is_refused_next_to_what_is_not(tmp_path: Path, message: Messages) -> None:
    (tmp_path / "empty.log").write_text("")
    (tmp_path / "pages").mkdir()
    (tmp_path / "pages" / "readme.md").write_text("nothing\n")
    for path in (tmp_path / "empty.log", tmp_path / "pages"):
        with message.of(EvidenceError, hide={str(tmp_path): "FOLDER"}):
            evidence_of([LOGS / "4.0.5-cut-off", path])


def test_a_zone_of_a_node_that_no_log_names_is_refused(message: Messages) -> None:
    with message.of(EvidenceError):
        draft(evidence_of([LOGS / "4.0.5-cut-off"], net_ticktime_s=TICK_S), zones={"a": ["rabbit@nowhere"]})


def test_members_of_queues_are_nodes_too(tmp_path: Path) -> None:
    line = "2026-01-31 12:00:{:02}.000000+00:00 [info] <0.1.0> {}\n"
    vote = "queue 'q1' in vhost '/': granting vote for {'%2F_q1',rabbit@host3} with last indexterm {5,1} for term 2"
    text = line.format(1, vote) + line.format(9, "node rabbit@host2 down: net_tick_timeout")
    (tmp_path / "rabbit@host1.log").write_text(text)
    assert set(evidence_of([tmp_path]).nodes) >= {"rabbit@host2", "rabbit@host3"}


@pytest.mark.parametrize("to", [None, "incident.fault.yaml"])
def test_what_comes_next_is_reported(
    to: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([str(LOGS / "4.0.5-cut-off"), *(["--to", to] if to else [])]) == 0
    printed = capsys.readouterr()
    written = Path(to).read_text() if to else printed.out
    assert f"{written.count('FILL IN') - 1} places say FILL IN" in printed.err
    assert ("write it to a file (--to " in printed.err) == (to is None)


@pytest.mark.parametrize(
    ("text", "at"),
    [
        ("2026-01-31T12:00:00Z", 1769860800.0),
        ("2026-01-31 13:00:00,500+01:00", 1769860800.5),
        ("20260131T120000Z", 1769860800.0),
        ("1769860800", 1769860800.0),
        ("1769860800500", 1769860800.5),
        ("00:00:07", 7.0),
    ],
)
def test_times_are_read_in_every_form(text: str, at: float) -> None:
    assert seconds(text) == pytest.approx(at)


@pytest.mark.parametrize("others", [(), ("rabbit@host1",), ("rabbit@host1", "rabbit@host9"), tuple("wxyz")])
@pytest.mark.parametrize("cut", ["rabbit@host3", "rabbit@host0"])
def test_the_node_that_people_name_is_the_one_that_is_cut_off(
    tmp_path: Path, cut: str, others: tuple[str, ...]
) -> None:
    """However many of the cluster's other nodes the timeline happens to name."""
    path = tmp_path / "timeline.csv"
    killed = "".join(f"2026-01-31T12:0{i}:00Z,{node},kill,2026-01-31T12:0{i}:10Z\n" for i, node in enumerate(others, 1))
    path.write_text(f"time,node,event,end\n2026-01-31T12:00:00Z,{cut},partition,2026-01-31T12:00:40Z\n{killed}")
    text = draft(evidence_of([path]))
    called = dict(re.findall(r"# (\w+) is (\S+)", text))
    scenario = fault_file.parse(text, driver=None)
    partition = scenario.schedule[0]
    assert isinstance(partition, Partition)
    named, rest = partition.between
    assert (called[named], rest) == (cut, "rest")


#: b1 wrote nothing between the moment when a1 went on, which had been frozen, and its own end.
FROZEN_THEN_KILLED = {
    "a1": """\
05:57:20.0 node           : a1@localhost
05:57:45.0 accepting AMQP connection 127.0.0.1:40660 -> 127.0.0.1:20600
05:58:07.897 rabbit on node b1@localhost down
05:58:07.914 node b1@localhost down: connection_closed
05:58:07.926 node c1@localhost down: connection_closed
05:58:07.927 node c1@localhost up
05:58:07.928 node b1@localhost up
05:58:20.100 rabbit on node b1@localhost down
05:58:20.108 node b1@localhost down: connection_closed
05:58:25.614 node b1@localhost up
05:58:34.980 rabbit on node b1@localhost up""",
    "b1": """\
05:57:20.0 node           : b1@localhost
05:57:59.305 rabbit on node a1@localhost down
05:57:59.313 node a1@localhost down: net_tick_timeout
05:58:07.917 node a1@localhost up
05:58:33.521 Logging: configured log handlers are now ACTIVE
05:58:33.680 Starting RabbitMQ 3.10.8 on Erlang 25.0.4 [jit]
05:58:34.971 rabbit on node c1@localhost up
05:58:34.996 rabbit on node a1@localhost up""",
    "c1": """\
05:57:20.0 node           : c1@localhost
05:57:59.628 rabbit on node a1@localhost down
05:57:59.635 node a1@localhost down: net_tick_timeout
05:58:07.910 node a1@localhost up
05:58:20.103 rabbit on node b1@localhost down
05:58:20.109 node b1@localhost down: connection_closed
05:58:25.400 node b1@localhost up
05:58:34.971 rabbit on node b1@localhost up""",
}


def test_a_kill_is_not_taken_for_older_than_the_last_time_that_its_node_was_there(tmp_path: Path) -> None:
    for node, text in FROZEN_THEN_KILLED.items():
        lines = (line.partition(" ") for line in text.splitlines())
        log = "".join(f"2026-11-23 {at}+00:00 [info] <0.1.0> {told}\n" for at, _, told in lines)
        (tmp_path / f"{node}.log").write_text(log)
    assert_played(made_of(tmp_path), [("pause", {"node": "a1"}, 0, 13.8), ("kill", {"node": "b1"}, 26.3, 3.5)])


def restarted_late(log: str, *, late_s: int) -> str:
    """The broker's log where it was so long about to begin again after it had paused."""
    before, asked, after = log.partition("RabbitMQ is asked to start...\n")
    assert asked, "it paused"
    later = re.sub(r"(?m)^2026-11-21 15:56:(\d\d)", lambda found: f"2026-11-21 15:56:{int(found[1]) + late_s}", after)
    return before + asked + later


@pytest.mark.parametrize("form", [str, as_json])
def test_a_restart_that_takes_long_is_no_kill(tmp_path: Path, form: Callable[[str], str]) -> None:
    for log in (LOGS / "3.10.8-zone-cut-off").iterdir():
        text = log.read_text()
        (tmp_path / log.name).write_text(form(restarted_late(text, late_s=20) if log.stem == "c1" else text))
    assert [step.fault for step in made_of(tmp_path).schedule] == ["partition"]


@pytest.mark.parametrize("form", [str, as_json])
def test_a_process_that_begins_again_in_a_restart_was_killed(tmp_path: Path, form: Callable[[str], str]) -> None:
    """As fast as a restart would be."""
    for log in (LOGS / "3.10.8-zone-cut-off").iterdir():
        text = log.read_text().replace("<0.2294.0>", "<0.236.0>")
        (tmp_path / log.name).write_text(form(text))
    steps = [(step.fault, getattr(step, "node", None)) for step in made_of(tmp_path).schedule]
    assert steps == [("partition", None), ("kill", "c1")]
