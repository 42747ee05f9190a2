from __future__ import annotations

from pathlib import Path

from rabbitmq_resilience.report.log_lines import CHARACTERS_MAX, LINES_MAX, Entry, around, moments_s, read

A1 = """\
2026-11-29 06:55:51.948744+00:00 [info] <0.1259.0> Adding vhost 'run' (description: '', tags: [])
2026-11-29 06:56:04.639799+00:00 [error] <0.533.0>
2026-11-29 06:56:04.639799+00:00 [error] <0.533.0> ** Node b1@localhost not responding **
2026-11-29 06:56:04.639799+00:00 [error] <0.533.0> ** Removing (timedout) connection **
a line of no head
2026-11-29 06:56:05.000000+00:00 [info] <0.1352.0> queue 'q1' in vhost 'run': Leader monitor down, election timeout
2026-11-29 06:56:05.100000+00:00 [info] <0.1353.0> queue 'q2' in vhost 'run': Leader monitor down, election timeout
"""
B1 = """\
2026-11-29 06:56:04.844253+00:00 [info] <0.1055.0> rabbit on node a1@localhost down
2026-11-29 06:56:04.900000+00:00 [info] <0.1056.0> accepting AMQP connection <0.1.0> (127.0.0.1:1 -> 127.0.0.1:2)
2026-11-29 06:59:04.844253+00:00 [info] <0.1055.0> node a1@localhost up
"""


def test_entries_are_merged_by_time_and_lines_of_one_head_are_one(tmp_path: Path) -> None:
    for name, text in (("a1", A1), ("b1", B1)):
        (tmp_path / f"{name}.log").write_text(text)
    files = {name: tmp_path / f"{name}.log" for name in ("a1", "b1")}
    entries = read(files, started_at="2026-11-29T06:55:51.000+00:00")
    assert [(round(entry.at_s, 2), entry.node) for entry in entries] == [
        (0.95, "a1"),
        (13.64, "a1"),
        (13.84, "b1"),
        (13.9, "b1"),
        (14.0, "a1"),
        (14.1, "a1"),
        (193.84, "b1"),
    ]
    assert entries[1].text == (
        "** Node b1@localhost not responding ** ** Removing (timedout) connection ** a line of no head"
    )
    assert around(entries, 7.0, [6.0]) == [
        "+13.6 s  a1  [error] ** Node b1@localhost not responding ** ** Removing (timedout) connection ** "
        "a line of no head",
        "+13.8 s  b1  [info] rabbit on node a1@localhost down",
        "+14.0 s  a1  [info] queue 'q1': Leader monitor down, election timeout (and 1 more like it)",
    ]


def test_what_explains_most_is_kept_in_order() -> None:
    plain = [Entry(10 + n / 5, "a1", "warning", f"a client {'x' * n} is gone") for n in range(20)]
    telling = Entry(11.12, "b1", "error", "Mnesia: inconsistent_database, running_partitioned_network")
    lines = around(sorted([*plain, telling], key=lambda entry: entry.at_s), 11.0, [])
    assert len(lines) == LINES_MAX
    assert str(telling) in lines
    assert lines == sorted(lines)


def test_what_followed_from_the_last_fault_before_is_looked_at() -> None:
    early, late = (Entry(at_s, "a1", "error", f"node b{at_s:.0f} down") for at_s in (12.0, 95.0))
    assert around([early, late], 93.0, [10.0, 99.0]) == [str(early), str(late)]
    assert around([early, late], 93.0, []) == [str(late)]


def test_moments_are_read_from_texts() -> None:
    assert moments_s(["a1 did not pause from +6.973 s on; 23.25 s are allowed", "at +9 s"]) == [6.973, 9.0]


def test_long_entries_are_cut(tmp_path: Path) -> None:
    (tmp_path / "a1.log").write_text(f"2026-11-29 06:56:04.639799+00:00 [error] <0.1.0> {'crash ' * 100}\n")
    (entry,) = read({"a1": tmp_path / "a1.log"}, started_at="2026-11-29T06:55:51+00:00")
    assert len(entry.text) == CHARACTERS_MAX
    assert entry.text.endswith("…")
