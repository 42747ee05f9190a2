"""Start, signal and end the containers of one cluster."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import docker
from docker.errors import NotFound
from requests import Timeout
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.model.topology import BrokerSize
from rabbitmq_resilience.sut.broker.files import BrokerFiles
from rabbitmq_resilience.sut.container_protocol import Resources
from rabbitmq_resilience.sut.containers.engine_errors import naming
from rabbitmq_resilience.sut.node_protocol import ProcessState
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_STATES: Mapping[str, ProcessState] = {"running": "running", "paused": "suspended"}
_KILLED_WITHIN_S = 20.0
_FROZEN_WITHIN_S = 20.0
#: The runtime's message when it fails to freeze a container and resumes all processes: one process was in the kernel
#: for over 0.3 s, for example to write to a busy disk (runc 1.1.5 with cgroups of version 1).
_NOT_YET_FROZEN = "unable to freeze"
_CPU_PERIOD_US = 100_000
#: How long to wait for the engine's list of containers.
LISTED_WITHIN_S = 5.0
_LISTED_TIMES_MAX = 4


Made = TypeVar("Made", Network, DockerContainer)


def speaking_by(client: docker.DockerClient, made: Made) -> Made:
    """Let an object of testcontainers use ``client``, and close its own client, which is never closed otherwise."""
    its = made._docker
    its.client.close()
    its.client = client
    return made


class Container:
    """One container, which may be started again after it has ended. Methods raise ``ClusterError``."""

    def __init__(
        self,
        name: str,
        made: DockerContainer,
        client: docker.DockerClient,
        looking: docker.DockerClient,
        *,
        size: BrokerSize | None = None,
    ) -> None:
        """Wrap a new container. ``looking``: a second client with a short timeout, for the engine's list of containers.
        ``size``: the limits of the container at its creation."""
        self.name = name
        self._size = size
        self._made = made
        self._client = client
        self._looking = looking
        self._started = False
        self._address = ""

    @property
    def id(self) -> str:
        return str(self._made.get_container_id())

    @property
    def full_name(self) -> str:
        """Return the container's name in the engine."""
        return str(self._made.get_wrapped_container().name)

    @property
    def address(self) -> str:
        """Return the address on the cluster's network since the last start."""
        return self._address

    def start(self) -> None:
        with self._naming("started"):
            if self._started:
                self._client.api.start(self.id)
            else:
                self._made.start()
            (network,) = self._client.api.inspect_container(self.id)["NetworkSettings"]["Networks"].values()
        self._address = network["IPAddress"] or self._address
        self._started = True  # set last, so that other threads find the address of a started container

    def process(self) -> ProcessState:
        """Return the state from the engine's list, which the engine always gives at once. While it starts or ends a
        container, it answers no detailed query about that container."""
        if not self._started:
            return "gone"
        with self._naming("looked for"):
            listed = _listed(self._looking, self.id)
        return _STATES.get(listed[0]["State"], "gone") if listed else "gone"

    def state(self) -> Mapping[str, Any]:
        """Return the engine's full description of the state: ``Status``, ``ExitCode``, ``StartedAt``, ..."""
        with self._naming("inspected"):
            try:
                return dict(self._client.api.inspect_container(self.id)["State"])
            except NotFound:
                return {"Status": "removed"}

    def exit_status(self) -> int | None:
        """Return the exit status of the last process; None while a process exists, and before the first one."""
        if not self._started or self.process() != "gone":
            return None
        state = self.state()
        return int(state["ExitCode"]) if state["Status"] in ("exited", "dead") else None

    def signal(self, name: str) -> None:
        with self._naming(f"sent {name}"):
            self._client.api.kill(self.id, signal=name)

    def pause(self) -> None:
        with self._naming("paused"):
            self._client.api.pause(self.id)

    def unpause(self) -> None:
        with self._naming("resumed"):
            self._client.api.unpause(self.id)

    def limit(self, *, cpus: float | None, memory_bytes: int | None) -> None:
        """Set the limits. None means the limit at creation, or that of the engine's machine."""
        if self._size is not None:
            cpus, memory_bytes = cpus or self._size.cores, memory_bytes or self._size.memory_bytes
        with self._naming("given other limits"):
            memory = memory_bytes or self._client.info()["MemTotal"]  # the engine cannot remove a limit again
            self._client.api.update_container(self.id, **_limits(cpus, memory))

    def hold_to_size(self) -> None:
        if self._size is not None:
            self.limit(cpus=None, memory_bytes=None)

    def resources(self) -> Resources:
        with self._naming("asked for its usage"):
            return resources_of(self._client, self.id, self._size)

    def printed(self) -> bytes:
        with self._naming("asked for its output"):
            return bytes(self._client.api.logs(self.id))

    def remove(self) -> None:
        with self._naming("removed"):
            self._client.api.remove_container(self.id, force=True, v=True)

    @contextmanager
    def _naming(self, what: str) -> Iterator[None]:
        """Turn errors of the engine into a ``ClusterError`` that names the container and what failed."""
        with naming(f"the container of {self.name} could not be {what}"):
            yield


