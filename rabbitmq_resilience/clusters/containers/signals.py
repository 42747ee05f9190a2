"""How brokers in containers are signalled and frozen: by Pumba where there is one, else by the engine itself.

Neither is believed. Who sent a signal looks at the process afterwards.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rabbitmq_resilience.clusters.containers.container import Container, EngineSignals, Signals
from rabbitmq_resilience.clusters.containers.pumba import PumbaCall
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.tools.distributions import ToolMissingError, find_pumba
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_FROZEN_WITHIN_S = 20.0
#: Pumba wants to know for how long, and ends earlier when it is told to.
_FROZEN_AT_MOST = "12h"


@dataclass
class PumbaSignals:
    """``folder`` is the cluster's, by which a call that is left behind is known; ``log`` gets what Pumba says."""

    program: Path
    folder: Path
    log: Path
    _freezing: dict[str, PumbaCall] = field(default_factory=dict, init=False)

    def send(self, container: Container, name: str) -> None:
        self._call("kill", "--signal", name, container.full_name).await_end()

    def freeze(self, container: Container) -> None:
        """Returns once the container is frozen: a call of Pumba lasts as long as it is."""
        call = self._call("pause", "--duration", _FROZEN_AT_MOST, container.full_name)

        def frozen() -> bool:
            call.check()
            return container.process() == "suspended"

        try:
            wait_until(frozen, timeout_s=_FROZEN_WITHIN_S, what=f"Pumba to freeze {container.name}")
        except (WaitTimeout, ClusterError) as error:
            call.close()
            raise ClusterError(f"{error}; see {self.log}") from error
        before, self._freezing[container.id] = self._freezing.get(container.id), call
        if before is not None:  # it ended by itself
            before.close()

    def thaw(self, container: Container) -> None:
        call = self._freezing.pop(container.id, None)
        if call is not None:
            call.close()
        if container.process() == "suspended":
            container.unpause()

    def close(self) -> None:
        """End all calls, also of containers that are gone."""
        with ExitStack() as each:
            while self._freezing:
                each.callback(self._freezing.popitem()[1].close)

    def _call(self, *arguments: str) -> PumbaCall:
        return PumbaCall(self.program, arguments, folder=self.folder, log=self.log)


def signals(folder: Path, log: Path) -> Signals:
    """Those of Pumba where there is one. Raises ``ToolMissingError`` where PUMBA names something else."""
    try:
        return PumbaSignals(find_pumba(), folder, log)
    except ToolMissingError:
        if os.environ.get("PUMBA"):
            raise
        return EngineSignals()
