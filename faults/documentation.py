"""The page of everything that a fault file may state: generated from the definitions and their docstrings.

.venv/bin/python -m faults.documentation > docs/fault-files.md
"""

from __future__ import annotations

import inspect
import json
import sys
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from typing import Any, get_args

from pydantic import BaseModel

from faults import targets
from faults.catalogue import AnyFault
from faults.conditions import When
from faults.scenario import Expectation, Phases, Scenario
from faults.schema import schema
from faults.step import Step
from invariants.catalogue import INVARIANTS
from reports.table import table_line
from topologies.drivers import DRIVERS
from topologies.spec import PauseIfAllDown, Topology
from workloads.spec import Mirroring, ProcessingStep, QueueLimits, RateStep, Workload

_HEAD = """# What a fault file may state

Generated from the definitions by `python -m faults.documentation`. The README tells how such a file is played; in an
editor that knows the YAML language server, a first line `# yaml-language-server: $schema=fault-file.schema.json`, with
the path of [that file](fault-file.schema.json), completes and checks what is written here.
"""

#: What each fault's example says beside when it is: the fields that it needs, and those that show it best.
EXAMPLES: Mapping[str, str] = {
    "partition": 'between: ["zone:c", "rest"]',
    "disconnect": 'between: ["c1", "rest"]',
    "flapping": 'between: ["zone:a", "zone:b"], period_s: 2',
    "latency": 'links: "zone:a <-> zone:b", latency_ms: 80, jitter_ms: 20',
    "kill": 'node: "leader:q1"',
    "kill_client": 'client: "publisher:0"',
    "pause": "node: b1",
    "stop": "node: b1, drain: true",
    "lose_disk": 'node: "follower:q1"',
    "alarm": "node: a1, resource: memory",
    "packet_loss": 'links: "zone:a -> zone:c", percent: 5',
    "packet_delay": 'links: "zone:a <-> zone:c", delay_ms: 50, jitter_ms: 10',
    "packet_duplicate": 'links: "zone:a -> zone:c", percent: 5',
    "packet_corrupt": 'links: "zone:a -> zone:c", percent: 1',
    "packet_rate": 'links: "zone:a -> zone:c", rate_kbit_per_s: 2000',
    "limit": "node: b1, cpus: 0.5",
    "disk_full": "node: b1, disk_bytes: 300000000",
    "clock": "node: b1, jump_s: 3600",
    "upgrade": 'node: b1, to: "3.11.28", drain: true',
    "stress": "node: b1, cpu_workers: 2",
    "purge_queue": "queue: q1",
    "delete_queue": "queue: q1",
    "rebalance": "",
}


def page() -> str:
    """Markdown."""
    faults = get_args(get_args(AnyFault)[0])
    sections = [
        [_HEAD],
        _section("The file", Scenario),
        _section("topology", Topology, also=[PauseIfAllDown]),
        _section("workload", Workload, also=[Mirroring, QueueLimits, RateStep, ProcessingStep]),
        _section("phases", Phases),
        _section("schedule: every step", Step),
        ["### Targets", "", _text(targets), ""],
        _section("when: conditions", When, also=_conditions()),
        ["## Faults", ""],
        *(_fault(fault) for fault in faults),
        ["## Invariants", ""],
        *(_section(f"`{name}`", checker, level=3, of=checker) for name, checker in INVARIANTS.items()),
        _section("expect", Expectation),
    ]
    return "\n".join(line for section in sections for line in section).rstrip() + "\n"


def _conditions() -> list[type[BaseModel]]:
    return [get_args(field.annotation)[0] for field in When.model_fields.values()]


def _section(
    title: str, model: type[BaseModel], *, also: Sequence[type[BaseModel]] = (), level: int = 2, of: object = None
) -> list[str]:
    lines = [f"{'#' * level} {title}", ""]
    if of is not None:
        lines += [_text(sys.modules[model.__module__]), ""]
    lines += [_text(model), "", *_fields(model)]
    for inner in also:
        lines += _section(f"`{inner.__name__}`", inner, level=level + 1)
    return lines


