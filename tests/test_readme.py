"""The README describes what there is, and its example is accepted."""

from __future__ import annotations

import re
from pathlib import Path
from typing import get_args

import pytest

from faults import fault_file
from faults.catalogue import AnyFault
from faults.conditions import When
from faults.scenario import Expectation, Phases, Scenario
from invariants.catalogue import INVARIANTS
from workloads.spec import Mirroring, QueueLimits, Workload

ROOT = Path(__file__).resolve().parent.parent
README = (ROOT / "README.md").read_text(encoding="utf-8")
FAULTS = [kind.model_fields["fault"].default for kind in get_args(get_args(AnyFault)[0])]
OPTIONS = re.findall(r'addoption\("(--[a-z-]+)"', (ROOT / "conftest.py").read_text(encoding="utf-8"))


def test_its_fault_file_is_accepted() -> None:
    (example,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    scenario = fault_file.parse(example, source="README.md")
    assert [step.fault for step in scenario.schedule] == ["partition", "latency"]


@pytest.mark.parametrize("name", [*FAULTS, *When.model_fields, *OPTIONS, *INVARIANTS])
def test_every_fault_condition_option_and_invariant_is_described(name: str) -> None:
    assert re.search(rf"`{name}\b", README)


BOUNDS = [field for checker in INVARIANTS.values() for field in checker.model_fields]
SPECS = (Scenario, Workload, Mirroring, QueueLimits, Phases, Expectation)
FIELDS = {*BOUNDS, *(field for spec in SPECS for field in spec.model_fields)}


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_every_field_is_mentioned(field: str) -> None:
    assert re.search(rf"\b{field}\b", README)
