from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

import pytest

from rabbitmq_resilience.checkers.facts import Facts
from rabbitmq_resilience.checkers.fault_timeline import FaultTimeline
from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.pauses import Pauses
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.history.events import Event
from tests.invariants.literal import (
    FIVE,
    FOUR,
    ORIGIN_US,
    THREE,
    apart,
    cluster,
    fault,
    history,
    node_states,
    phases,
    publish,
    queues,
    us,
)
from tests.messages import Messages

A = apart(["a1"], ["b1", "c1"])
#: net_ticktime is 4 s, so a cut is noticed after 3 to 5 s, and with 5 s of margin a node has 10 s to pause.
CUT = fault(20, 50, cut=A)

Unlike = Mapping[str, Sequence[tuple[float, float, str]]]
PAUSED: Unlike = {"a1": [(25, 52, "paused")]}


def check(
    steps: Iterable[list[Event]],
    unlike: Unlike,
    nodes: Sequence[str] = THREE,
    *,
    version: str = "3.10.8",
    mode: str = "pause_minority",
    margin_s: float | None = 5,
) -> Finding:
    seen = node_states(nodes, unlike)
    events = [cluster(nodes, version=version, mode=mode), phases(), seen, *steps]
    return PartitionMode(margin_s=margin_s).check(history((), (), events))


SEVEN = ("a1", "a2", "a3", "b1", "b2", "c1", "c2")


@pytest.mark.parametrize(
    ("nodes", "steps", "must", "may"),
    [
        pytest.param(THREE, [], "", "", id="nothing happens"),
        pytest.param(THREE, [fault(20, 50, cut=A)], "a1", "a1", id="one of three cut off"),
        pytest.param(THREE, [fault(20, 50, cut=apart(["a1"], ["b1", "c1"], one_way=True))], "a1", "a1", id="one way"),
        pytest.param(THREE, [fault(20, 22, cut=A)], "", "", id="too short to be noticed"),
        pytest.param(THREE, [fault(20, 25, cut=A)], "", "a1", id="noticed or not"),
        pytest.param(THREE, [fault(20, 50, cut=[*A, *apart(["b1"], ["c1"])])], "a1 b1 c1", "a1 b1 c1", id="all alone"),
        pytest.param(THREE, [fault(20, 50, name="latency", slow=A)], "", "", id="only slow"),
        pytest.param(THREE, [fault(20, 50, down=["a1"])], "", "a1", id="one killed"),
        pytest.param(THREE, [fault(20, 50, down=["a1", "b1"])], "c1", "a1 b1 c1", id="two killed"),
        pytest.param(
            THREE, [fault(20, 50, cut=A), fault(20, 50, step=1, down=["b1"])], "a1 c1", "a1 b1 c1", id="cut and kill"
        ),
        pytest.param(FOUR, [fault(20, 50, cut=apart(FOUR[:2], FOUR[2:]))], "a1 a2 b1 b2", "a1 a2 b1 b2", id="even"),
        pytest.param(FIVE, [fault(20, 50, cut=apart(FIVE[:2], FIVE[2:]))], "a1 a2", "a1 a2", id="two of five"),
        pytest.param(FIVE, [fault(20, 50, down=["c1"])], "", "c1", id="one of five killed"),
        pytest.param(SEVEN, [fault(20, 50, cut=apart(SEVEN[:3], SEVEN[3:]))], "a1 a2 a3", "a1 a2 a3", id="3 of 7"),
        pytest.param(
            THREE,
            [fault(20, 26, cut=A), fault(26, 32, step=1, cut=A)],
            "a1",
            "a1",
            id="two cuts in one",
        ),
        pytest.param(THREE, [fault(20, 26, cut=A), fault(30, 36, step=1, cut=A)], "", "a1", id="two shorter cuts"),
        pytest.param(THREE, [fault(20, 50, cut=A, states=("skipped",))], "", "", id="skipped"),
    ],
)
def test_prediction(nodes: Sequence[str], steps: list[list[Event]], must: str, may: str) -> None:
    facts = Facts(history((), (), [cluster(nodes), phases(), *steps]).events)
    assert facts.cluster is not None
    pauses = Pauses(FaultTimeline(facts, facts.cluster, facts.steps), (ORIGIN_US, us(95)), margin_s=5)
    assert " ".join(node for node in nodes if not pauses.must[node].empty) == must
    assert " ".join(node for node in nodes if not pauses.may[node].empty) == may


