"""Whether a queue that stood still refused messages, or did not answer."""

from __future__ import annotations

import pytest

from rabbitmq_resilience.checkers.availability import Availability
from rabbitmq_resilience.checkers.verdict import Verdict
from rabbitmq_resilience.history.history import Outcome
from tests.invariants.literal import cluster, history, phases, publish, queues, us
from tests.invariants.test_availability import BASE, check, confirms
from tests.messages import Messages


@pytest.mark.parametrize(
    ("outcome", "until_s", "refused"),
    [(Outcome.NACKED, 60, True), (Outcome.NACKED, 48, False), (Outcome.UNKNOWN, 60, False)],
)
def test_whether_a_queue_that_stood_still_refused_messages_is_reported(
    outcome: Outcome, until_s: float, refused: bool, message: Messages
) -> None:
    """It stands still from 20 to 60 s, and answers nothing before ``until_s`` but with ``outcome``."""
    times = [20 + i / 10 for i in range(400)]
    answered = [publish(200 + n, at_s, outcome if at_s < until_s else Outcome.UNKNOWN) for n, at_s in enumerate(times)]
    finding = check([*confirms((0, 20)), *answered, *(publish(600 + n, 60 + n / 10) for n in range(300))])
    assert finding.verdict is Verdict.INVALID
    assert ("refused" in finding.summary) is refused
    message(finding.summary)
    part = min(1.0, (until_s - 20) / 40) if outcome is Outcome.NACKED else 0.0
    assert finding.numbers["refused_ratio"] == pytest.approx(part, abs=0.01)


def test_each_stall_that_is_too_long_must_be_of_refused_messages() -> None:
    refused = [publish(200 + n, 20 + n / 10, Outcome.NACKED) for n in range(200)]
    whole = [*confirms((0, 20)), *refused, *(publish(400 + n, 40 + n / 10) for n in range(500))]
    silent = confirms((0, 20), (38, 90), queue=1)
    told = Availability(stall_s_max=15).check(history([*whole, *silent], (), [cluster(), queues("q1", "q2"), phases()]))
    assert (told.numbers["queue"], told.numbers["refused_ratio"]) == ("q1", 0.0)
    alone = Availability(stall_s_max=15).check(history(whole, (), BASE))
    assert float(alone.numbers["refused_ratio"] or 0) > 0.9


#: Each stands still from 20 to 50 s, and refuses or does not answer what is sent then: {name: ([(sent, outcome,
#: answered)], whether it refused for most of it)}.
ANSWERS: dict[str, tuple[list[tuple[float, Outcome, float]], bool]] = {
    "for a second, and then hung": (
        [(20 + i / 50, Outcome.NACKED, 20 + i / 50) for i in range(50)]
        + [(21 + i / 50, Outcome.UNKNOWN, 50) for i in range(10)],
        False,
    ),
    "all at last": ([(20 + i, Outcome.NACKED, 49 + i * 0.03) for i in range(1, 30)], False),
    "one": ([(23.3, Outcome.NACKED, 23.3)], False),
    "five at a time": ([(20 + i / 10, Outcome.NACKED, 20.5 + i // 5 * 0.5) for i in range(295)], True),
    "one after another": ([(20 + i / 10, Outcome.NACKED, 20 + i / 10) for i in range(300)], True),
}


@pytest.mark.parametrize("name", ANSWERS)
def test_refused_is_what_was_refused_all_along(name: str, message: Messages) -> None:
    answers, refused = ANSWERS[name]
    rows = [publish(200 + n, sent, what) | {"outcome_us": us(at_s)} for n, (sent, what, at_s) in enumerate(answers)]
    finding = check([*confirms((0, 20)), *rows, *(publish(900 + n, 50 + n / 10) for n in range(400))])
    assert finding.verdict is Verdict.INVALID
    assert ("refused" in finding.summary) is refused, finding.numbers
    message(finding.summary)


def test_without_a_stall_that_is_too_long_nothing_is_reported_of_refusals() -> None:
    refused = [publish(200, 20, Outcome.NACKED)]
    finding = check([*confirms((0, 20)), *refused, *(publish(900 + n, 20.2 + n / 10) for n in range(698))])
    assert (finding.verdict, finding.numbers["refused_ratio"]) == (Verdict.VALID, None)


def test_a_stall_as_long_as_usual_in_which_nothing_was_refused_is_not_reported_as_refused() -> None:
    """It confirms every 2 s, and 0.5 s are allowed: each stall is too long, and as long as usual."""
    rows = [publish(n, n * 2.0) for n in range(45)]
    finding = Availability(stall_s_max=0.5).check(history(rows, (), BASE))
    assert (finding.verdict, finding.numbers["refused_ratio"]) == (Verdict.INVALID, 0.0)
    assert "refused" not in finding.summary


def test_of_messages_to_several_queues_no_one_knows_which_refused() -> None:
    """Each message goes to both queues, and each is nacked from 20 to 50 s."""
    times = [(i / 10, Outcome.NACKED if 200 <= i < 500 else Outcome.CONFIRMED) for i in range(900)]
    rows = [publish(n, at_s, what, queue=queue, lane=queue) for n, (at_s, what) in enumerate(times) for queue in (0, 1)]
    finding = Availability(stall_s_max=15).check(history(rows, (), [cluster(), queues("q1", "q2"), phases()]))
    assert (finding.verdict, finding.numbers["refused_ratio"]) == (Verdict.INVALID, 0.0)
