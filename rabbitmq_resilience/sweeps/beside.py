"""PerfTest beside our own load: the same settings, on the same cluster, before or after it in turn."""

from __future__ import annotations

import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path

from rabbitmq_resilience.clusters.protocol import Cluster
from rabbitmq_resilience.scenarios.model import Scenario
from rabbitmq_resilience.tools.perf_test import find_perf_test
from rabbitmq_resilience.workloads.exchanges import establish
from rabbitmq_resilience.workloads.perf_test import PerfTestFailed, Window, options, problems, read
from rabbitmq_resilience.workloads.queues import declare
from rabbitmq_resilience.workloads.run import addresses

#: PerfTest tells of windows of this length. The first, in which Java warms up, does not count.
WINDOW_S = 3
#: What it takes to start and to end.
BESIDE_S = 4
#: Of a load that does not come up.
HANGS_AFTER_S = 60
VHOST = "perf-test"
#: So that the last window is told before it ends; what it tells of the rest does not count.
_CUT_OFF_AFTER_S = 1
_LAST_LINES = 15


def windows_of(scenario: Scenario) -> int:
    """How many are measured: as long as our own steady phase, and one at least."""
    return max(1, int(scenario.phases.steady_s // WINDOW_S))


def takes_s(scenario: Scenario) -> float:
    """About how long it takes."""
    return WINDOW_S * (1 + windows_of(scenario)) + BESIDE_S


def refused(scenario: Scenario) -> str:
    """Why it cannot be played beside that scenario; empty if it can."""
    if scenario.schedule:
        return "schedule: PerfTest is played in good conditions only; leave the steps out, or what it measures"
    return next(iter(problems(scenario.workload)), "")


def play_beside(cluster: Cluster, scenario: Scenario) -> list[Window]:
    """What PerfTest measured with the scenario's load, on queues of its own.

    Raises ToolMissingError where there is no PerfTest, PerfTestFailed where it told of less than it was to measure, and
    what declaring queues may raise."""
    command, count = find_perf_test(), windows_of(scenario)
    declare(cluster, scenario.workload, vhost=VHOST)
    try:
        establish(cluster, scenario.workload, vhost=VHOST)
        with tempfile.TemporaryDirectory() as folder:
            csv_file = Path(folder) / "perf-test.csv"
            said = options(
                scenario.workload,
                addresses(cluster),
                vhost=VHOST,
                access=cluster.access,
                interval_s=WINDOW_S,
                seconds_s=WINDOW_S * (1 + count) + _CUT_OFF_AFTER_S,
                csv_file=csv_file,
            )
            told = _run([*command, *said], timeout_s=takes_s(scenario) + HANGS_AFTER_S)
            return measured_windows(read(csv_file) if csv_file.exists() else [], count, told)
    finally:
        cluster.api(cluster.topology.node_names[0]).delete_vhost(VHOST)


def measured_windows(windows: Sequence[Window], count: int, told: str = "") -> list[Window]:
    """Those after the first, as many as are measured. Raises PerfTestFailed, with what it wrote, where there are fewer
    or nothing came through."""
    last_s = WINDOW_S * (1 + count) + _CUT_OFF_AFTER_S
    found = [window for window in windows if WINDOW_S * 1.5 < window.ended_s < last_s]
    if len(found) < count or not any(window.received_per_s for window in found):
        last = "\n".join(told.splitlines()[-_LAST_LINES:])
        raise PerfTestFailed(f"PerfTest told of {len(found)} of {count} windows of {WINDOW_S} s; it wrote:\n{last}")
    return found


def _run(command: Sequence[str], *, timeout_s: float) -> str:
    """Everything that it wrote. Raises PerfTestFailed."""
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
        raise PerfTestFailed(f"PerfTest: {type(error).__name__}: it did not run to its end") from None
    return ran.stdout
