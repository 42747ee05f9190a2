"""Containers of one cluster: how they are started, signalled and ended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Protocol, TypeVar

import docker
from docker.errors import DockerException, NotFound
from requests import RequestException, Timeout
from testcontainers.core.container import DockerContainer
from testcontainers.core.network import Network

from rabbitmq_resilience.clusters.broker.files import BrokerFiles
from rabbitmq_resilience.clusters.container_protocol import Resources
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.clusters.protocol import ProcessState
from rabbitmq_resilience.clusters.spec import BrokerSize
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

_STATES: Mapping[str, ProcessState] = {"running": "running", "paused": "suspended"}
_KILLED_WITHIN_S = 20.0
_FROZEN_WITHIN_S = 20.0
#: What the runtime says when it gives up and lets all processes go on: one sat in the kernel for over 0.3 s, as a write
#: to a busy disk may (runc 1.1.5 with cgroups of version 1).
_NOT_YET_FROZEN = "unable to freeze"
_CPU_PERIOD_US = 100_000
#: How patient the client must be that asks the engine for its list.
LISTED_WITHIN_S = 5.0
_LISTED_TIMES_MAX = 4


Made = TypeVar("Made", Network, DockerContainer)


def speaking_by(client: docker.DockerClient, made: Made) -> Made:
    """What testcontainers makes has a client of its own, which is never closed: let it speak by ``client``."""
    its = made._docker
    its.client.close()
    its.client = client
    return made


class Container:
    """One container, which may be started again after it has ended. Raises ``ClusterError``."""

    def __init__(
        self,
        name: str,
        made: DockerContainer,
        client: docker.DockerClient,
        looking: docker.DockerClient,
        *,
        size: BrokerSize | None = None,
    ) -> None:
        """``looking``: another client, of short patience, which asks the engine for its list. ``size``: what it was
        made with."""
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
        """By which the engine knows it, and everybody who asks the engine."""
        return str(self._made.get_wrapped_container().name)

    @property
    def address(self) -> str:
        """On the cluster's network, where it was when it was started last."""
        return self._address

    def start(self) -> None:
        with self._telling("started"):
            if self._started:
                self._client.api.start(self.id)
            else:
                self._made.start()
            (network,) = self._client.api.inspect_container(self.id)["NetworkSettings"]["Networks"].values()
        self._address = network["IPAddress"] or self._address
        self._started = True  # who looks at it from another thread finds its address

    def process(self) -> ProcessState:
        """From the engine's list, which it gives at once: while it starts or ends a container, it answers nobody who
        wants to know more of that one."""
        if not self._started:
            return "gone"
        with self._telling("looked for"):
            listed = _listed(self._looking, self.id)
        return _STATES.get(listed[0]["State"], "gone") if listed else "gone"

    def state(self) -> Mapping[str, Any]:
        """All that the engine tells of it: ``Status``, ``ExitCode``, ``StartedAt``, ..."""
        with self._telling("looked at"):
            try:
                return dict(self._client.api.inspect_container(self.id)["State"])
            except NotFound:
                return {"Status": "removed"}

    def exit_status(self) -> int | None:
        """None while the process is there, and where it never was."""
        if not self._started or self.process() != "gone":
            return None
        state = self.state()
        return int(state["ExitCode"]) if state["Status"] in ("exited", "dead") else None

    def signal(self, name: str) -> None:
        with self._telling(f"sent {name}"):
            self._client.api.kill(self.id, signal=name)

    def pause(self) -> None:
        with self._telling("paused"):
            self._client.api.pause(self.id)

    def unpause(self) -> None:
        with self._telling("resumed"):
            self._client.api.unpause(self.id)

    def limit(self, *, cpus: float | None, memory_bytes: int | None) -> None:
        """None: as much as it was made with, or as the engine's machine has."""
        if self._size is not None:
            cpus, memory_bytes = cpus or self._size.cores, memory_bytes or self._size.memory_bytes
        with self._telling("given other limits"):
            memory = memory_bytes or self._client.info()["MemTotal"]  # the engine knows no way back to none
            self._client.api.update_container(self.id, **_limits(cpus, memory))

    def hold_to_size(self) -> None:
        if self._size is not None:
            self.limit(cpus=None, memory_bytes=None)

    def resources(self) -> Resources:
        with self._telling("asked what it uses"):
            return resources_of(self._client, self.id, self._size)

    def printed(self) -> bytes:
        with self._telling("asked what it printed"):
            return bytes(self._client.api.logs(self.id))

    def remove(self) -> None:
        with self._telling("removed"):
            self._client.api.remove_container(self.id, force=True, v=True)

    @contextmanager
    def _telling(self, what: str) -> Iterator[None]:
        try:
            yield
        except (DockerException, RequestException) as error:
            raise ClusterError(f"the container of {self.name} could not be {what}: {error}") from error


