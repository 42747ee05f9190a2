"""What is told of a known defect by times in a log: lines as brokers wrote them, and the same in another order."""

from __future__ import annotations

import itertools

import pytest

from rabbitmq_resilience.scenario.traces import (
    leads_while_pausing,
    never_pauses,
    resumes_apart,
    starts_apart,
    waits_to_pause,
)

#: Of 3.10.8, which lost nine confirmed messages.
LOST = "node c1@localhost down: connection_closed"
PAUSES = "Cluster minority/secondary status detected - awaiting recovery"
ASKED = "RabbitMQ is asked to stop..."
LEADS = "Mirrored queue 'q1' in vhost '/': Promoting mirror <a2@localhost.184915367.1337.0> to leader"
BACK = "node c1@localhost up"
STOPPED = "Successfully stopped RabbitMQ and its dependencies"
STARTS = " Starting RabbitMQ 3.10.8 on Erlang 25.2.3 [jit]"


def log(*lines: str) -> str:
    return "".join(
        f"2026-11-24 13:48:{41 + i:02}.940648+00:00 [info] <0.482.0> {text}\n" for i, text in enumerate(lines)
    )


def test_it_leads_and_sees_a_peer_before_it_has_stopped() -> None:
    assert leads_while_pausing(log(LOST, PAUSES, ASKED, LEADS, BACK, STOPPED, STARTS))
    assert leads_while_pausing(log(LOST, PAUSES, PAUSES, ASKED, BACK, LEADS, STOPPED))


@pytest.mark.parametrize(
    "lines",
    [
        (LOST, PAUSES, ASKED, LEADS, STOPPED, STARTS, BACK),  # a long cut: it had stopped when its peer came back
        (LOST, PAUSES, ASKED, BACK, STOPPED, STARTS, LEADS),
        (LOST, LEADS, BACK, PAUSES, ASKED, STOPPED),
        (LOST, LEADS, BACK),
    ],
)
def test_a_node_that_stops_in_time_is_no_such_trace(lines: tuple[str, ...]) -> None:
    assert not leads_while_pausing(log(*lines))


def test_of_all_orders_it_is_those_with_both_between_the_pause_and_the_stop() -> None:
    for order in itertools.permutations((PAUSES, LEADS, BACK, STOPPED)):
        at = {line: order.index(line) for line in order}
        both_between = all(at[PAUSES] < at[line] and not at[PAUSES] < at[STOPPED] < at[line] for line in (LEADS, BACK))
        assert leads_while_pausing(log(*order)) == both_between, order


#: Of 4.0.5: c1 was cut off from 14:07:30.4 to 14:07:56.7.
NEVER_PAUSED = """\
2026-11-28 14:07:39.048931+00:00 [info] <0.5365.0> rabbit on node b1@localhost down
2026-11-28 14:07:51.298240+00:00 [info] <0.5365.0> rabbit on node a1@localhost down
2026-11-28 14:08:00.306918+00:00 [error] <0.5178.0> Mnesia(c1@localhost): ** ERROR ** mnesia_event got \
{inconsistent_database, running_partitioned_network, a1@localhost}
2026-11-28 14:08:00.474169+00:00 [error] <0.5178.0> Mnesia(c1@localhost): ** ERROR ** mnesia_event got \
{inconsistent_database, running_partitioned_network, b1@localhost}
2026-11-28 14:08:00.478177+00:00 [info] <0.5365.0> node b1@localhost down: net_tick_timeout
2026-11-28 14:08:00.478943+00:00 [info] <0.5365.0> node a1@localhost down: net_tick_timeout
"""


def test_a_node_that_knew_of_its_minority_only_after_the_cut_never_paused() -> None:
    assert never_pauses(NEVER_PAUSED)


def without(log: str, text: str) -> str:
    """Return the lines of a log that do not have the text."""
    return "".join(line for line in log.splitlines(keepends=True) if text not in line)


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ("rabbit on node a1@localhost down", PAUSES),  # it paused before the cut was over
        ("rabbit on node a1@localhost down", "rabbit on node b1@localhost up"),
        ("14:07:39.048931", "14:07:59.048931"),  # it lost b1 two seconds before, as a node does that was frozen
        ("running_partitioned_network, b1", "running_partitioned_network, a2"),
        ("node b1@localhost down: net_tick_timeout", "node a2@localhost down: net_tick_timeout"),
    ],
)
def test_a_node_that_paused_or_was_away_for_a_moment_has_no_such_trace(found: str, instead: str) -> None:
    of_b1 = without(NEVER_PAUSED, "node a1@localhost down: ")
    assert never_pauses(of_b1)
    assert found in of_b1
    assert not never_pauses(of_b1.replace(found, instead))


