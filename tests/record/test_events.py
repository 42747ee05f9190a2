"""Events are read as they were written, and what is no event is told."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from rabbitmq_resilience.history.event_log import EventLog, examine_events, read_events
from rabbitmq_resilience.history.events import (
    KINDS,
    ClusterEvent,
    DeclarationEvent,
    Effect,
    Event,
    EventError,
    FaultEvent,
    NoteEvent,
    event_of,
)
from rabbitmq_resilience.model.links import Link
from tests.corpus.reading import first_runs
from tests.messages import Messages

NAMES = st.sampled_from(["a1", "b1", "publisher:0", "consumer:2"])
LINKS = st.frozensets(st.builds(Link, NAMES, NAMES))
EFFECTS = st.builds(
    Effect,
    nodes_down=st.lists(NAMES).map(tuple),
    links_cut=LINKS,
    links_slow=LINKS,
    nodes_alarmed=st.lists(NAMES).map(tuple),
    alarm=st.sampled_from(["", "memory", "disk"]),
)
CHURNED = st.dictionaries(st.text(max_size=5), st.integers(0, 9), max_size=2)
#: Fields that early records lack.
LATER = {
    "addresses",
    "confirm_timeout_s",
    "dead_letters",
    "detector_poll_s",
    "erlang_version",
    "in_flight",
    "priorities",
    "publishers",
    "reconnect",
    "services",
    "read_at_drain",
    "shards",
    "silent",
    "stored_bytes",
    "waited_s",
    "over_s",
    "by",
}
PLAIN = st.dictionaries(st.text(max_size=5), st.none() | st.integers() | st.text(max_size=5), max_size=3)
ROWS = st.dictionaries(st.text(max_size=5), PLAIN, max_size=3)
TRIPS = st.dictionaries(st.text(max_size=5), st.lists(st.none() | st.floats(0, 1e6), max_size=3), max_size=2)
COUNTS = st.dictionaries(st.sampled_from(["running", "flow", "blocked"]), st.integers(0, 20_000))
OF_APPLICATIONS: dict[str, st.SearchStrategy[Any]] = {"fields": PLAIN, "processes": ROWS}
EVENTS = st.one_of(
    [
        st.builds(
            kind,
            **{
                name: {"effect": st.none() | EFFECTS, "queues": ROWS, "nodes": PLAIN, "states": PLAIN}.get(
                    name, st.none() if name == "pause_if_all_down" else st.nothing()
                )
                for name in ("effect", "queues", "nodes", "states", "pause_if_all_down")
                if name in kind.__dataclass_fields__
            },
            **{
                name: st.just([])
                for name in ("variable_rate", "variable_processing", "shards", "services")
                if name in kind.__dataclass_fields__
            },
            **{name: st.just({}) for name in ("memory_bytes", "partitions") if name in kind.__dataclass_fields__},
            **({"connections": COUNTS} if "connections" in kind.__dataclass_fields__ else {}),
            **({"trips_ms": TRIPS} if "trips_ms" in kind.__dataclass_fields__ else {}),
            **{name: CHURNED for name in ("done", "failed") if name in kind.__dataclass_fields__},
            **{name: values for name, values in OF_APPLICATIONS.items() if name in kind.__dataclass_fields__},
        )
        for kind in KINDS.values()
    ]
)


@given(EVENTS)
def test_what_is_written_is_read_again(event: Event) -> None:
    line = json.dumps(event.as_fields(), allow_nan=True)
    read = event_of(json.loads(line))
    assert type(read) is type(event)
    assert json.dumps(read.as_fields()) == line


def test_a_log_has_the_moment_of_each_event(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        written = [
            log.record("note", detail="one"),
            log.record("phase", phase="steady"),
            log.record("clocks", wall_us=3),
        ]
    assert list(read_events(tmp_path / "events.jsonl")) == written
    assert [event.t_us for event in written] == sorted(event.t_us for event in written)


def test_a_field_that_a_kind_has_not_is_not_written(tmp_path: Path) -> None:
    with EventLog(tmp_path / "events.jsonl") as log:
        with pytest.raises(TypeError):
            log.record("note", detail="one", shade="red")
        with pytest.raises(KeyError):
            log.record("rumour", detail="one")
    assert (tmp_path / "events.jsonl").read_text() == ""


@pytest.mark.parametrize(
    ("told", "lacks"),
    [
        ({"t_us": 1, "kind": "fault", "fault": "kill"}, ("'fault'", "step", "state")),
        ({"kind": "note"}, ("'note'", "t_us")),
        (
            {"t_us": 1, "kind": "cluster", "nodes": {}},
            ("'cluster'", "partition_handling", "net_ticktime_s", "broker"),
        ),
    ],
)
def test_what_an_event_lacks_is_reported(told: dict[str, Any], lacks: tuple[str, ...], message: Messages) -> None:
    with message.of(EventError) as caught:
        event_of(told)
    assert all(name in str(caught.value) for name in lacks)


def test_kinds_of_later_versions_are_let_pass() -> None:
    assert event_of({"t_us": 1, "kind": "rumour", "detail": "of later"}) == Event(t_us=1)
    assert event_of({"t_us": 1, "kind": "note", "detail": "x", "later": 1}) == NoteEvent(t_us=1, detail="x")


def test_early_records_are_understood() -> None:
    """They did not say who drove the cluster, or what an effect leaves alone."""
    fields = {"t_us": 1, "kind": "fault", "step": 0, "state": "injected"}
    event = event_of({**fields, "fault": "kill", "effect": {"nodes_down": ["a1"], "links_cut": [["a1", "b1"]]}})
    assert isinstance(event, FaultEvent)
    assert event.effect == Effect(("a1",), frozenset({Link("a1", "b1")}))
    assert event_of({**fields, "fault": "kill", "effect": {}}) == FaultEvent(
        t_us=1, step=0, fault="kill", state="injected"
    )
    cluster = {"nodes": {"a1": "a"}, "partition_handling": "ignore", "net_ticktime_s": 5, "broker_version": "3.10.8"}
    told = event_of({"t_us": 1, "kind": "cluster", **cluster})
    assert isinstance(told, ClusterEvent)
    assert (told.driver, told.khepri, told.started_at) == (None, False, None)
    assert DeclarationEvent.kind == "declaration"


RECORDED = sorted(first_runs().rglob("*.jsonl"))


def test_no_field_of_a_recorded_run_is_passed_over() -> None:
    assert RECORDED
    passed_over = []
    for file in RECORDED:
        for line in file.read_text(encoding="utf-8").splitlines():
            told = json.loads(line)
            read = event_of(told).as_fields()
            plain = {name: value for name, value in told.items() if name not in ("effect", "n")}
            same = {name: read.get(name) for name in plain} == plain
            if read.keys() - LATER != told.keys() - {*LATER, "n"} or not same:
                passed_over.append((file, line))
    assert passed_over == []


def test_lines_are_numbered_by_their_writers(tmp_path: Path) -> None:
    """A worker writes to its file, and who killed it too."""
    path = tmp_path / "consumer-0.jsonl"
    for event in ("started", "killed", "started"):
        with EventLog(path) as log:
            log.record("worker", worker="consumer-0", event=event)
            log.record("note", detail="and so on")
    assert [json.loads(line)["n"] for line in path.read_text().splitlines()] == list(range(6))
    assert examine_events(path)[1] == []


@pytest.mark.parametrize("gone", range(4))
def test_a_line_that_is_gone_from_the_middle_is_noticed(tmp_path: Path, gone: int, message: Messages) -> None:
    path = tmp_path / "events.jsonl"
    with EventLog(path) as log:
        written = [log.record("note", detail=str(i)) for i in range(5)]
    lines = path.read_text().splitlines(keepends=True)
    path.write_text("".join(lines[:gone] + lines[gone + 1 :]))
    events, troubles = examine_events(path)
    assert events == written[:gone] + written[gone + 1 :]
    (trouble,) = troubles
    assert path.name in trouble
    assert trouble.index(str(gone)) < trouble.index(str(gone + 1))
    message(trouble)


@pytest.mark.parametrize(
    ("text", "troubled"),
    [
        ("", True),
        ('{"n":0,"t_us":1,"kind":"no', True),
        ("{\n", True),
        ("[1]\n", True),
        ('"note"\n', True),
        ('{"n":0,"t_us":"late","kind":"note"}\n', True),
        ('{"n":0,"t_us":1,"kind":["note"]}\n', True),
        ('{"n":0,"t_us":1,"kind":"fault","step":0,"fault":"kill","state":"injected","effect":[1]}\n', False),
        ("\x00\x80\n", True),
    ],
)
def test_a_damaged_file_is_reported_and_raises_no_other_error(
    tmp_path: Path, text: str, troubled: bool, message: Messages
) -> None:
    path = tmp_path / "events.jsonl"
    path.write_text(text, encoding="latin-1")
    _, troubles = examine_events(path)
    assert bool(troubles) is troubled
    message("; ".join(troubles), hide={r"(holds no event: )(?!an event).*": r"\1WHY"})
    if troubled and text.endswith("\n"):
        assert "line 1," in troubles[0]
        with pytest.raises(EventError, match=r"events\.jsonl, line 1"):
            list(read_events(path))
