"""A run that is not VALID passes only as its scenario says, and for no other reason."""

from __future__ import annotations

import json

import pytest

from rabbitmq_resilience.checkers.checker_catalogue import INVARIANTS
from rabbitmq_resilience.checkers.judge import Judgement
from rabbitmq_resilience.checkers.verdict import Finding, Verdict
from rabbitmq_resilience.runner.endings import meets, met
from rabbitmq_resilience.scenario import known_defects
from rabbitmq_resilience.scenario.expectations import Expectation, excuse_problems, is_within
from rabbitmq_resilience.scenario.known_defects import (
    BREAKS_OFF_HEALING,
    CONFIRMED_IN_A_MINORITY,
    DECIDES_TOO_SOON,
    GIVES_UP_STARTING,
    HANGS_IN_GLOBAL_SYNC,
    PARTED_WHILE_STARTING,
    STAYS_PARTED_AFTER_A_BLIP,
)
from tests.messages import Messages

VALID, INVALID, UNKNOWN = Verdict.VALID, Verdict.INVALID, Verdict.UNKNOWN


def judgement(**verdicts: Verdict) -> Judgement:
    worst = next(v for v in (INVALID, UNKNOWN, VALID) if v in verdicts.values())
    return Judgement(worst, {name: Finding(verdict, "") for name, verdict in verdicts.items()}, {})


@pytest.mark.parametrize(
    ("always", "no_loss", "order", "comes"),
    [
        (True, INVALID, VALID, True),
        (True, VALID, VALID, False),
        (True, INVALID, INVALID, False),
        (True, VALID, INVALID, False),
        (True, UNKNOWN, VALID, False),
        (False, INVALID, VALID, True),
        (False, VALID, VALID, True),
        (False, VALID, INVALID, False),
        (False, INVALID, INVALID, False),
        (False, UNKNOWN, VALID, False),
    ],
)
def test_known_violation(always: bool, no_loss: Verdict, order: Verdict, comes: bool) -> None:
    expected = Expectation(broker="", verdict=INVALID, invariant="no_loss", intermittent=not always)
    assert meets(judgement(no_loss=no_loss, order=order), expected) is comes


@pytest.mark.parametrize(("ratio", "comes"), [(1.0, True), (0.75, True), (0.5, False), (None, False)])
def test_a_queue_that_stood_still_for_another_reason_is_not_that_defect(ratio: float | None, comes: bool) -> None:
    expected = Expectation(broker="", verdict=INVALID, invariant="availability", trace="refuses_messages")
    numbers = {} if ratio is None else {"refused_ratio": ratio}
    broken = Judgement(INVALID, {"availability": Finding(INVALID, "", numbers)}, {})
    assert meets(broken, expected, lambda: ["no log has it"]) is comes


def test_refused_messages_are_no_trace_of_a_loss(message: Messages) -> None:
    lost = Expectation(broker="<4", verdict=INVALID, invariant="no_loss", trace="refuses_messages")
    (problem,) = excuse_problems([lost], ["no_loss"])
    message(problem[1])


def test_consequences_are_met_only_with_their_cause() -> None:
    expected = Expectation(broker="", verdict=INVALID, invariant="no_loss", invariants_also=("order",))
    assert meets(judgement(no_loss=INVALID, order=INVALID), expected)
    assert meets(judgement(no_loss=INVALID, order=VALID), expected)
    assert not meets(judgement(no_loss=VALID, order=INVALID), expected)
    assert not meets(judgement(no_loss=INVALID, recovery=INVALID), expected)


def test_two_known_defects_may_meet_in_one_run() -> None:
    """Each is named, with its reference. The one that leaves no trace excuses nothing."""
    metadata = Expectation(broker="", verdict=INVALID, invariant="metadata", reference="server#1841", intermittent=True)
    late = Expectation(
        broker="",
        verdict=INVALID,
        invariant="partition_mode",
        invariants_also=("recovery",),
        reference="server#17319",
        log="late",
    )
    both = judgement(metadata=INVALID, partition_mode=INVALID, recovery=UNKNOWN)
    ending = met(both, [metadata, late], lambda: ["late"])
    assert ending is not None
    assert str(ending) == "INVALID by metadata in some runs and INVALID by partition_mode"
    assert ending.reference("another") == "server#1841 and server#17319"
    assert met(both, [metadata, late], lambda: ["in time"]) is None
    assert met(judgement(metadata=INVALID, recovery=INVALID), [metadata, late], lambda: ["late"]) is None


