"""Steps as people write them in a fault file, read or refused."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import pytest
import yaml

from rabbitmq_resilience.scenario import fault_file
from rabbitmq_resilience.scenario.model import Scenario


def parsed(
    *steps: dict[str, Any],
    driver: str = "docker",
    topology: str = "three_nodes_three_zones",
    workload: Mapping[str, Any] | None = None,
) -> Scenario:
    plain = {
        "version": 1,
        "title": "Written steps",
        "topology": topology,
        "workload": dict(workload or {}),
        "schedule": list(steps),
        "invariants": {"no_loss": {}},
    }
    return fault_file.parse(yaml.safe_dump(plain), driver=driver)


def refused(
    *steps: dict[str, Any],
    driver: str = "docker",
    topology: str = "three_nodes_three_zones",
    workload: Mapping[str, Any] | None = None,
) -> str:
    """What is said of them."""
    with pytest.raises(fault_file.FaultFileError) as caught:
        parsed(*steps, driver=driver, topology=topology, workload=workload)
    return str(caught.value)
