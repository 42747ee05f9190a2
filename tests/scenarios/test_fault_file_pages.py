"""The schema and the page are those of the definitions, and every fault file that is kept fits them."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import fastjsonschema
import pytest
import yaml

from rabbitmq_resilience.model.base import Spec
from rabbitmq_resilience.nemesis.fault_catalogue import FAULTS
from rabbitmq_resilience.nemesis.on_methods import MethodStep
from rabbitmq_resilience.scenario import documentation, fault_file, schema
from rabbitmq_resilience.scenario.documentation import headings
from rabbitmq_resilience.scenario.model import Scenario
from tests.messages import Messages

ROOT = Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs" / "fault-files.md"
SCHEMA = ROOT / "docs" / "fault-file.schema.json"
TEXTS = [page.read_text(encoding="utf-8") for page in (ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")))]
BLOCKS = [found for text in TEXTS for found in re.findall(r"```yaml\n((?:#.*\n)?version:.*?)```", text, re.DOTALL)]
#: A sweep, which has a base, is no fault file.
EXAMPLES = [block for block in BLOCKS if "\ntitle:" in block and "\nbase:" not in block]
KEPT = sorted((ROOT / "faults").rglob("*.fault.yaml"))
STEPS = re.findall(r"```yaml\n(- at_s.*?)\n```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
#: Use the C loader where PyYAML was built with it.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
HEAD = "version: 1\ntitle: t\ntopology: three_nodes_three_zones\ninvariants: {no_loss: {}}\n"


APPLICATION = 'workload: {kind: application, processes: [{name: web, command: ["{python}"]}]}\n'


@pytest.fixture(scope="module")
def fits() -> Any:
    return fastjsonschema.compile(json.loads(SCHEMA.read_text(encoding="utf-8")), use_default=False)


def test_the_schema_is_what_is_generated() -> None:
    assert SCHEMA.read_text(encoding="utf-8") == schema.text()


def test_the_page_is_what_is_generated() -> None:
    assert PAGE.read_text(encoding="utf-8") == documentation.page()


def test_every_kept_fault_file_fits_the_schema(fits: Any) -> None:
    kept = [*EXAMPLES, *(path.read_text(encoding="utf-8") for path in KEPT)]
    assert len(kept) > len(KEPT) > 0
    misfits = {}
    for text in kept:
        plain = yaml.load(text, LOADER)  # noqa: S506 - it is a safe one
        try:
            fits(plain)
        except fastjsonschema.JsonSchemaValueException as error:
            misfits[plain["title"]] = str(error)
    assert misfits == {}


def test_every_example_of_the_page_loads_and_fits(fits: Any) -> None:
    misfits = {}
    for step in STEPS:
        text, driver = f"{HEAD}schedule:\n{step}\n", "docker"
        fault = FAULTS[yaml.safe_load(step)[0]["fault"]]
        acts_on = fault.acts_on
        if issubclass(fault, MethodStep):
            text = f"{text}{APPLICATION}"
        if acts_on == "balancers":
            text, driver = text.replace("three_nodes_three_zones", "three_nodes_two_balancers"), "local"
        if acts_on == "orchestrator":
            driver = "attached"
        try:
            loaded = fault_file.parse(text, driver=driver).schedule
            fits(yaml.load(text, LOADER))  # noqa: S506 - it is a safe one
        except (fault_file.FaultFileError, fastjsonschema.JsonSchemaValueException) as error:
            misfits[step] = str(error)
        else:
            assert len(loaded) == 1, step
    assert misfits == {}


def test_the_page_has_an_example_of_every_fault() -> None:
    assert {yaml.safe_load(step)[0]["fault"] for step in STEPS} == set(FAULTS)


def test_the_whole_file_that_the_page_shows_is_accepted() -> None:
    (whole,) = re.findall(r"```yaml\n(version:.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert fault_file.parse(whole).markers == ("nightly", "cuts")


@pytest.mark.parametrize("field", ["topology", "workload", "expect", "schedule"])
def test_every_part_of_a_file_that_the_page_shows_is_accepted(field: str, tmp_path: Path) -> None:
    parts = re.findall(rf"```yaml\n({field}:.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
    assert len(parts) == (2 if field == "workload" else 1)  # of our own clients, and of the user's application
    (tmp_path / "rabbitmq.conf").touch()
    for part in map(yaml.safe_load, parts):
        of_application = field == "workload" and part["workload"].get("kind") == "application"
        invariants: dict[str, Any] = {"no_loss": {}} | ({} if of_application else {"order": {}})
        for process in part["workload"]["processes"] if of_application else ():
            (tmp_path / process.get("folder", "")).mkdir(exist_ok=True)
            process["command"][0] = "{python}"
        whole = {**yaml.safe_load(HEAD), "invariants": invariants, **part}
        assert fault_file.parse(yaml.safe_dump(whole), folder=tmp_path)


def test_the_page_names_no_module() -> None:
    rooms = "sut|nemesis|workload|checkers|history|scenario|runner|report|model|tools|extensions"
    text = PAGE.read_text(encoding="utf-8").replace("rabbitmq_resilience.scenario.documentation", "")
    assert re.findall(rf"\b(?:{rooms})\.[a-z_]+", text) == []


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


class _Wait(Spec):
    seconds: float


class _Titled(Spec, title="wait"):
    seconds: float


def test_a_mapping_is_headed_by_the_field_that_holds_it() -> None:
    class Once(Spec):
        pause: _Wait | None = None
        again: tuple[_Titled, ...] = ()
        later: _Titled | None = None

    assert headings(Once) == {_Wait: "pause", _Titled: "wait"}


def test_a_mapping_of_two_names_needs_a_title(message: Messages) -> None:
    class Twice(Spec):
        pause: _Wait
        rest: _Wait

    with message.of(ValueError):
        headings(Twice)


def test_each_mapping_has_a_heading_on_the_page() -> None:
    on_page = set(re.findall(r"^#+ `?(\w+)`?$", PAGE.read_text(encoding="utf-8").lower(), re.MULTILINE))
    assert set(headings(Scenario).values()) - on_page == set()
