"""Provide the Prometheus server, for scenarios with metrics."""

from __future__ import annotations

from pathlib import Path

from rabbitmq_resilience.extensions.setup.packaged import Packaged
from rabbitmq_resilience.tools.distributions import find_prometheus
from rabbitmq_resilience.tools.progress import run

PROGRAM = "usr/bin/prometheus"


def _starts(unpacked: Path) -> None:
    run([unpacked / PROGRAM, "--version"], doing="starting the unpacked Prometheus")


PROMETHEUS = Packaged(
    title="Prometheus",
    needed_for="scenarios with metrics",
    package="prometheus",
    variable="PROMETHEUS",
    wanted="prometheus",  # linked statically except for libc; the other dependencies only serve its pages
    program=PROGRAM,
    find=find_prometheus,
    prove=_starts,
)
