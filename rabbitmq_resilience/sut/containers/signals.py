"""Signal and freeze brokers in containers: by Pumba if it is installed, otherwise by the engine itself.

Callers do not rely on either. They check the process after each signal.
"""

from __future__ import annotations

import os
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.sut.containers.container import Container, EngineSignals, Signals
from rabbitmq_resilience.sut.containers.pumba import PumbaCall
from rabbitmq_resilience.tools.distributions import ToolMissingError, find_pumba
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_FROZEN_WITHIN_S = 20.0
#: Pumba requires a duration, and ends earlier on SIGTERM.
_FROZEN_AT_MOST = "12h"


@dataclass
class PumbaSignals:
    """Signal by Pumba. ``folder`` is the cluster's; it identifies calls that are left behind. ``log`` gets Pumba's
    output."""

    program: Path
    folder: Path
    log: Path
    _freezing: dict[str, PumbaCall] = field(default_factory=dict, init=False)

    def send(self, container: Container, name: str) -> None:
        self._call("kill", "--signal", name, container.full_name).await_end()

    def freeze(self, container: Container) -> None:
        """Freeze the container. Return once it is frozen. The call of Pumba lasts until ``thaw``."""
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
        if before is not None:  # the earlier call has ended by itself
            before.close()

    def thaw(self, container: Container) -> None:
        call = self._freezing.pop(container.id, None)
        if call is not None:
            call.close()
        if container.process() == "suspended":
            container.unpause()

    def close(self) -> None:
        """End all calls, also those for containers that are gone."""
        with ExitStack() as each:
            while self._freezing:
                each.callback(self._freezing.popitem()[1].close)

    def _call(self, *arguments: str) -> PumbaCall:
        return PumbaCall(self.program, arguments, folder=self.folder, log=self.log)


def signals(folder: Path, log: Path) -> Signals:
    """Return signals by Pumba if it is installed, otherwise by the engine. Raise ``ToolMissingError`` if the variable
    PUMBA does not name the program."""
    try:
        return PumbaSignals(find_pumba(), folder, log)
    except ToolMissingError:
        if os.environ.get("PUMBA"):
            raise
        return EngineSignals()