def test_a_consequence_shows_no_other_defect() -> None:
    """Recovery is broken with the order. It does not show the defect that would excuse availability."""
    late = Expectation(broker="", verdict=INVALID, invariant="order", invariants_also=("recovery",), log="late")
    hangs = Expectation(broker="", verdict=INVALID, invariant="recovery", invariants_also=("availability",))
    broken = judgement(order=INVALID, recovery=INVALID, availability=INVALID)
    assert met(broken, [late, hangs], lambda: ["late"]) is None
    traced = hangs.model_copy(update={"log": "hangs"})
    assert met(broken, [late, traced], lambda: ["late hangs"]) is not None


def test_each_defect_has_its_reference_or_that_of_its_scenario() -> None:
    mine = Expectation(broker="", verdict=INVALID, invariant="metadata")
    known = Expectation(broker="", verdict=INVALID, invariant="recovery", reference="server#5438")
    ending = met(judgement(metadata=INVALID, recovery=INVALID), [mine, known])
    assert ending is not None
    assert ending.reference("server#1841") == "server#1841 and server#5438"


@pytest.mark.parametrize(
    ("log", "comes"),
    [
        ("skipping registration.\nRunning boot step x\n", False),
        ("skipping registration.\nDeleting server", True),
        ("", False),
    ],
)
def test_a_violation_that_leaves_a_trace_is_known_only_by_it(log: str, comes: bool) -> None:
    broken = judgement(no_loss=VALID, recovery=INVALID)
    assert meets(broken, HANGS_IN_GLOBAL_SYNC, lambda: ["another node's", log]) is comes
    assert meets(judgement(recovery=VALID), HANGS_IN_GLOBAL_SYNC, lambda: [log])


def test_words(message: Messages) -> None:
    assert str(Expectation(broker="", verdict=VALID)) == "VALID"
    message(Expectation(broker="", verdict=INVALID, invariant="order", intermittent=True))


def test_what_cannot_be_decided_is_never_as_expected() -> None:
    expected = Expectation(broker="", verdict=UNKNOWN)
    assert not meets(judgement(no_loss=UNKNOWN), expected)


def log(*lines: tuple[float, str]) -> str:
    return "".join(f"2022-01-02 03:04:{at_s:09.6f}+00:00 [info] <0.1.0> {text}\n" for at_s, text in lines)


LOST, PAUSES = (
    "** Node b1@localhost not responding **",
    "Cluster minority/secondary status detected - awaiting recovery",
)


@pytest.mark.parametrize(
    ("text", "late"),
    [
        (log((1, LOST), (1.5, PAUSES)), False),
        (log((1, LOST), (8.1, PAUSES)), True),
        (log((1, LOST), (5, "RabbitMQ is asked to start..."), (8.1, PAUSES)), False),
        (log((1, "Mirrored queue 'q1' in vhost 'v': Promoting mirror <b1@x.1.2.3> to leader"), (8, PAUSES)), True),
        (log((8.1, PAUSES)), False),
        ("2022-01-02 03:04:01.250 [error] <0.1.0> ** Node b1@x not responding **\n"
         "2022-01-02 03:04:09.250 [warning] <0.1.0> Cluster minority/secondary status detected\n", True),
        ("", False),
    ],
)  # fmt: skip
def test_a_pause_is_late(text: str, late: bool) -> None:
    assert CONFIRMED_IN_A_MINORITY.leaves_trace(text) is late


DECIDES = "Autoheal decision"


@pytest.mark.parametrize(
    ("meanwhile", "again_s", "anew"),
    [
        ("Autoheal request received from b1 when healing; ignoring", 9, True),
        ("rabbit on node b1@localhost down", 40, True),
        ("node c1@localhost down: net_tick_timeout", 40, False),
        ("** Node c1@localhost not responding **", 40, False),
        (" Starting RabbitMQ 3.10.8 on Erlang 25.2.3 [jit]", 40, False),
        ("node c1@localhost down: connection_closed", 9, True),
    ],
)
def test_autoheal_decides_again(meanwhile: str, again_s: float, anew: bool) -> None:
    before = (1, "node c1@localhost down: net_tick_timeout")
    assert DECIDES_TOO_SOON.leaves_trace(log(before, (2, DECIDES), (5, meanwhile), (again_s, DECIDES))) is anew
    assert not DECIDES_TOO_SOON.leaves_trace(log(before, (2, DECIDES), (5, meanwhile)))


@pytest.mark.parametrize("text", ["Autoheal: aborting - a1 went down", "Autoheal: aborting - [b1@localhost] down"])
def test_autoheal_is_broken_off(text: str) -> None:
    assert BREAKS_OFF_HEALING.leaves_trace(log((1, DECIDES), (2, text)))
    assert not BREAKS_OFF_HEALING.leaves_trace(log((1, DECIDES), (2, "Autoheal finished")))


