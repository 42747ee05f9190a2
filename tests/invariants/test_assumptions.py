from __future__ import annotations

from collections.abc import Sequence

import pytest

from rabbitmq_resilience.checkers import columns
from rabbitmq_resilience.checkers.assumptions import (
    DrainComplete,
    FaultsBegun,
    FaultsProven,
    LoadNotZero,
    RunEnded,
    Watched,
)
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.events import Event
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import cluster, deliver, event, fault, history, node_states, phases, publish, us
from tests.messages import Messages

DONE = ("injecting", "injected", "proven", "healing", "healed", "heal_proven")


@pytest.mark.parametrize(
    ("states", "verdict"),
    [
        (DONE, Verdict.VALID),
        (("injecting", "injected", "unproven", "healing", "healed", "heal_proven"), Verdict.UNKNOWN),
        (("injecting", "injected", "healing", "healed", "heal_proven"), Verdict.UNKNOWN),
        (("injecting",), Verdict.UNKNOWN),
        (DONE[:-1], Verdict.UNKNOWN),
        ((*DONE[:-1], "heal_unproven"), Verdict.UNKNOWN),
        (DONE[:3], Verdict.UNKNOWN),
        ((*DONE, "unproven"), Verdict.UNKNOWN),
        ((*DONE, "heal_unproven"), Verdict.UNKNOWN),
        (("skipped", "injecting"), Verdict.UNKNOWN),
    ],
)
def test_faults_proven(states: Sequence[str], verdict: Verdict, message: Messages) -> None:
    finding = FaultsProven().check(history((), (), [fault(20, 30, states=states)]))
    assert finding.verdict is verdict
    message(finding.summary)
    assert finding.numbers == {"faults": 1}


def test_faults_proven_shows_what_the_proof_lacked(message: Messages) -> None:
    unproven = event(20, "fault", step=3, fault="latency", state="unproven", effect={}, detail="probe took 2 ms")
    finding = FaultsProven().check(history((), (), [unproven, fault(20, 30, step=4)]))
    message(finding.summary)
    assert "step 3" in finding.summary
    assert "latency" in finding.summary
    assert "2 ms" in finding.summary


def test_a_step_that_never_began_has_nothing_to_prove_and_is_reported(message: Messages) -> None:
    why = "follower:q1: no node follows the leader of the queue at this moment"
    skipped = event(20, "fault", step=3, fault="kill", state="skipped", effect=None, detail=why)
    recorded = history((), (), [skipped, fault(20, 30, step=4)])
    assert FaultsProven().check(recorded).verdict is Verdict.VALID
    finding = FaultsBegun().check(recorded)
    assert finding.verdict is Verdict.UNKNOWN
    assert why in finding.summary
    message(finding.summary)
    assert "step 3" in finding.summary
    assert FaultsBegun().check(history((), (), [fault(20, 30, step=4)])).verdict is Verdict.VALID


@pytest.mark.parametrize(
    ("mode", "verdict"),
    [("ignore", Verdict.UNKNOWN), ("autoheal", Verdict.VALID), ("pause_minority", Verdict.VALID)],
)
def test_what_an_operator_was_to_mend_is_broken_by_no_one(mode: str, verdict: Verdict) -> None:
    skipped = event(20, "fault", step=3, fault="stop", state="skipped", effect=None, detail="never critical")
    recorded = history((), (), [cluster(mode=mode), skipped, fault(20, 30, step=4)])
    assert FaultsProven().check(recorded).verdict is verdict


def test_no_faults_are_all_proven() -> None:
    assert FaultsProven().check(history()).verdict is Verdict.VALID


def test_run_ended() -> None:
    check = RunEnded().check
    assert check(history((), (), phases())).verdict is Verdict.VALID
    assert check(history((), (), phases(steady=0, chaos=10))).verdict is Verdict.UNKNOWN
    noted = check(history((), (), [phases(steady=0), event(5, "note", detail="no port is free")]))
    assert (noted.verdict, noted.examples) == (Verdict.UNKNOWN, ("no port is free",))


