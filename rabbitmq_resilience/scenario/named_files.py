"""The files that a scenario names: configuration of brokers, and alerting rules."""

from __future__ import annotations

import hashlib
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path

from rabbitmq_resilience.model.yaml_files import Location
from rabbitmq_resilience.scenario.model import Scenario
from rabbitmq_resilience.workload.application_model import ApplicationWorkload

#: Fields of the topology.
CONFIGURATION = ("rabbitmq_conf", "advanced_config", "definitions")


def with_whole_paths(scenario: Scenario, folder: Path) -> Scenario:
    """Return the scenario with absolute names of files, which were relative to ``folder``."""
    if isinstance(scenario.workload, ApplicationWorkload):
        placed = scenario.workload.with_folders(lambda path: (folder / path).resolve())
        scenario = scenario.model_copy(update={"workload": placed})
    return _renamed(
        scenario,
        configuration=lambda path: (folder / path).resolve(),
        rules=[(folder / path).resolve() for path in scenario.rule_files],
    )


def with_copies(scenario: Scenario, folder: Path) -> Scenario:
    """Return the scenario with copies of its files, made in ``folder``."""
    pairs = zip(scenario.rule_files, rule_copies(scenario), strict=True)
    return _renamed(
        scenario,
        configuration=lambda path: _copy(path, folder, Path("configuration", path.name)),
        rules=[_copy(path, folder, copy) for path, copy in pairs],
    )


def with_digests(scenario: Scenario) -> Scenario:
    """Return the scenario with the SHA-256 digests of its files in place of their names. It is the same from every
    folder, and changes if a file changes."""
    if isinstance(scenario.workload, ApplicationWorkload):
        placed = scenario.workload.with_folders(lambda path: Path(path.name))
        scenario = scenario.model_copy(update={"workload": placed})
    return _renamed(scenario, configuration=_digest, rules=[_digest(path) for path in scenario.rule_files])


def rule_copies(scenario: Scenario) -> list[Path]:
    """Return the names that ``with_copies`` gives to the rule files. They are numbered, as two files in different
    folders may have the same name."""
    return [Path("rules", f"{i}-{path.name}") for i, path in enumerate(scenario.rule_files)]


def missing_files(scenario: Scenario) -> Iterator[tuple[Location, str]]:
    named: list[tuple[Location, Path | None]] = [
        (("topology", name), getattr(scenario.topology, name)) for name in CONFIGURATION
    ]
    single = isinstance(scenario.rules, Path)
    named += [(("rules",) if single else ("rules", i), path) for i, path in enumerate(scenario.rule_files)]
    for location, path in named:
        if path is not None and not path.is_file():
            yield location, f"there is no file {path}; it is looked for relative to the fault file"


def _renamed(scenario: Scenario, *, configuration: Callable[[Path], Path], rules: list[Path]) -> Scenario:
    given = {name: path for name in CONFIGURATION if (path := getattr(scenario.topology, name)) is not None}
    if given:
        scenario = scenario.with_topology(**{name: configuration(path) for name, path in given.items()})
    if not rules:
        return scenario
    return scenario.model_copy(update={"rules": rules[0] if isinstance(scenario.rules, Path) else tuple(rules)})


def _copy(original: Path, folder: Path, name: Path) -> Path:
    (folder / name).parent.mkdir(exist_ok=True)
    shutil.copyfile(original, folder / name)
    return name


def _digest(path: Path) -> Path:
    return Path(hashlib.sha256(path.read_bytes()).hexdigest())