def _fault(fault: type[Step]) -> list[str]:
    name = str(fault.model_fields["fault"].default)
    acts_on = fault.acts_on  # type: ignore[attr-defined]
    drivers = [driver for driver, found in DRIVERS.items() if acts_on in found.offers]
    own = {field for field in fault.model_fields if field not in Step.model_fields and field != "fault"}
    example = ", ".join(["at_s: 2", "for_s: 15", f"fault: {name}", *([EXAMPLES[name]] if EXAMPLES[name] else [])])
    return [
        f"### `{name}`",
        "",
        _text(sys.modules[fault.__module__]),
        "",
        _text(fault),
        "",
        f"Acts on {acts_on}; played by the driver{'s' if len(drivers) > 1 else ''} {' and '.join(drivers)}.",
        "",
        *_fields(fault, only=own),
        "```yaml",
        f"- {{{example}}}",
        "```",
        "",
    ]


def _text(told: object) -> str:
    """A docstring as Markdown: what is a table in it stays one by being shown as it is."""
    text = inspect.cleandoc(getattr(told, "__doc__", None) or "").replace("``", "`")
    if "======" not in text:
        return text
    before, _, table = text.partition("\n======")
    rows = [line for line in f"======{table}".replace("`", "").splitlines() if not line.startswith("=====")]
    return "\n".join([before, "```", *rows, "```"])


@cache
def _definitions() -> Mapping[str, Any]:
    whole = schema()
    return {**whole["$defs"], "Scenario": whole, "Step": Step.model_json_schema()}


def _fields(model: type[BaseModel], *, only: set[str] | None = None) -> list[str]:
    """A table of a definition's own fields; nothing where it has none."""
    made = _definitions()
    properties = made[model.__name__]["properties"]
    required = made[model.__name__].get("required", ())
    rows = [
        table_line((f"`{name}`", _kind(told), "needed" if name in required else _default(told)))
        for name, told in properties.items()
        if only is None or name in only
    ]
    return [table_line(("field", "what it takes", "default")), "| --- | --- | --- |", *rows, ""] if rows else []


def _default(told: Mapping[str, Any]) -> str:
    value = told.get("default")
    return (
        "" if value is None or value in ([], {}) else f"`{json.dumps(value) if not isinstance(value, str) else value}`"
    )


def _kind(told: Mapping[str, Any]) -> str:
    if "anyOf" in told or "oneOf" in told:
        kinds = [_kind(one) for one in told.get("anyOf", told.get("oneOf", ())) if one.get("type") != "null"]
        return "any of the faults below" if "oneOf" in told else ", or ".join(kinds)
    if "$ref" in told:
        return f"`{str(told['$ref']).rpartition('/')[2]}`"
    if "enum" in told or "const" in told:
        return " or ".join(f"`{value}`" for value in told.get("enum", [told.get("const")]))
    kind = str(told.get("type", "anything"))
    if kind == "array":
        sizes = list(_bounds(told, "minItems", "maxItems"))
        return " ".join(["a list of", _kind(told.get("items", {})), *([f"({' '.join(sizes)})"] if sizes else [])])
    if kind == "object":
        return "a mapping"
    names = {"string": "text", "integer": "a whole number", "number": "a number", "boolean": "`true` or `false`"}
    bounds = _bounds(told, "minimum", "maximum") if kind != "string" else []
    return " ".join([names.get(kind, kind), *bounds])


def _bounds(told: Mapping[str, Any], least: str, most: str) -> Iterator[str]:
    if least in told:
        yield f"from {told[least]:,}".replace(",", " ")
    if "exclusiveMinimum" in told:
        yield f"over {told['exclusiveMinimum']:,}".replace(",", " ")
    if most in told:
        yield f"to {told[most]:,}".replace(",", " ")


if __name__ == "__main__":
    print(page(), end="")
