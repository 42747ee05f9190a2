"""Build the library and the programs of these tests, by the machine's own compiler."""

from __future__ import annotations

from pathlib import Path

import pytest

from rabbitmq_resilience.sut.preload.library import BUILDS
from tests.needs import skipped_without
from tests.preload.programs import built_for_tests
from tests.preload.sequences import Built, Disk


@pytest.fixture(scope="session")
def built() -> Built:
    """The library, the control program and the test programs; skips without a compiler."""
    with skipped_without():
        return built_for_tests(BUILDS)


@pytest.fixture
def disk(built: Built, tmp_path: Path) -> Disk:
    """An empty folder with a prepared state."""
    made = Disk(built, tmp_path / "root", tmp_path / "state")
    made.root.mkdir()
    made.call("prepare")
    return made
