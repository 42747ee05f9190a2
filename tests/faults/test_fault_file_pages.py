"""The schema and the page are those of the definitions, and every fault file that is kept fits them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml

from faults import documentation, fault_file, schema

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "fault-files.md"
SCHEMA = ROOT / "docs" / "fault-file.schema.json"
README_EXAMPLES = re.findall(r"```yaml\n(version:.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), re.DOTALL)
KEPT = sorted((ROOT / "faults").rglob("*.yaml"))
STEPS = re.findall(r"```yaml\n- (\{.*\})\n```", PAGE.read_text(encoding="utf-8"))
HEAD = "version: 1\ntitle: t\ntopology: three_nodes_three_zones\ninvariants: {no_loss: {}}\n"


@pytest.fixture(scope="module")
def fits() -> Any:
    return fastjsonschema.compile(json.loads(SCHEMA.read_text(encoding="utf-8")), use_default=False)


def test_the_schema_is_what_is_generated() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema.text()


def test_the_page_is_what_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == documentation.page()


@pytest.mark.parametrize("text", [*README_EXAMPLES, *(path.read_text(encoding="utf-8") for path in KEPT)])
def test_every_kept_fault_file_fits_the_schema(fits: Any, text: str) -> None:
    fits(yaml.safe_load(text))


@pytest.mark.parametrize("step", STEPS)
def test_every_example_of_the_page_loads_and_fits(fits: Any, step: str) -> None:
    text = f"{HEAD}schedule: [{step}]\n"
    assert len(fault_file.parse(text, driver="docker").schedule) == 1
    fits(yaml.safe_load(text))


def test_the_page_has_an_example_of_every_fault() -> None:
    assert {yaml.safe_load(step)["fault"] for step in STEPS} == set(documentation.EXAMPLES)


@pytest.mark.parametrize(
    "wrong",
    [
        "schedule: [{at_s: 1, for_s: 1, fault: kil, node: a1}]",
        "schedule: [{at_s: 1, for_s: 1, fault: kill, nodes: a1}]",
        "schedule: [{at_s: 1, for_s: 0, fault: kill, node: a1}]",
        "workload: {queue_type: streams}",
    ],
)
def test_the_schema_refuses_what_does_not_load(fits: Any, wrong: str) -> None:
    with pytest.raises(fault_file.FaultFileError):
        fault_file.parse(HEAD + wrong)
    with pytest.raises(fastjsonschema.JsonSchemaValueException):
        fits(yaml.safe_load(HEAD + wrong))