def _listed(client: docker.DockerClient, container: str) -> Sequence[Mapping[str, Any]]:
    """Return the engine's list, restricted to that container. The engine usually answers at once. It once did not
    answer for a minute (Docker Engine 20.10.24), so the query is soon repeated on another connection."""
    for _ in range(_LISTED_TIMES_MAX - 1):
        with suppress(Timeout):
            return list(client.api.containers(all=True, filters={"id": container}))
    return list(client.api.containers(all=True, filters={"id": container}))


def limited_to(size: BrokerSize | None, *, forming: bool = False) -> dict[str, Any]:
    """Return the engine's options for a new container of that size. They limit no cores while the cluster is
    ``forming``."""
    return {} if size is None else _limits(None if forming else size.cores, size.memory_bytes)


def _limits(cpus: float | None, memory_bytes: int) -> dict[str, Any]:
    return {
        "mem_limit": memory_bytes,
        "memswap_limit": memory_bytes,
        "cpu_period": _CPU_PERIOD_US,
        "cpu_quota": -1 if cpus is None else round(cpus * _CPU_PERIOD_US),
    }


def resources_of(client: docker.DockerClient, container: str, size: BrokerSize | None = None) -> Resources:
    """Return the limits and usage of a container. ``size``: its limits at creation. Raise docker's errors."""
    limits = client.api.inspect_container(container)["HostConfig"]
    stats = client.api.stats(container, stream=False, one_shot=True)
    total_bytes = client.info()["MemTotal"]
    cpu, memory = stats["cpu_stats"], stats["memory_stats"]
    return Resources(
        unlimited=_is_as_made(limits, total_bytes, size),
        cpu_s=cpu["cpu_usage"]["total_usage"] / 1e9,
        waited_s=cpu["throttling_data"].get("throttled_time", 0) / 1e9,
        memory_bytes=int(memory.get("limit", total_bytes)),
        memory_used_bytes=int(memory.get("usage", 0)),
    )


def _is_as_made(limits: Mapping[str, Any], total_bytes: int, size: BrokerSize | None) -> bool:
    memory_bytes = limits["Memory"] or total_bytes
    if size is None:
        return bool(limits["CpuQuota"] <= 0 and memory_bytes >= total_bytes)
    made = limited_to(size)
    return bool(limits["CpuQuota"] == made["cpu_quota"] and memory_bytes == made["mem_limit"])


class Signals(Protocol):
    """A way to signal and freeze containers. Callers check the effect. Methods raise ``ClusterError``."""

    def send(self, container: Container, name: str) -> None:
        """Send a signal such as SIGTERM to the first process of the container."""
        ...

    def freeze(self, container: Container) -> None: ...

    def thaw(self, container: Container) -> None: ...

    def close(self) -> None:
        """End all running calls."""
        ...


