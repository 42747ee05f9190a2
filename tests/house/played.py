"""List what a fault file can state, and which of it no scenario of this project states.

Files are read as YAML and suites as syntax trees, since to collect them takes seconds. A field of a fault or of an
invariant counts under the name of its owner (``kill.node``); any other field counts by its name alone.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator, Mapping
from typing import Any

import yaml
from pydantic import BaseModel

from rabbitmq_resilience.checkers.checker_catalogue import INVARIANTS
from rabbitmq_resilience.checkers.checker_catalogue import OURS as OUR_INVARIANTS
from rabbitmq_resilience.nemesis.fault_catalogue import OURS as OUR_FAULTS
from rabbitmq_resilience.nemesis.fault_catalogue import name_of
from rabbitmq_resilience.nemesis.scheduled_fault import ScheduledFault
from rabbitmq_resilience.scenario.documentation import models_in
from rabbitmq_resilience.scenario.model import Scenario
from tests.house.structure import ROOT

#: What no scenario states, and why.
NOT_PLAYED: Mapping[str, str] = {
    "drain_node": "needs a Kubernetes: tests/clusters/attached/test_machines_of_pods_on_kubernetes.py plays it there",
    "rolling_restart": "as drain_node",
    "image": "needs the image of a program: tests/workloads/test_application_on_engine.py plays one",
    "broker_size": "of sweeps with prices: sweeps/sizing.sweep.yaml gives brokers the size of each machine",
    "memory_mb": "of broker_size",
    "upgrade.unsupported": "allows an upgrade of which nothing is promised",
}
_FOLDERS = ("faults", "presets", "topologies", "sweeps", "examples")
#: Python that makes scenarios.
_BUILDERS = ("suites/*.py", "rabbitmq_resilience/scenario/guarantees.py")
_FAULTS = {name_of(fault): fault for fault in OUR_FAULTS}
_FAULT_OF_CLASS = {fault.__name__: name for name, fault in _FAULTS.items()}
_OWNED = {**_FAULTS, **OUR_INVARIANTS}


def can_be_stated() -> set[str]:
    """Return the names of all faults, invariants and fields."""
    found = set(_OWNED)
    shared = set(ScheduledFault.model_fields) | {"fault"}
    for owner, model in _OWNED.items():
        found |= {f"{owner}.{name}" for name in model.model_fields if name not in shared}
    inside: list[type[BaseModel]] = [Scenario, ScheduledFault]
    inside += [each for model in _OWNED.values() for each in _values(model)]
    known: set[type[BaseModel]] = set()
    while inside:
        inner = inside.pop()
        if inner in known or (issubclass(inner, ScheduledFault) and inner is not ScheduledFault):
            continue
        known.add(inner)
        if inner.__name__ != "Invariants":
            found |= set(inner.model_fields)
            inside += _values(inner)
    return found


def _values(model: type[BaseModel]) -> Iterator[type[BaseModel]]:
    for field in model.model_fields.values():
        yield from models_in(field.annotation)


def stated() -> set[str]:
    """Return the names that the scenarios of this project state."""
    found: set[str] = set()
    for folder in _FOLDERS:
        for path in (ROOT / folder).rglob("*.yaml"):
            if "results" not in path.parts:
                found |= set(_in_yaml(yaml.load(path.read_text(encoding="utf-8"), Loader=yaml.CSafeLoader)))
    for pattern in _BUILDERS:
        for path in ROOT.glob(pattern):
            found |= set(_in_python(ast.parse(path.read_text(encoding="utf-8"))))
    return found


def _in_yaml(value: Any, *, owner: str = "") -> Iterator[str]:
    """Yield the names in a mapping or a list; ``owner`` is the fault or the invariant whose mapping it is."""
    if isinstance(value, list):
        for each in value:
            yield from _in_yaml(each)
    if not isinstance(value, dict):
        return
    owner = owner or str(value.get("fault", ""))
    if owner:
        yield owner
    for name, inner in value.items():
        if owner and name not in ScheduledFault.model_fields:
            yield f"{owner}.{name}"
        else:
            yield from str(name).split(".")  # an axis of a sweep: topology.statistics_interval_s
        if name == "invariants" and isinstance(inner, dict):
            for invariant, bounds in inner.items():
                yield from _in_yaml(bounds or {}, owner=invariant)
        else:
            yield from _in_yaml(inner)


def _in_python(tree: ast.Module) -> Iterator[str]:
    """Yield the names of keyword arguments and of keys, of faults by their classes, and of invariants.

    A keyword or a key counts for each fault whose class the module uses, as steps are also made by functions.
    """
    nodes = list(ast.walk(tree))
    faults = {_FAULT_OF_CLASS[node.id] for node in nodes if isinstance(node, ast.Name) and node.id in _FAULT_OF_CLASS}
    words = {node.arg for node in nodes if isinstance(node, ast.keyword) and node.arg}
    words |= {node.value for node in nodes if isinstance(node, ast.Constant) and isinstance(node.value, str)}
    yield from faults | words
    yield from (f"{fault}.{word}" for fault in faults for word in words)
    for node in nodes:
        if isinstance(node, ast.Dict):
            for key, bounds in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and key.value in INVARIANTS and isinstance(bounds, ast.Dict):
                    inner = (one.value for one in bounds.keys if isinstance(one, ast.Constant))
                    yield from (f"{key.value!s}.{name!s}" for name in inner)


def not_played() -> Iterator[str]:
    """Yield each name that no scenario states and that has no reason, and each reason that is needed no more."""
    there = stated()
    missing = (name for name in can_be_stated() - there if not {name, name.partition(".")[0]} & NOT_PLAYED.keys())
    yield from (f"{name}: no scenario states it" for name in sorted(missing))
    yield from (f"{name}: a scenario states it" for name in sorted(NOT_PLAYED.keys() & there))