def test_what_a_node_loses_while_it_pauses_is_no_such_trace() -> None:
    """A run of 4.0.5: c1 paused in time, and lost a1 only then."""
    assert not never_pauses(log(*(["rabbit on node b1@localhost down", PAUSES, ASKED])) + without(NEVER_PAUSED, "b1"))


#: A run of 4.0.5: c1 paused 20.4 s after it lost a1, as the cut was over.
WAITED = """\
2026-11-28 22:11:38.628318+00:00 [info] <0.1052.0> rabbit on node a1@localhost down
2026-11-28 22:11:52.637880+00:00 [info] <0.1052.0> rabbit on node b1@localhost down
2026-11-28 22:11:59.063592+00:00 [info] <0.1052.0> node a1@localhost down: net_tick_timeout
2026-11-28 22:11:59.063646+00:00 [warning] <0.1052.0> Cluster minority/secondary status detected - awaiting recovery
"""


def test_a_node_that_paused_long_after_it_lost_a_peer_waited_for_the_other() -> None:
    assert waits_to_pause(WAITED)
    assert not never_pauses(WAITED)
    assert not waits_to_pause(NEVER_PAUSED)


@pytest.mark.parametrize(
    ("found", "instead"),
    [
        ("22:11:38.628318", "22:11:46.628318"),  # it waited for 12 s, as in cuts after which it is in time
        ("rabbit on node b1@localhost down", "rabbit on node a1@localhost up"),
        ("rabbit on node b1@localhost down", "RabbitMQ is asked to start"),
        (PAUSES, "node c1@localhost up"),
    ],
)
def test_a_node_that_paused_in_time_or_not_at_all_did_not_wait(found: str, instead: str) -> None:
    assert found in WAITED
    assert not waits_to_pause(WAITED.replace(found, instead))


B1_UP, B1_DOWN = "rabbit on node b1@localhost up", "rabbit on node b1@localhost down"
STARTS_ANEW, STARTED = (
    " Starting RabbitMQ 4.0.5 on Erlang 27.3.4.1 [jit]",
    "Server startup complete; 4 plugins started.",
)
APART = "Mnesia(c1@localhost): ** ERROR ** mnesia_event got {inconsistent_database, running_partitioned_network, " + (
    "b1@localhost}"
)
UNREACHABLE, REACHED = "node b1@localhost down: connection_closed", "node b1@localhost up"


def test_a_node_that_saw_no_one_while_it_started_starts_apart() -> None:
    """4.0.5: cut off again two seconds after it had come back."""
    assert starts_apart(log(STARTS_ANEW, STARTED, REACHED, APART))
    assert starts_apart(log(STARTS_ANEW, B1_UP, STARTED, PAUSES, STARTS_ANEW, STARTED, REACHED, APART))


@pytest.mark.parametrize(
    "lines",
    [
        (STARTS_ANEW, B1_UP, STARTED, B1_DOWN, UNREACHABLE, REACHED, APART),  # it was cut off later
        (STARTS_ANEW, STARTED, B1_UP, REACHED),
        (STARTS_ANEW, STARTED, PAUSES, REACHED, APART),
        (REACHED, APART),
    ],
)
def test_a_node_that_saw_a_peer_or_paused_does_not_start_apart(lines: tuple[str, ...]) -> None:
    assert not starts_apart(log(*lines))


def at_once(*lines: str) -> str:
    return "".join(f"2026-11-28 18:41:07.0{i}+00:00 [info] <0.1045.0> {text}\n" for i, text in enumerate(lines, 10))


def test_a_node_whose_peers_are_back_before_it_counts_them_resumes_apart() -> None:
    """4.0.5: frozen for 6.8 s."""
    assert resumes_apart(at_once(B1_DOWN, APART, UNREACHABLE, REACHED))


@pytest.mark.parametrize(
    "lines",
    [
        (B1_DOWN, APART, UNREACHABLE, PAUSES, REACHED),
        (B1_DOWN, UNREACHABLE, REACHED),  # they did not run apart
        (B1_DOWN, APART, UNREACHABLE),
        (APART, REACHED),
    ],
)
def test_a_node_that_pauses_or_was_not_apart_does_not_resume_apart(lines: tuple[str, ...]) -> None:
    assert not resumes_apart(at_once(*lines))


def test_a_cut_that_ends_is_no_freeze() -> None:
    assert not resumes_apart(log(B1_DOWN, UNREACHABLE, APART, REACHED))