class EngineSignals:
    """Signal by the container engine itself."""

    def send(self, container: Container, name: str) -> None:
        container.signal(name)

    def freeze(self, container: Container) -> None:
        container.pause()

    def thaw(self, container: Container) -> None:
        container.unpause()

    def close(self) -> None:
        """Do nothing: no call is held open."""


class ContainerPlace:
    """The container of one broker or program, whose process can be started again after it has ended. Its output is in
    ``log``."""

    def __init__(self, container: Container, signals: Signals, *, log: Path) -> None:
        self._container = container
        self._signals = signals
        self._log = log

    @property
    def life(self) -> str | None:
        state = self._container.state()
        return f"the process of {state['StartedAt']}" if state["Status"] in ("running", "paused") else None

    @property
    def exit_status(self) -> int | None:
        return self._container.exit_status()

    def state(self) -> ProcessState:
        return self._container.process()

    def start(self) -> None:
        if self.state() != "gone":
            raise ClusterError(f"{self._container.name} cannot be started: its process is still there")
        self._container.start()

    def kill(self) -> None:
        if self.state() == "suspended":
            self.resume()  # the engine does not kill frozen processes
        self._signal("SIGKILL")
        self._await("gone", timeout_s=_KILLED_WITHIN_S)

    def stop(self, *, timeout_s: float) -> None:
        """Send SIGTERM, on which the Erlang VM shuts the broker down gracefully. Return when the process is gone."""
        self._signal("SIGTERM")
        self._await("gone", timeout_s=timeout_s)

    def pause(self) -> None:
        """Freeze the processes. Try again while a process is busy in the kernel."""

        def refused() -> str:
            try:
                self._signals.freeze(self._container)
            except ClusterError as error:
                if _NOT_YET_FROZEN not in str(error):
                    raise
                return str(error)
            return ""

        what = f"the process of {self._container.name} to be frozen"
        try:
            wait_until(refused, timeout_s=_FROZEN_WITHIN_S, what=what, until=lambda said: not said)
        except WaitTimeout as error:
            raise ClusterError(str(error)) from error

    def resume(self) -> None:
        self._signals.thaw(self._container)

    def _signal(self, name: str) -> None:
        if self.state() == "gone":
            raise ClusterError(f"{self._container.name} cannot be sent {name}: its process is gone")
        self._signals.send(self._container, name)

    def _await(self, wanted: ProcessState, *, timeout_s: float) -> None:
        what = f"the process of {self._container.name} to be {wanted}"
        try:
            wait_until(self.state, timeout_s=timeout_s, poll_s=0.02, what=what, until=lambda state: state == wanted)
        except WaitTimeout as error:
            raise ClusterError(f"{error}; see {self._log}") from error


class BrokerContainer(ContainerPlace):
    """The container of one node. A restarted process finds the files of the previous one."""

    def __init__(self, container: Container, files: BrokerFiles, signals: Signals) -> None:
        super().__init__(container, signals, log=files.log)
        self._files = files
        self._output_begins = 0

    @property
    def has_booted(self) -> bool:
        return self._files.says_booted(since=self._output_begins)

    def start(self) -> None:
        if self.state() == "gone":
            self._files.traffic.unlink(missing_ok=True)
            output = self._files.output
            self._output_begins = output.stat().st_size if output.exists() else 0
        super().start()


class RunningContainer:
    """The container of a program. Its output is saved to ``log`` when it has ended."""

    def __init__(self, container: Container, log: Path) -> None:
        self._container = container
        self._log = log

    @property
    def exit_status(self) -> int | None:
        status = self._container.exit_status()
        if status is not None:
            self._log.write_bytes(self._container.printed())
        return status

    def close(self) -> None:
        try:
            self._log.write_bytes(self._container.printed())
        finally:
            self._container.remove()