def test_empty() -> None:
    assert PartitionMode().check(history()).verdict is Verdict.UNKNOWN


def test_sane_nothing_happens() -> None:
    assert check([], {}).verdict is Verdict.VALID


def test_sane_minority_pauses_and_returns() -> None:
    finding = check([CUT], PAUSED)
    assert finding.verdict is Verdict.VALID
    assert finding.numbers == {
        "had_to_pause": "a1",
        "paused_after_s_max": 5,
        "returned_after_s_max": 2,
        "restarted": "",
        "queues_confirmed_on_both_sides": 0,
        "differences": 0,
    }


def test_sane_even_split_pauses_all() -> None:
    cut = fault(20, 50, cut=apart(FOUR[:2], FOUR[2:]))
    assert check([cut], {node: [(25, 53, "paused")] for node in FOUR}, FOUR).verdict is Verdict.VALID


def test_pathological_minority_does_not_pause(message: Messages) -> None:
    finding = check([CUT], {})
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "a1" in finding.examples[0]
    assert "step 0" in finding.examples[0]


def test_pathological_pauses_too_late(message: Messages) -> None:
    finding = check([CUT], {"a1": [(35, 52, "paused")]})
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "a1" in finding.examples[0]
    assert "15 s" in finding.examples[0]


def test_pathological_comes_back_before_the_cut_is_healed(message: Messages) -> None:
    finding = check([CUT], {"a1": [(25, 40, "paused")]})
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "a1" in finding.examples[0]
    assert "+40.000 s" in finding.examples[0]


def test_pathological_majority_pauses(message: Messages) -> None:
    finding = check([CUT], {**PAUSED, "b1": [(26, 30, "paused")]})
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "b1" in finding.examples[0]
    assert "+26.000 s" in finding.examples[0]


def test_pathological_pauses_before_anything_happens() -> None:
    assert check([CUT], {"a1": [(15, 18, "paused"), (25, 52, "paused")]}).verdict is Verdict.INVALID


def test_pathological_pauses_at_a_cut_too_short_to_notice() -> None:
    assert check([fault(20, 22, cut=A)], {"a1": [(22, 30, "paused")]}).verdict is Verdict.INVALID


def test_pathological_latency_alone_pauses() -> None:
    assert check([fault(20, 50, name="latency", slow=A)], PAUSED).verdict is Verdict.INVALID


def test_pathological_even_split_leaves_one_half_running() -> None:
    cut = fault(20, 50, cut=apart(FOUR[:2], FOUR[2:]))
    finding = check([cut], {node: [(25, 53, "paused")] for node in FOUR[:2]}, FOUR)
    assert finding.verdict is Verdict.INVALID
    assert len(finding.examples) == 2


def test_pathological_pauses_again_after_its_return() -> None:
    assert check([CUT], {"a1": [(25, 52, "paused"), (65, 75, "paused")]}).verdict is Verdict.INVALID


def test_pathological_pause_on_a_version_where_the_mode_has_no_effect() -> None:
    assert check([CUT], PAUSED, version="4.3.6").verdict is Verdict.INVALID
    assert check([CUT], {}, version="4.3.6").verdict is Verdict.VALID


@pytest.mark.parametrize(("version", "paused_after_s_max"), [("3.10.8", 15), ("4.0.5", 22)])
def test_a_node_waits_for_silent_peers_and_from_4_0_on_for_dead_ones(version: str, paused_after_s_max: float) -> None:
    def verdict(paused_after_s: float) -> Verdict:
        paused: Unlike = {"a1": [(20 + paused_after_s, 52, "paused")]}
        return check([CUT], paused, version=version, margin_s=None).verdict

    assert verdict(paused_after_s_max - 1) is Verdict.VALID
    assert verdict(paused_after_s_max + 1) is Verdict.INVALID


def test_legal_cut_in_between_pauses_or_not() -> None:
    cut = fault(20, 25, cut=A)
    assert check([cut], {}).verdict is Verdict.VALID
    assert check([cut], {"a1": [(25, 31, "paused")]}).verdict is Verdict.VALID


def test_legal_killed_node_looks_paused_while_it_boots() -> None:
    seen = {"a1": [(20.0, 50.0, "down"), (50.0, 70.0, "paused")]}
    assert check([fault(20, 50, name="kill", down=["a1"])], seen).verdict is Verdict.VALID


