"""Play PerfTest with the settings of our own load, on the same cluster, before or after that load in turn."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rabbitmq_resilience.extensions.setup.perf_test import find_perf_test
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.sut.node_protocol import Endpoints
from rabbitmq_resilience.workload.client_addresses import addresses
from rabbitmq_resilience.workload.exchanges import establish
from rabbitmq_resilience.workload.perf_test_options import PerfTestFailed, Window, options, problems, read
from rabbitmq_resilience.workload.queues import declare

#: PerfTest reports windows of this length. The first one does not count: Java warms up during it.
WINDOW_S = 3
#: How long PerfTest takes to start and to end.
START_AND_END_S = 4
#: After how much more time than expected PerfTest is killed.
HANGS_AFTER_S = 60
VHOST = "perf-test"
#: How long PerfTest goes on after the last window, so that it reports that window. Later reports do not count.
_CUT_OFF_AFTER_S = 1
_LAST_LINES = 15


def windows_of(scenario: Scenario) -> int:
    """Return how many windows are measured: as many as fit into our own steady phase, at least one."""
    return max(1, int(scenario.phases.steady_s // WINDOW_S))


def takes_s(scenario: Scenario) -> float:
    """Return about how long PerfTest takes, in seconds."""
    return WINDOW_S * (1 + windows_of(scenario)) + START_AND_END_S


def refused(scenario: Scenario) -> str:
    """Return why PerfTest cannot be played with the load of ``scenario``; empty if it can."""
    if scenario.schedule:
        return "schedule: PerfTest is played without faults only; leave out the steps, or the measures of PerfTest"
    return next(iter(problems(scenario.generated)), "")


def play_perf_test(cluster: Endpoints, scenario: Scenario) -> list[Window]:
    """Play PerfTest with the scenario's load, on queues of its own; return the windows that it measured.

    Raise ToolMissingError if there is no PerfTest, PerfTestFailed if it reported too few windows, and whatever
    declaring queues may raise."""
    command, count = find_perf_test(), windows_of(scenario)
    declare(cluster, scenario.generated, vhost=VHOST)
    try:
        establish(cluster, scenario.generated, vhost=VHOST)
        with tempfile.TemporaryDirectory() as folder:
            csv_file = Path(folder) / "perf-test.csv"
            said = options(
                scenario.generated,
                addresses(cluster),
                vhost=VHOST,
                access=cluster.access,
                interval_s=WINDOW_S,
                seconds_s=WINDOW_S * (1 + count) + _CUT_OFF_AFTER_S,
                csv_file=csv_file,
            )
            output = _run([*command, *said], timeout_s=takes_s(scenario) + HANGS_AFTER_S)
            return measured_windows(read(csv_file) if csv_file.exists() else [], count, output)
    finally:
        cluster.api(cluster.topology.node_names[0]).delete_vhost(VHOST)


def measured_windows(windows: Sequence[Window], count: int, output: str = "") -> list[Window]:
    """Return the windows that count, without the first one. ``output`` is what PerfTest wrote.

    Raise PerfTestFailed, with the last lines of ``output``, if there are fewer than ``count`` or no message arrived."""
    last_s = WINDOW_S * (1 + count) + _CUT_OFF_AFTER_S
    found = [window for window in windows if WINDOW_S * 1.5 < window.ended_s < last_s]
    if len(found) < count or not any(window.received_per_s for window in found):
        last = "\n".join(output.splitlines()[-_LAST_LINES:])
        raise PerfTestFailed(f"PerfTest reported {len(found)} of {count} windows of {WINDOW_S} s; it wrote:\n{last}")
    return found


def _run(command: Sequence[str], *, timeout_s: float) -> str:
    """Run PerfTest; return everything that it wrote. Raise PerfTestFailed if it does not end."""
    try:
        ran = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            timeout=timeout_s,
            check=False,
            text=True,
        )
    except (OSError, subprocess.TimeoutExpired) as error:
        raise PerfTestFailed(f"PerfTest: {type(error).__name__}: PerfTest did not run to its end") from None
    return ran.stdout