def _listed(client: docker.DockerClient, container: str) -> Sequence[Mapping[str, Any]]:
    """The engine's list, of that container only. It gives it at once; but once it did not answer for a minute (Docker
    Engine 20.10.24), so it is soon asked again, on another connection."""
    for _ in range(_LISTED_TIMES_MAX - 1):
        with suppress(Timeout):
            return list(client.api.containers(all=True, filters={"id": container}))
    return list(client.api.containers(all=True, filters={"id": container}))


def limited_to(size: BrokerSize | None, *, forming: bool = False) -> dict[str, Any]:
    """What the engine is told when it makes a container of that size; of its cores nothing yet while it is ``forming``
    a cluster."""
    return {} if size is None else _limits(None if forming else size.cores, size.memory_bytes)


def _limits(cpus: float | None, memory_bytes: int) -> dict[str, Any]:
    return {
        "mem_limit": memory_bytes,
        "memswap_limit": memory_bytes,
        "cpu_period": _CPU_PERIOD_US,
        "cpu_quota": -1 if cpus is None else round(cpus * _CPU_PERIOD_US),
    }


def resources_of(client: docker.DockerClient, container: str, size: BrokerSize | None = None) -> Resources:
    """``size``: what it was made with. Raises docker's errors."""
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
    """How the processes of containers are signalled and frozen; neither is believed. Raises ``ClusterError``."""

    def send(self, container: Container, name: str) -> None:
        """A signal such as SIGTERM, to the first process of the container."""
        ...

    def freeze(self, container: Container) -> None: ...

    def thaw(self, container: Container) -> None: ...

    def close(self) -> None:
        """Ends what is under way."""
        ...


class EngineSignals:
    def send(self, container: Container, name: str) -> None:
        container.signal(name)

    def freeze(self, container: Container) -> None:
        container.pause()

    def thaw(self, container: Container) -> None:
        container.unpause()

    def close(self) -> None:
        """Nothing is held open."""


class ContainerPlace:
    """The container of one broker or program, whose process can be started again after it has ended. What it prints is
    in ``log``."""

    def __init__(self, container: Container, signals: Signals, *, log: Path) -> None:
        self._container = container
        self._signals = signals
        self._log = log

    @property
    def life(self) -> str | None:
        told = self._container.state()
        return f"the process of {told['StartedAt']}" if told["Status"] in ("running", "paused") else None

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
            self.resume()  # the engine kills nobody who is frozen
        self._signal("SIGKILL")
        self._await("gone", timeout_s=_KILLED_WITHIN_S)

    def stop(self, *, timeout_s: float) -> None:
        """SIGTERM, on which the Erlang machine shuts the broker down in order."""
        self._signal("SIGTERM")
        self._await("gone", timeout_s=timeout_s)

    def pause(self) -> None:
        """Freezing is asked for again while a process is still busy in the kernel."""

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
    """The container of one node; a process that is started again finds the files of the one before."""

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
    """The container of a program. Its output is kept in ``log`` when it has ended."""

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