def test_legal_kill_long_after_the_cut_pauses_at_once() -> None:
    steps = [fault(20, 70, cut=apart(FIVE[:2], FIVE[2:])), fault(40, 70, step=1, name="kill", down=["c1"])]
    at_once = {"b1": [(40.5, 75, "paused")], "b2": [(40.5, 75, "paused")], "c1": [(40.5, 80, "down")]}
    minority = {"a1": [(25, 75, "paused")], "a2": [(25, 75, "paused")]}
    assert check(steps, {**minority, **at_once}, FIVE).verdict is Verdict.VALID


def test_a_node_that_starts_when_it_is_cut_off_need_not_pause() -> None:
    again = fault(53, 69, step=1, cut=A)
    still_away: Unlike = {"a1": [(25.0, 60.0, "paused")]}
    assert check([CUT, again], still_away).verdict is Verdict.VALID
    back: Unlike = {"a1": [(25.0, 52.0, "paused")]}
    assert check([CUT, again], back).verdict is Verdict.INVALID


AROUND = fault(20, 50, cut=apart(["a1"], ["b1"]))


def test_partial_cut_pauses_at_least_one_of_the_two() -> None:
    assert check([AROUND], PAUSED).verdict is Verdict.VALID
    everybody: Unlike = {node: [(26, 52, "paused")] for node in THREE}
    assert check([AROUND], everybody).verdict is Verdict.VALID


def test_pathological_partial_cut_pauses_no_one(message: Messages) -> None:
    finding = check([AROUND], {})
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "a1" in finding.examples[0]
    assert "b1" in finding.examples[0]


def test_pathological_partial_cut_pauses_only_the_one_in_between() -> None:
    assert check([AROUND], {"c1": [(26, 52, "paused")]}).verdict is Verdict.INVALID


def test_sane_autoheal_restarts_one_side_once_the_cut_is_healed() -> None:
    finding = check([CUT], {"a1": [(52, 58, "paused")]}, mode="autoheal")
    assert (finding.verdict, finding.numbers["restarted"]) == (Verdict.VALID, "a1")
    assert check([CUT], {n: [(52, 58, "paused")] for n in ("b1", "c1")}, mode="autoheal").verdict is Verdict.VALID


@pytest.mark.parametrize(
    "unlike",
    [
        pytest.param({}, id="nobody restarts"),
        pytest.param({n: [(52, 58, "paused")] for n in THREE}, id="everybody restarts"),
        pytest.param({"b1": [(52, 58, "paused")]}, id="half a side restarts"),
        pytest.param({"a1": [(30, 58, "paused")]}, id="pauses meanwhile"),
    ],
)
def test_pathological_autoheal(unlike: Unlike) -> None:
    assert check([CUT], unlike, mode="autoheal").verdict is Verdict.INVALID


def test_sane_and_pathological_ignore() -> None:
    assert check([CUT], {}, mode="ignore").verdict is Verdict.VALID
    assert check([CUT], {"a1": [(52, 58, "paused")]}, mode="ignore").verdict is Verdict.INVALID


def test_a_closed_connection_is_noticed_at_once() -> None:
    at_once: Unlike = {"a1": [(20.5, 24, "paused")]}
    assert check([fault(20, 20.1, cut=A, sudden=True)], at_once).verdict is Verdict.VALID
    assert check([fault(20, 20.1, cut=A)], at_once).verdict is Verdict.INVALID


def test_flapping_may_pause_and_need_not() -> None:
    flapping = fault(20, 50, cut=A, intermittent=True)
    assert check([flapping], {}).verdict is Verdict.VALID
    assert check([flapping], PAUSED).verdict is Verdict.VALID


def confirmed_by(*nodes: int, at_s: float, mode: str, kind: str = "quorum") -> Finding:
    away: Unlike = {"autoheal": {"a1": [(52.0, 58.0, "paused")]}}.get(mode, {})
    events = [cluster(mode=mode), phases(), queues("q1", kind=kind), node_states(unlike=away), CUT]
    publishes = [publish(n, at_s) | {"node": node} for n, node in enumerate(nodes)]
    return PartitionMode().check(history(publishes, (), events))


