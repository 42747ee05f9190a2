"""A bench whose runs go to a temporary folder, on one kept cluster."""

from __future__ import annotations

import io
from collections.abc import Iterator
from pathlib import Path

import pytest

from suites.scenario import Bench
from topologies.pool import ClusterPool


@pytest.fixture(scope="package")
def pool() -> Iterator[ClusterPool]:
    with ClusterPool() as pool:
        yield pool


@pytest.fixture
def own_bench(pool: ClusterPool, tmp_path: Path) -> Bench:
    return Bench(pool, tmp_path / "runs", io.StringIO())