@pytest.mark.parametrize("at_s", [50, 96])
def test_a_run_that_ended_early_is_not_played_to_its_end_whenever_that_was(at_s: float) -> None:
    """Also where something goes wrong after the last phase: nobody knows what it kept from being seen."""
    early = event(at_s, "note", detail="the run ended early: KeyboardInterrupt: ")
    other = event(96, "note", detail="the proxy a1-b1 hung and was made anew, which ended its connections")
    finding = RunEnded().check(history((), (), [phases(), early, other]))
    assert (finding.verdict, finding.examples) == (Verdict.UNKNOWN, ("the run ended early: KeyboardInterrupt: ",))
    assert RunEnded().check(history((), (), [phases(), other])).verdict is Verdict.VALID


@pytest.mark.parametrize("rows_together", [1, 1000])
def test_the_load_is_counted(rows_together: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(columns, "ROWS_TOGETHER", rows_together)
    rows = [publish(n, at_s) for n, at_s in enumerate((1, 5, 15))], [deliver(n) for n in (0, 1, 2, 2)]
    finding = LoadNotZero().check(history(*rows, phases(), batch_rows=1))
    assert finding.numbers == {"confirmed_steady": 2, "deliveries": 4}
    unchanged = LoadNotZero().check(history(*rows, phases(steady=0, drain=90), batch_rows=1))
    assert unchanged.numbers == {"confirmed_steady": 3, "deliveries": 4}


def test_load_not_zero() -> None:
    check = LoadNotZero().check
    assert check(history([publish(0, 5)], [deliver(0, 6)], phases())).verdict is Verdict.VALID
    assert check(history()).verdict is Verdict.UNKNOWN
    assert check(history([publish(0, 5)], [], phases())).verdict is Verdict.UNKNOWN
    assert check(history([publish(0, 15)], [deliver(0, 16)], phases())).verdict is Verdict.UNKNOWN
    assert check(history([publish(0, 5, Outcome.NACKED)], [deliver(0, 6)], phases())).verdict is Verdict.UNKNOWN
    assert check(history([publish(0, 5)], [deliver(0, 6)])).verdict is Verdict.UNKNOWN
    assert check(history([publish(0, 5)], [deliver(0, 6, intact=False)], phases())).verdict is Verdict.UNKNOWN


def test_drain_complete(message: Messages) -> None:
    def drain(complete: bool, at_s: float = 94) -> Event:
        return event(at_s, "drain", complete=complete, confirmed=5, received=4, unconsumed=1, detail="1 left in q1")

    assert DrainComplete().check(history((), (), [drain(True)])).verdict is Verdict.VALID
    finding = DrainComplete().check(history((), (), [drain(False)]))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "q1" in finding.summary
    assert DrainComplete().check(history()).verdict is Verdict.UNKNOWN
    assert DrainComplete().check(history((), (), [drain(False, 93), drain(True)])).verdict is Verdict.VALID


def test_watched(message: Messages) -> None:
    assert Watched().check(history()).verdict is Verdict.UNKNOWN
    assert Watched().check(history((), (), [phases(), node_states()])).verdict is Verdict.VALID
    late = [sight for sight in node_states() if not us(40) < sight.t_us < us(58)]
    finding = Watched().check(history((), (), [phases(), late]))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
    assert "+40.000 s" in finding.summary
    assert finding.numbers["unwatched_s"] == 18
    early_end = [sight for sight in node_states() if sight.t_us < us(15)]
    assert Watched().check(history((), (), [phases(), early_end])).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("at_s", "last_look_s", "last_event_s", "verdict"),
    [
        pytest.param({"steady": 0, "drain": 90, "end": 95}, 85, 95, Verdict.UNKNOWN, id="to the end"),
        pytest.param({"steady": 0, "drain": 20}, 20, 90, Verdict.VALID, id="to the drain if there is no end"),
        pytest.param({"steady": 0}, 20, 21, Verdict.VALID, id="to the last event of a run that was broken off"),
        pytest.param({"steady": 0}, 20, 40, Verdict.UNKNOWN, id="which is long after the last look"),
        pytest.param({"chaos": 10}, 95, 95, Verdict.UNKNOWN, id="never steady"),
    ],
)
def test_how_long_nodes_must_be_watched(
    at_s: dict[str, float], last_look_s: float, last_event_s: float, verdict: Verdict
) -> None:
    events = [phases(**at_s), node_states(end_s=last_look_s), event(last_event_s, "note", detail="")]
    assert Watched().check(history((), (), events)).verdict is verdict
