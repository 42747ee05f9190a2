"""What several rooms' tests need."""

from __future__ import annotations

from pathlib import Path

import pytest

from topologies.distributions import BrokerHome, ToolMissingError, find_prometheus


@pytest.fixture(scope="session")
def prometheus() -> Path:
    """The server that set-up provides where it can; skips with what is missing."""
    try:
        return find_prometheus()
    except ToolMissingError as error:
        pytest.skip(str(error))


@pytest.fixture(scope="session")
def measurable(prometheus: Path, broker: BrokerHome) -> None:  # noqa: ARG001 - it must be there
    """Skips where brokers do not tell of each queue what measured scenarios need."""
    if broker.release < (3, 10):
        pytest.skip(f"RabbitMQ {broker.version} tells no numbers of single queues")