def test_pathological_quorum_confirms_in_a_minority(message: Messages) -> None:
    finding = confirmed_by(0, at_s=40, mode="autoheal")
    assert finding.verdict is Verdict.INVALID
    message(finding.examples[0])
    assert "q1" in finding.examples[0]
    assert "a1" in finding.examples[0]


def test_sane_confirms_where_the_majority_is_or_of_what_was_sent_before_the_cut() -> None:
    assert confirmed_by(1, at_s=40, mode="autoheal").verdict is Verdict.VALID
    assert confirmed_by(0, at_s=19.999, mode="autoheal").verdict is Verdict.VALID


def test_legal_mirrored_confirms_on_both_sides_of_a_split() -> None:
    finding = confirmed_by(0, 1, at_s=40, mode="ignore", kind="mirrored")
    assert (finding.verdict, finding.numbers["queues_confirmed_on_both_sides"]) == (Verdict.VALID, 1)


@pytest.mark.parametrize("nodes", [(0,), (1, 2)])
def test_a_queue_that_may_confirm_on_both_sides_and_did_on_one_is_not_counted(nodes: tuple[int, ...]) -> None:
    finding = confirmed_by(*nodes, at_s=40, mode="ignore", kind="mirrored")
    assert (finding.verdict, finding.numbers["queues_confirmed_on_both_sides"]) == (Verdict.VALID, 0)


def test_a_node_that_still_boots_leaves_the_others_in_a_minority() -> None:
    """b1 dies while a1, which was started again, is not back yet: c1 is alone."""
    kills = [fault(20, 22, name="kill", down=["a1"]), fault(24, 26, step=1, name="kill", down=["b1"])]
    away: dict[str, Sequence[tuple[float, float, str]]] = {"a1": [(20, 30, "paused")], "b1": [(24, 32, "paused")]}
    assert check(kills, {**away, "c1": [(25, 31, "paused")]}).verdict is Verdict.VALID
    assert check(kills, {**away, "c1": [(60, 65, "paused")]}).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("becomes", "feature_flags", "verdict"),
    [
        ("4.3.6", False, Verdict.VALID),
        ("rabbitmq:4.3-management", False, Verdict.VALID),
        ("khepri_db", False, Verdict.VALID),
        ("team/rabbitmq@sha256:0a", False, Verdict.VALID),  # nobody can say what it is
        ("4.2.9", False, Verdict.INVALID),
        ("4.2.9", True, Verdict.VALID),  # its stable feature flags include khepri_db
        ("4.1.9", True, Verdict.INVALID),
        ("rabbitmq:4.2-management", False, Verdict.INVALID),
        ("maintenance_mode_status", False, Verdict.INVALID),
    ],
)
def test_no_pause_is_demanded_once_the_modes_may_have_no_effect(
    becomes: str, feature_flags: bool, verdict: Verdict
) -> None:
    changed = fault(10, 15, step=1, name="upgrade", operation=True, becomes=becomes, feature_flags=feature_flags)
    assert check([CUT, changed], {}, version="4.1.8").verdict is verdict


def test_what_was_demanded_before_an_upgrade_still_is() -> None:
    changed = fault(55, 58, step=1, name="upgrade", operation=True, becomes="4.3.6")
    assert check([CUT, changed], {}, version="4.2.9").verdict is Verdict.INVALID
    assert check([CUT, changed], PAUSED, version="4.2.9").verdict is Verdict.VALID


@pytest.mark.parametrize(("ends_s", "verdict"), [(15, Verdict.INVALID), (60, Verdict.VALID)])
def test_once_the_modes_surely_have_no_effect_no_node_may_pause(ends_s: float, verdict: Verdict) -> None:
    changed = fault(10, ends_s, step=1, name="upgrade", operation=True, becomes="4.3.6")
    assert check([CUT, changed], PAUSED, version="4.2.9").verdict is verdict


@pytest.mark.parametrize(("becomes", "verdict"), [("4.0.9", Verdict.VALID), ("3.13.9", Verdict.INVALID)])
def test_a_node_may_take_as_long_as_those_of_the_newest_version(becomes: str, verdict: Verdict) -> None:
    """5 s to notice and 10 s more, and 7 s more from 4.0 on."""
    changed = fault(5, 8, step=1, name="upgrade", operation=True, becomes=becomes)
    seen = check([CUT, changed], {"a1": [(40, 52, "paused")]}, version="3.13.7", margin_s=None)
    assert seen.verdict is verdict
