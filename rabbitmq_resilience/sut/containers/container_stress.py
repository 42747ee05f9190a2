"""Run stress-ng next to one container, started by Pumba: it takes CPU, memory and disk.

Pumba runs stress-ng in a separate container. If the engine's cgroup driver is cgroupfs, that container is inside the
control group of the node's container, and shares the node's limits. With systemd it is outside
(docs/stress-testing.md of alexei-led/pumba). Pumba does not report which container it is, so the stressors are marked.
"""

from __future__ import annotations

import secrets
from contextlib import suppress
from typing import Any

from docker.errors import NotFound

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.stressors import Stressors
from rabbitmq_resilience.sut.container_protocol import Resources
from rabbitmq_resilience.sut.containers.container import resources_of
from rabbitmq_resilience.sut.containers.engine_client import PUMBA_LABEL
from rabbitmq_resilience.sut.containers.engine_errors import naming
from rabbitmq_resilience.sut.containers.pumba import OVERTIME_S, Pumba, PumbaCall
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_STARTED_WITHIN_S = 30.0
_GONE_WITHIN_S = 20.0


class StressedNode:
    """A node with stress-ng in its company, until ``close``."""

    def __init__(self, pumba: Pumba, node: str, stressors: Stressors, *, image: str, for_s: float) -> None:
        """Start stress-ng. Return once it runs. Raise ``ClusterError`` if it does not start."""
        self._node = node
        self._client = pumba.client
        # stress-ng must not end before Pumba ends it; otherwise Pumba looks for a container that is gone.
        self._words = list(stressors.words(for_s=for_s + 2 * OVERTIME_S, mark=secrets.randbelow(2**31)))
        options = ("--duration", f"{for_s + OVERTIME_S:.0f}s", "--stress-image", image, "--pull-image=false")
        name = pumba.containers[node].full_name
        self._call = pumba.call("stress", *options, "--stressors", " ".join(self._words), name)
        self._within = pumba.containers[node].id
        try:
            self._found = self._await_start(self._call)
        except BaseException:
            self._call.close()
            raise

    def resources(self) -> Resources | None:
        """Return what stress-ng uses; None once it is gone."""
        if self._seek() is None:
            return None
        with naming("stress-ng could not be asked for its usage"), suppress(NotFound):
            return resources_of(self._client, str(self._found.id))
        return None

    @property
    def is_within_limits(self) -> bool:
        """Return whether stress-ng shares the limits of the node's container."""
        return self._within in str(self._found.attrs["HostConfig"]["CgroupParent"])

    def close(self) -> None:
        ended = self._call.exit_status
        self._call.close()
        try:
            wait_until(lambda: self._seek() is None, timeout_s=_GONE_WITHIN_S, what="stress-ng to be gone")
        except WaitTimeout as error:
            raise ClusterError(f"{self._node}: {error}") from error
        if ended is not None:
            raise ClusterError(f"Pumba had ended with status {ended}, and stress-ng with it")

    def _await_start(self, call: PumbaCall) -> Any:
        def look() -> Any:
            call.check()
            return self._seek()

        try:
            return wait_until(look, timeout_s=_STARTED_WITHIN_S, what=f"stress-ng to start next to {self._node}")
        except WaitTimeout as error:
            raise ClusterError(str(error)) from error

    def _seek(self) -> Any:
        with naming("the engine does not list its containers"):
            there = self._client.containers.list(filters={"label": PUMBA_LABEL}, ignore_removed=True)
        return next((found for found in there if found.attrs["Config"]["Cmd"] == self._words), None)
