"""A testbed whose runs go to a temporary folder, on one kept cluster."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from rabbitmq_resilience.runner.run import RunContext
from rabbitmq_resilience.sut.pool import ClusterPool


@pytest.fixture(scope="package")
def pool() -> Iterator[ClusterPool]:
    with ClusterPool() as pool:
        yield pool


@pytest.fixture
def own_testbed(pool: ClusterPool, tmp_path: Path) -> RunContext:
    return RunContext(pool, tmp_path / "runs", io.StringIO())