@pytest.mark.parametrize(
    ("reason", "later", "gave_up"),
    [
        ("{badrpc,nodedown}", "", True),
        ("\n {badrpc,\n  {'EXIT',\n   {{badmap,undefined},\n    [{maps,get,[depends_on,undefined,[]],", "", True),
        ("{badrpc,nodedown}", " Server startup complete; 4 plugins started.", False),
        ("[a_flag_that_the_other_node_does_not_know]", "", False),
    ],
)
def test_a_node_gives_up_starting(reason: str, later: str, gave_up: bool) -> None:
    text = f"BOOT FAILED\nError during startup: {{error, {{incompatible_feature_flags,{reason}}}}}\n{later}"
    assert GIVES_UP_STARTING.leaves_trace(text) is gave_up


@pytest.mark.parametrize(
    ("parted", "back", "forgot"),
    [
        ("a1@localhost", "a1@localhost", False),
        ("'rabbit@a-1'", "rabbit@a-1", False),
        ("a2@localhost", "a1@localhost", True),
    ],
)
def test_a_peer_that_is_back_too_soon_stays_parted(parted: str, back: str, forgot: bool) -> None:
    first = f"mnesia_event got {{inconsistent_database, running_partitioned_network, {parted}}}"
    text = log(
        (1, first), (6, f"rabbit on node {back} down"), (7, f"Keeping {back} listeners: the node is already back")
    )
    assert STAYS_PARTED_AFTER_A_BLIP.leaves_trace(text) is not forgot
    assert not STAYS_PARTED_AFTER_A_BLIP.leaves_trace(log((1, first), (6, f"rabbit on node {back} down")))


@pytest.mark.parametrize("start", ["RabbitMQ is asked to start...", " Starting RabbitMQ 3.10.8 on Erlang 25.2.3 [jit]"])
def test_a_node_loses_a_peer_while_it_starts(start: str) -> None:
    lost, done = "** Node a1@localhost not responding **", "Server startup complete; 4 plugins started."
    assert PARTED_WHILE_STARTING.leaves_trace(log((1, start), (7, lost), (12, done)))
    assert not PARTED_WHILE_STARTING.leaves_trace(log((1, start), (7, done), (12, lost)))


def test_every_known_defect_that_excuses_a_loss_is_known_by_its_trace() -> None:
    known = [value for value in vars(known_defects).values() if isinstance(value, Expectation)]
    assert len(known) > 5
    assert not list(excuse_problems(known, list(INVARIANTS)))


@pytest.mark.parametrize(
    "fields",
    [
        {"invariant": "no_loss"},
        {"invariant": "recovery", "invariants_also": ["order"]},
        {},
        {"invariant": "no_loss", "log": "x"},
        {"invariant": "no_loss", "log": "x", "broker": "", "queue_types": ["mirrored"]},
        {"verdict": "UNKNOWN"},
    ],
)
def test_an_excuse_for_anything_is_refused(fields: dict[str, object], message: Messages) -> None:
    expected = Expectation.model_validate_json(json.dumps({"broker": "<4", "verdict": "INVALID", **fields}))
    [(_, text)] = excuse_problems([expected], ["no_loss", "order", "recovery"])
    message(text)


@pytest.mark.parametrize(
    "fields",
    [
        {"invariant": "recovery"},
        {"invariant": "no_loss", "documentation": "https://www.rabbitmq.com/docs/ttl"},
        {"invariant": "no_loss", "trace": "pauses_late", "queue_types": ["mirrored"]},
        {"verdict": "VALID"},
    ],
)
def test_what_is_reported_by_a_trace_or_by_design_is_accepted(fields: dict[str, object]) -> None:
    expected = Expectation.model_validate_json(json.dumps({"broker": "<4", "verdict": "INVALID", **fields}))
    assert not list(excuse_problems([expected], ["no_loss", "order", "recovery"]))


@pytest.mark.parametrize(
    "version", ["4.2.9", "4.3.0-alpha.1", "4.3.0-beta.2", "4.3.0-rc.1", "4.3.0", "4.3.6+1.gabc", "4.10.1"]
)
@pytest.mark.parametrize("border", ["4", "4.3", "4.3.0", "4.4"])
def test_each_version_is_on_one_side_of_a_border(version: str, border: str) -> None:
    """By its numbers, slowly: what comes before 4.3.0 by a letter has what 4.3 promises."""
    numbers = [int(part) for part in version.partition("-")[0].partition("+")[0].split(".")]
    beyond = numbers >= [int(part) for part in border.split(".")]
    assert is_within(version, f">={border}") == beyond
    assert is_within(version, f"<{border}") != beyond


def test_a_range_that_names_a_pre_release_means_it() -> None:
    assert is_within("4.3.0-rc.1", "<4.3.0rc2")
    assert not is_within("4.3.0", "<4.3.0rc2")
