"""Where partition_mode begins and ends to look: exactly at a bound, at the edges of the record, in the second cut."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from rabbitmq_resilience.checkers.partition_mode import PartitionMode
from rabbitmq_resilience.checkers.pauses import pause_margin_s
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from tests.invariants.literal import PHASES, apart, cluster, event, fault, history, node_states, phases, publish, queues
from tests.messages import Messages

A = apart(["a1"], ["b1", "c1"])
#: net_ticktime is 4 s: with 5 s of margin a node has until 30 s to pause, with the margin of three nodes until 35 s.
CUT = fault(20, 50, cut=A)

Spans = Sequence[tuple[float, float, str]]


def paused(*spans: tuple[float, float]) -> Spans:
    return [(start, end, "paused") for start, end in spans]


def check(*events: Any, mode: str = "pause_minority", end_s: float = 95, **unlike: Spans) -> Finding:
    """``events`` take the place of a run of all phases; ``unlike``: what was seen of which node."""
    happened = [cluster(mode=mode), node_states(unlike=unlike, end_s=end_s), *events]
    return PartitionMode(margin_s=5).check(history((), (), happened))


def without(*names: str) -> list[Any]:
    return phases(**{name: at_s for name, at_s in PHASES.items() if name not in names})


def test_unknown_without_the_cluster_or_the_steady_phase() -> None:
    assert check(without("steady")).verdict is Verdict.UNKNOWN
    assert PartitionMode().check(history((), (), [phases(), node_states()])).verdict is Verdict.UNKNOWN


@pytest.mark.parametrize(
    ("missing", "at_s", "verdict"),
    [
        pytest.param([], 0, Verdict.INVALID, id="the first sight"),
        pytest.param([], 92, Verdict.INVALID, id="during the drain"),
        pytest.param([], 94.5, Verdict.INVALID, id="the last sight"),
        pytest.param([], 95, Verdict.VALID, id="after the end"),
        pytest.param(["end"], 89.5, Verdict.INVALID, id="without an end, before the drain"),
        pytest.param(["end"], 92, Verdict.VALID, id="without an end, after it"),
        pytest.param(["end", "drain"], 92, Verdict.INVALID, id="of a run that was broken off"),
    ],
)
def test_pauses_without_need_are_seen_up_to_the_end(missing: list[str], at_s: float, verdict: Verdict) -> None:
    assert check(without(*missing), end_s=97, b1=paused((at_s, at_s + 0.5))).verdict is verdict


def test_each_node_that_paused_without_need_is_named() -> None:
    assert len(check(phases(), b1=paused((60, 62), (70, 72)), c1=paused((61, 63))).examples) == 2


@pytest.mark.parametrize(("cut_at_s", "verdict"), [(84.5, Verdict.INVALID), (84.6, Verdict.VALID)])
def test_a_cut_must_have_been_seen_for_as_long_as_a_node_may_need(cut_at_s: float, verdict: Verdict) -> None:
    """The last sight is at 94.5 s."""
    assert check(phases(), fault(cut_at_s, 99, cut=A)).verdict is verdict


@pytest.mark.parametrize(
    ("pause", "verdict"),
    [
        ((30, 52), Verdict.VALID),
        ((30.5, 52), Verdict.INVALID),
        ((25, 50), Verdict.VALID),
        ((25, 49.5), Verdict.INVALID),
    ],
)
def test_a_node_pauses_in_time_and_until_the_cut_is_healed(pause: tuple[float, float], verdict: Verdict) -> None:
    assert check(phases(), CUT, a1=paused(pause)).verdict is verdict


@pytest.mark.parametrize(("paused_s", "verdict"), [(22.5, Verdict.INVALID), (23, Verdict.VALID)])
def test_a_node_cannot_pause_before_it_may_have_noticed(paused_s: float, verdict: Verdict) -> None:
    assert check(phases(), CUT, a1=paused((paused_s, 52))).verdict is verdict


def test_a_closed_connection_is_known_however_long_the_node_has_a_reason() -> None:
    """b1 is killed meanwhile, which changes nothing for a1."""
    cut, kill = fault(20, 50, cut=A, sudden=True), fault(30, 40, step=1, name="kill", down=["b1"])
    killed, alone = [(30.0, 42.0, "down")], paused((30.5, 45))
    assert check(phases(), cut, kill, a1=paused((20.5, 52)), b1=killed, c1=alone).verdict is Verdict.VALID
    assert check(phases(), CUT, kill, a1=paused((20.5, 52)), b1=killed, c1=alone).verdict is Verdict.INVALID


@pytest.mark.parametrize(("lasts_s", "must"), [(10, False), (10.001, True)])
@pytest.mark.parametrize("mode", ["pause_minority", "autoheal"])
def test_what_lasts_no_longer_than_a_node_may_need_demands_nothing(lasts_s: float, must: bool, mode: str) -> None:
    finding = check(phases(), fault(20, 20 + lasts_s, cut=A), mode=mode)
    assert finding.verdict is (Verdict.INVALID if must else Verdict.VALID)
    around = check(phases(), fault(20, 20 + lasts_s, cut=apart(["a1"], ["b1"])), mode="pause_minority")
    assert around.verdict is (Verdict.INVALID if must else Verdict.VALID)


@pytest.mark.parametrize(("lasts_s", "verdict"), [(2.999, Verdict.INVALID), (3, Verdict.VALID)])
def test_a_cut_that_may_just_be_noticed_may_pause_a_node(lasts_s: float, verdict: Verdict) -> None:
    assert check(phases(), fault(20, 20 + lasts_s, cut=A), a1=paused((23, 26))).verdict is verdict


def test_any_node_may_restart_while_a_cut_comes_and_goes() -> None:
    flapping = fault(20, 50, cut=A, intermittent=True)
    assert check(phases(), flapping, mode="autoheal", b1=paused((30, 35))).verdict is Verdict.VALID
    assert check(phases(), flapping, mode="autoheal", b1=paused((15, 18))).verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("nodes", "version", "margin_s"),
    [
        (1, (3, 10, 8), 3),
        (2, (3, 10, 8), 3),
        (3, (3, 10, 8), 10),
        (5, (3, 13, 7), 24),
        (3, (4,), 17),
        (3, (4, 0, 5), 17),
    ],
)
def test_a_node_waits_for_each_silent_peer(nodes: int, version: tuple[int, ...], margin_s: float) -> None:
    assert pause_margin_s(nodes, version) == margin_s


@pytest.mark.parametrize(("paused_s", "verdict"), [(30, Verdict.VALID), (30.5, Verdict.INVALID)])
def test_one_of_a_pair_pauses_in_time(paused_s: float, verdict: Verdict) -> None:
    around = fault(20, 50, cut=apart(["a1"], ["b1"]))
    assert check(phases(), around, a1=paused((paused_s, 52))).verdict is verdict


def test_a_look_that_lacks_the_node_shows_nothing_of_it() -> None:
    nobody = event(40.2, "nodes", states={})
    assert check(phases(), CUT, nobody, a1=paused((25, 52))).verdict is Verdict.VALID


def test_a_node_that_never_returns_has_no_time_of_return() -> None:
    finding = check(phases(), CUT, a1=paused((25, 99)))
    assert (finding.numbers["paused_after_s_max"], finding.numbers["returned_after_s_max"]) == (5, None)


def test_sane_autoheal_after_each_of_two_cuts() -> None:
    cuts = [fault(12, 24, cut=A), fault(50, 62, step=1, cut=A)]
    later = paused((64, 70))
    finding = check(phases(), *cuts, mode="autoheal", a1=paused((26, 32)), b1=later, c1=later)
    assert (finding.verdict, finding.numbers["restarted"]) == (Verdict.VALID, "a1 b1 c1")


def test_pathological_no_one_restarts_after_the_second_cut() -> None:
    """The first one leaves a node that both of the others see: nothing is promised of that."""
    cuts = [fault(12, 24, cut=apart(["a1"], ["b1"])), fault(50, 62, step=1, cut=A)]
    assert check(phases(), *cuts, mode="autoheal").verdict is Verdict.INVALID


@pytest.mark.parametrize(
    ("confirmed_s", "verdict"),
    [(20.004_999, Verdict.VALID), (20.005, Verdict.INVALID), (49.999_999, Verdict.INVALID), (50, Verdict.VALID)],
)
def test_what_is_sent_and_confirmed_while_the_majority_is_out_of_reach_cannot_have_been_written(
    confirmed_s: float, verdict: Verdict
) -> None:
    events = [cluster(mode="autoheal"), phases(), queues("q1"), node_states(unlike={"a1": paused((52, 58))}), CUT]
    through_a1 = [publish(0, confirmed_s - 0.005)]
    assert PartitionMode().check(history(through_a1, (), events)).verdict is verdict


def test_a_node_that_had_to_pause_only_between_two_looks_is_not_said_to_have_served(message: Messages) -> None:
    """It has to from 30.1 s on; it did, was seen so at 30.5 s, and its cut was over then."""
    short = fault(20.1, 30.4, cut=A)
    finding = check(phases(), short, a1=paused((30.05, 33)))
    assert (finding.verdict, finding.numbers["had_to_pause"]) == (Verdict.VALID, "")
    unseen = [look for look in node_states(end_s=95) if not 30 <= (look.t_us - cluster().t_us) / 1e6 < 50]
    blind = PartitionMode(margin_s=5).check(history((), (), [cluster(), phases(), CUT, unseen]))
    assert blind.verdict is Verdict.UNKNOWN
    message(blind.summary)


def test_looks_that_do_not_tell_of_a_node_are_none(message: Messages) -> None:
    told = [
        event(
            half / 2,
            "nodes",
            states={node: "up" for node in ("a1", "b1", "c1") if node != "a1" or not 20 < half / 2 < 60},
        )
        for half in range(190)
    ]
    finding = PartitionMode(margin_s=5).check(history((), (), [cluster(), phases(), CUT, told]))
    assert finding.verdict is Verdict.UNKNOWN
    message(finding.summary)
