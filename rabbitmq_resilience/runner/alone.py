"""Play one scenario outside pytest on a cluster of its own, or judge a recorded run again."""

from __future__ import annotations

import sys
from contextlib import closing
from pathlib import Path
from typing import TextIO

from rabbitmq_resilience.runner.environments import first_home
from rabbitmq_resilience.runner.judging import Result, judge_run, reopened
from rabbitmq_resilience.runner.run import RunContext, run_scenario
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.scenario.validation import validated
from rabbitmq_resilience.sut.drivers import DRIVERS, versions_at_home
from rabbitmq_resilience.sut.pool import ClusterPool


def play_scenario(
    scenario: Scenario,
    *,
    driver: str = "local",
    broker: str | None = None,
    runs_dir: Path = Path("reports/runs"),
    terminal: TextIO | None = None,
) -> Result:
    """Form a cluster, play and judge the scenario, and end the cluster.

    ``driver`` is local or docker, ``broker`` a version or image. ``terminal`` gets the status line (default: standard
    error). Raise FaultFileError if the scenario is wrong, ToolMissingError if a program or an image is missing, and
    WrongBrokerError if the driver has no such broker. Later errors are raised too, after all faults are healed and all
    processes ended. Then the run directory holds the record so far, with the verdict UNKNOWN.
    """
    playable = validated(scenario, driver=driver)
    if broker is None and (versions := versions_at_home(driver)):
        broker, _ = first_home([scenario], versions)
    with closing(DRIVERS[driver].open(broker)) as opened, ClusterPool(opened.form) as clusters:
        testbed = RunContext(
            clusters,
            runs_dir,
            sys.stderr if terminal is None else terminal,
            opened.find_prometheus,
            driver=driver,
            require=opened.require,
        )
        return run_scenario(playable, testbed)


def recheck(directory: Path) -> Result:
    """Judge a recorded run again, and write its verdict and its page again. A damaged record is UNKNOWN.

    Raise RunDirectoryError or FaultFileError if there is no readable scenario.
    """
    return judge_run(reopened(Path(directory)))
