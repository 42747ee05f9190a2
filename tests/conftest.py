"""What several rooms' tests need."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from topologies.distributions import BrokerHome, ToolMissingError, find_prometheus

# No property depends on how busy the machine is.
settings.register_profile("patient", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("patient")


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


@pytest.fixture(scope="session")
def pausing(broker: BrokerHome) -> None:
    """Skips where a new cluster heeds no partition mode: from 4.2 on its metadata store is Khepri by default."""
    if broker.release >= (4, 2):
        pytest.skip(f"no node of RabbitMQ {broker.version} pauses")


@pytest.fixture
def has_queue_type(broker: BrokerHome) -> Callable[[str], None]:
    """Skips where brokers do not have queues of that type."""

    def demanded(queue_type: str) -> None:
        if queue_type == "mirrored" and broker.release >= (4, 0):
            pytest.skip(f"RabbitMQ {broker.version} has no mirrored queues")

    return demanded
