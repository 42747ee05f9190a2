"""Collect the cells of a sweep file as tests."""

from __future__ import annotations

from collections.abc import Iterable

import pytest

from rabbitmq_resilience.extensions.sweeps import sweep_file
from rabbitmq_resilience.extensions.sweeps.results import ResultsError
from rabbitmq_resilience.extensions.sweeps.sweep_player import SweepInPlay
from rabbitmq_resilience.model.yaml_files import FileRefusedError
from rabbitmq_resilience.plugin.collecting import WHOLE_GRID, ScenarioModule
from rabbitmq_resilience.plugin.options import BY_NAME, driver, runs_folder, value
from rabbitmq_resilience.tools.entry_points import ExtensionError


class SweepFile(ScenarioModule):
    """A sweep file, with a test for each cell and round that was not played yet, in the order of rounds."""

    def collect(self) -> Iterable[pytest.Item]:
        """Yield the tests. Raise CollectError with everything that is wrong, or if its results cannot be continued."""

        self._refuse_options_of_scenarios()
        checks_only = bool(value(self.config, "check-only"))
        whole = WHOLE_GRID in (self.config.option.markexpr or "")
        try:
            sweep = sweep_file.load(self.path, driver=driver(self.config))
            name = self.path.name.removesuffix(".yaml").removesuffix(".yml").removesuffix(".sweep")
            in_play = SweepInPlay(sweep, runs_folder(self.config).parent / "sweeps" / name, self.config.rootpath)
            turns = in_play.turns(whole=whole)
        except (ExtensionError, FileRefusedError, ResultsError) as error:
            raise self.CollectError(str(error)) from None
        for turn in turns:
            yield self.item(
                turn.name,
                in_play.test(turn, checks_only=checks_only),
                [*turn.cell.scenario.markers, *[WHOLE_GRID] * whole],
            )

    def _refuse_options_of_scenarios(self) -> None:
        """Raise CollectError for ``--repeat`` and ``--seed``: with them, the texts about the results would be wrong."""
        for option, field in (("repeat", "repeats"), ("seed", "seed")):
            if value(self.config, option) != BY_NAME[option].default:
                raise self.CollectError(f"--{option} is not for sweeps: write {field} into {self.path.name}")
