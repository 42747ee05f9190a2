from __future__ import annotations

from typing import Any

from rabbitmq_resilience.extensions.tables.false_alarms import SUITE_ALONE, false_alarms
from rabbitmq_resilience.extensions.tables.ledger import read_ledger, runs_of
from rabbitmq_resilience.extensions.tables.runs import CAUSES, LedgerRun, read_explained
from rabbitmq_resilience.tools.locations import content
from tests.messages import Messages
from tests.tables.lines import line_with


def verdict(word: str, *, as_expected: bool = False, title: str = "A zone is cut off", **said: str) -> dict[str, Any]:
    return {
        "title": title,
        "verdict": word,
        "as_expected": as_expected or word == "VALID",
        "broker_version": "3.10.8",
        "driver": "local",
        "invariants": {"order": {"verdict": "VALID", "summary": "0 were overtaken"}}
        | {name: {"verdict": word, "summary": summary} for name, summary in said.items()},
        "assumptions": {},
    }


def rows(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("| ") and not line.startswith("| ---")]


def test_only_what_neither_rabbitmq_nor_a_client_is_to_blame_for_is_a_false_alarm(message: Messages) -> None:
    text = false_alarms(
        [
            LedgerRun("1-a", verdict("VALID")),
            LedgerRun("2-b", verdict("INVALID", as_expected=True, recovery="hangs, as is known")),
            LedgerRun("3-c", verdict("INVALID", no_loss="5 never arrived"), "rabbitmq", "it confirmed too early"),
            LedgerRun(
                "4-d",
                verdict("INVALID", throughput="48% where 50% are demanded"),
                "machine",
                "four others on the machine",
            ),
            LedgerRun("5-e", verdict("INVALID", order="3 were overtaken\nby others")),
            LedgerRun("6-f", verdict("INVALID", title="Unsafe: no confirms", no_loss="not safe, not counted")),
            LedgerRun("7-g", verdict("INVALID", stays_up="producer-0 ended"), "client", "five tries are its default"),
        ]
    )
    _, counted, total, _, *explained = rows(text)
    assert counted == "| 3.10.8 | 6 | 1 | 1 | 4 | 0 | 2 of 5 (12 to 77 %) |"
    # The known one is no false alarm, and could not have been one.
    assert total == counted.replace("3.10.8", "all")
    message(line_with(text, "4 did not"))
    about = "A zone is cut off | 3.10.8 | INVALID"
    assert [row.rsplit(" | ", 2)[0] for row in explained] == [
        f"| 3 {about} | no_loss: 5 never arrived",
        f"| 4 {about} | throughput: 48% where 50% are demanded",
        f"| 5 {about} | order: 3 were overtaken",
        f"| 7 {about} | stays_up: producer-0 ended",
    ]
    assert [row.rsplit(" | ", 1)[1] for row in explained] == [
        "it confirmed too early |",
        "four others on the machine |",
        "- |",
        "five tries are its default |",
    ]
    message("\n".join(explained))


def test_runs_are_counted_by_what_other_programs_took() -> None:
    shares = {"1-a": 0.0, "2-b": 0.0999, "3-c": 0.1, "4-d": 0.95, "5-e": None}
    runs = [LedgerRun(name, verdict("VALID") | {"others_cpu": share}) for name, share in shares.items()]
    runs[3] = LedgerRun("4-d", verdict("UNKNOWN") | {"others_cpu": 0.95})
    found = [row for row in rows(false_alarms(runs)) if "%" in row.split("|")[1]]
    assert [row.split(" | ")[:2] + row.split(" | ")[5:6] for row in found] == [
        ["| under 10 %", "2", "0"],
        ["| 10 to 40 %", "1", "0"],
        ["| over 40 %", "1", "1"],
    ]


def test_runs_during_which_only_the_suite_kept_the_machine_busy_have_a_row() -> None:
    shared = {"others_cpu": 0.3, "purpose": f"safe runs, {SUITE_ALONE}"}
    began = {"started_at": "2026-11-30T18:11:59"}
    runs = [
        LedgerRun("1-a", verdict("VALID") | shared | began),
        LedgerRun("2-b", verdict("VALID") | {"others_cpu": 0.3}),
    ]
    runs.append(LedgerRun("4-d", verdict("UNKNOWN") | shared | {"started_at": "2026-11-30T18:12:30"}))
    for title in ("A zone is cut off, five_nodes_three_zones", "Every node loses power with a backlog"):
        runs.append(LedgerRun("3-c", verdict("VALID", title=title) | shared))
    found = [row.split(" | ")[:2] for row in rows(false_alarms(runs))]
    assert ["| at most one other cluster of this suite; three or four nodes", "2"] in found
    assert ["| of these, played with commit 08eab3db or a later one", "1"] in found
    assert ["| the same; five nodes, or a power cut", "2"] in found
    assert ["| 10 to 40 %", "1"] in found


def test_a_run_that_could_not_tell_says_what_it_lacked(message: Messages) -> None:
    unknown = verdict("UNKNOWN", no_loss="not to be told without run_ended")
    unknown["assumptions"] = {"run_ended": {"verdict": "UNKNOWN", "summary": "the run ended early"}}
    text = false_alarms([LedgerRun("1-a", unknown)])
    assert "| 3.10.8 | 1 | 0 | 0 | 0 | 1 | - |" in text
    row = line_with(text, "| run_ended: the run ended early | ")
    assert row.endswith(" | - |")
    message(row)


def test_runs_are_explained_by_the_time_in_their_names() -> None:
    lines = [{"run": f"2026010{n}T000001Z-a-cut", **verdict("INVALID", no_loss="lost")} for n in (1, 2)]
    early, late = runs_of(lines, {"20260101T000001Z": {"cause": "machine", "why": "it was busy"}})
    assert (early.cause, early.why, early.is_false_alarm) == ("machine", "it was busy", True)
    assert (late.name, late.cause) == ("20260102T000001Z-a-cut", "")


def test_the_page_is_that_of_the_ledger() -> None:
    kept = (content("reports") / "false-alarms.md").read_text(encoding="utf-8")
    assert kept == false_alarms(runs_of(read_ledger(), read_explained()))


def test_every_explanation_names_a_cause_that_there_is() -> None:
    """Or none, where no cause was found."""
    explained = read_explained()
    assert explained
    assert {entry["cause"] for entry in explained.values() if "cause" in entry} == set(CAUSES)
    assert all(set(entry) <= {"cause", "why"} and entry["why"] for entry in explained.values())


def test_no_runs_at_all(message: Messages) -> None:
    text = false_alarms([LedgerRun("6-f", verdict("INVALID", title="Unsafe: confirms ignored"))])
    message(line_with(text, "0 did not"))
