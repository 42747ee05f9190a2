"""Steps as people write them in a fault file, read or refused."""

from __future__ import annotations

from typing import Any

import pytest
import yaml

from rabbitmq_resilience.scenarios import fault_file
from rabbitmq_resilience.scenarios.model import Scenario


def parsed(*steps: dict[str, Any], driver: str = "docker", topology: str = "three_nodes_three_zones") -> Scenario:
    plain = {
        "version": 1,
        "title": "Written steps",
        "topology": topology,
        "schedule": list(steps),
        "invariants": {"no_loss": {}},
    }
    return fault_file.parse(yaml.safe_dump(plain), driver=driver)


def refused(*steps: dict[str, Any], driver: str = "docker", topology: str = "three_nodes_three_zones") -> str:
    """What is said of them."""
    with pytest.raises(fault_file.FaultFileError) as caught:
        parsed(*steps, driver=driver, topology=topology)
    return str(caught.value)
