"""Collect fault files, sweep files and recorded runs as tests of pytest; a file is read only when it is collected."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from rabbitmq_resilience.plugin.options import driver, folder
from rabbitmq_resilience.plugin.sessions import homes_asked

SUFFIXES = (".fault.yaml", ".fault.yml")
SWEEP_SUFFIXES = (".sweep.yaml", ".sweep.yml")
#: The marker of cells of a sweep file that are for larger machines.
WHOLE_GRID = "whole_grid"
#: The keys of every fault file; YAML files without them are for other plugins.
KEYS = frozenset({"title", "topology", "invariants"})

#: The run directories that are to be judged again.
RECHECKED = pytest.StashKey[frozenset[Path]]()
#: The files given as fault files by an option, no matter what their names and contents are.
GIVEN = pytest.StashKey[frozenset[Path]]()


def collected(path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Return the collector of a file, or None if the file is not ours.

    Fault files and sweep files are ours in any folder. Another YAML file is ours if it was named and states a scenario.
    """
    rechecked = parent.config.stash.get(RECHECKED, frozenset())
    given = parent.config.stash.get(GIVEN, frozenset())
    if rechecked and path.parent.resolve() in rechecked:
        return RecordedRun.from_parent(parent, path=path) if path.name == "fault.yaml" else None
    if path.name.endswith(SWEEP_SUFFIXES):
        return _sweep_file(parent, path)
    if path.name.endswith(SUFFIXES) or (given and path.resolve() in given):
        return FaultFile.from_parent(parent, path=path)
    if path.suffix in (".yaml", ".yml") and parent.session.isinitpath(path) and _states_a_scenario(path):
        return FaultFile.from_parent(parent, path=path)
    return None


def _sweep_file(parent: pytest.Collector, path: Path) -> pytest.Collector:
    """Return the collector of a sweep file. Raise pytest.UsageError if the extension for sweeps is not installed."""
    from rabbitmq_resilience.extension_points import ExtensionMissingError, provided

    try:
        found: pytest.Collector = provided("sweep files").from_parent(parent, path=path)
    except ExtensionMissingError as error:
        raise pytest.UsageError(f"{path}: {error}") from None
    return found


def require_scenarios(rechecked: Iterable[Path]) -> None:
    """Raise pytest.UsageError if a run directory has no scenario that can be judged again."""
    from rabbitmq_resilience.history.run_directory import RunDirectoryError
    from rabbitmq_resilience.runner.judging import reopened

    try:
        for path in rechecked:
            reopened(path)
    except RunDirectoryError as error:
        raise pytest.UsageError(str(error)) from None


def _states_a_scenario(path: Path) -> bool:
    import yaml

    try:
        found = yaml.safe_load(path.read_text(encoding="utf-8"))
    except Exception:  # the file may hold anything
        return False
    return isinstance(found, dict) and len(KEYS & found.keys()) > 1


class ScenarioItem(pytest.Function):
    """One scenario of a file, or one recorded run."""

    def reportinfo(self) -> tuple[os.PathLike[str] | str, int | None, str]:
        return self.path, None, self.name


class ScenarioModule(pytest.Module):
    """A module of pytest without Python code: ``collect`` makes its tests."""

    def _getobj(self) -> ModuleType:
        return ModuleType(self.path.name.partition(".")[0])

    def item(self, name: str, test: Callable[..., None], markers: Iterable[str] = ()) -> ScenarioItem:
        item = ScenarioItem.from_parent(self, name=name, callobj=test)
        for marker in markers:
            item.add_marker(marker)
        return item


class FaultFile(ScenarioModule):
    """A fault file, with a test for each version on which its scenario is played."""

    def collect(self) -> Iterable[pytest.Item]:
        """Yield the tests. Raise CollectError with everything that is wrong in the file."""
        from rabbitmq_resilience.tools.entry_points import ExtensionError

        try:
            from rabbitmq_resilience.extension_points import provided
            from rabbitmq_resilience.model.yaml_files import FileRefusedError
            from rabbitmq_resilience.scenario import fault_file

            scenario = fault_file.load(self.path, driver=driver(self.config))
            cluster = folder(self.config, "cluster")
            if cluster is not None:
                provided("attached clusters").check(scenario, cluster, source=str(self.path))
        except ExtensionError as error:
            raise self.CollectError(str(error)) from None
        except FileRefusedError as error:
            raise self.CollectError(str(error)) from None

        def plays(play: Callable[..., Any], *, on: str | None = None) -> None:
            play(scenario, tries=scenario.tries, home=on)

        for version in homes_asked(self.config) or (None,):
            name = scenario.title if version is None else f"{scenario.title}[{version}]"
            yield self.item(name, partial(plays, on=version), scenario.markers)


class RecordedRun(ScenarioModule):
    """A recorded run, with one test that judges it again."""

    def collect(self) -> Iterable[pytest.Item]:
        from rabbitmq_resilience.history.run_directory import RunDirectory
        from rabbitmq_resilience.report.terminal import outcome_line
        from rabbitmq_resilience.runner.judging import judge_run
        from rabbitmq_resilience.scenario.fault_file import FaultFileError

        run = RunDirectory(self.path.parent)

        def judges(resilience_accept: Callable[..., Any], resilience_show: Callable[[str], None]) -> None:
            problem = ""
            try:
                result = judge_run(run)
                resilience_show(outcome_line(result.document, run.path))
                resilience_accept(result)
            except FaultFileError as error:
                problem = str(error)
            if problem:  # raised outside of the handler, so that pytest does not show the first error as its context
                pytest.fail(problem, pytrace=False)

        yield self.item(run.name, judges)
