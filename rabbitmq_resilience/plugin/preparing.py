"""Prepare a scenario for the fixture ``play``: its seed, the cluster that it has to fit, its broker.

This module imports nothing heavy, like the plugin; heavy modules are imported for the first scenario.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from rabbitmq_resilience.plugin import options

if TYPE_CHECKING:
    from rabbitmq_resilience.runner.environments import Environment, Environments
    from rabbitmq_resilience.runner.judging import Result
    from rabbitmq_resilience.scenario.model import Scenario


class Checked(BaseException):
    """End a test whose scenario was only checked, and can be played; the rest of the test needs a run."""


def ignore(_: Result) -> None:
    """Do nothing with a result."""


def seeded(scenario: Scenario, config: pytest.Config) -> Scenario:
    """Return the scenario with the seed that the options name, if they name one."""
    seed = options.value(config, "seed")
    return scenario if seed is None else scenario.model_copy(update={"seed": seed})


def fitted(scenario: Scenario, config: pytest.Config) -> Scenario:
    """Return the scenario with the nodes and settings of an attached cluster; skip the test if it cannot play it."""
    file = options.folder(config, "cluster")
    if file is None:
        return scenario
    from rabbitmq_resilience.extension_points import provided
    from rabbitmq_resilience.model.errors import NotPlayableError

    try:
        found: Scenario = provided("attached clusters").fitted(scenario, file)
    except NotPlayableError as error:
        pytest.skip(str(error))
    return found


def at_home(scenario: Scenario, version: str | None, grounds: Environments) -> Environment:
    """Return the home of that version, or the first one that fits; skip the test if that version cannot play it."""
    from rabbitmq_resilience.runner.environments import reason_against

    if version is None:
        return grounds.of(scenario)
    if reason := reason_against(version, scenario):
        pytest.skip(reason)
    return grounds.at(None, version)
