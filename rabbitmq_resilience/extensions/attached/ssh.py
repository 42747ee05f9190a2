"""Reach machines by ssh (asyncssh), each by one connection that is opened when needed, and again after it was lost."""

from __future__ import annotations

import asyncio
import shlex
import socket
import threading
from collections.abc import Coroutine
from concurrent.futures import Future
from concurrent.futures import TimeoutError as NotInTime
from pathlib import Path
from typing import Any, TypeVar

import asyncssh

from rabbitmq_resilience.extensions.attached import watchdog
from rabbitmq_resilience.extensions.attached.machine import MachineError
from rabbitmq_resilience.extensions.attached.offers import Ssh
from rabbitmq_resilience.tools.closing import Closing

Answer = TypeVar("Answer")

#: Always passed on, as a configuration file could otherwise switch off the check of host keys.
_KNOWN_HOSTS = Path("~/.ssh/known_hosts")
_CONNECTED_WITHIN_S = 10.0
#: A connection without an answer for so long counts as lost.
_KEEPALIVE_S = 5.0


class SshLoop(Closing):
    """The I/O loop of all ssh connections, in a thread of its own."""

    def __init__(self) -> None:
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, name="ssh", daemon=True)
        self._thread.start()

    def begin(self, work: Coroutine[Any, Any, Answer]) -> Future[Answer]:
        return asyncio.run_coroutine_threadsafe(work, self._loop)

    def wait(self, work: Coroutine[Any, Any, Answer], *, timeout_s: float) -> Answer:
        """Return the result of ``work``. Raise TimeoutError if it takes longer, and what ``work`` raises."""
        return self.await_end(self.begin(work), timeout_s=timeout_s)

    def await_end(self, future: Future[Answer], *, timeout_s: float) -> Answer:
        """Return the result of ``future``. Raise TimeoutError if it takes longer, and what its work raises."""
        try:
            return future.result(timeout_s)
        except NotInTime:
            future.cancel()
            raise TimeoutError(f"no answer within {timeout_s:g} s") from None

    def close(self) -> None:
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join()
        self._loop.close()


class SshMachine(Closing):
    """The machine of one node."""

    def __init__(self, loop: SshLoop, ssh: Ssh, *, host: str, folder: Path) -> None:
        """Connect to nothing yet. ``folder``: paths in ``ssh`` are relative to it."""
        self._loop = loop
        self._ssh = ssh
        self._host = host
        self._folder = folder
        self._connection: asyncssh.SSHClientConnection | None = None
        self._connecting = asyncio.Lock()

    state = watchdog.STATE

    @property
    def description(self) -> str:
        return f"ssh {self._ssh.user}@{self._host}"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        shell = "sudo -n sh" if self._ssh.sudo else "sh"
        command = " ".join([shell, "-s", "--", *map(shlex.quote, arguments)])

        async def answered() -> asyncssh.SSHCompletedProcess:
            connection = await self._connected()
            return await connection.run(command, input=script, check=False)

        try:
            done = self._loop.wait(answered(), timeout_s=timeout_s + _CONNECTED_WITHIN_S)
        except (OSError, ValueError, asyncssh.Error) as error:  # TimeoutError is an OSError; keys raise ValueError
            raise MachineError(f"{self.description}: {error or type(error).__name__}") from error
        if done.exit_status != 0:
            words = str(done.stderr or done.stdout or "").strip() or "it printed nothing"
            raise MachineError(f"{self.description} failed with status {done.exit_status}: {words[:1000]}")
        return str(done.stdout)

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        """Return a connection over a channel of the ssh connection (direct-tcpip), which the machine itself opens."""
        ours, theirs = socket.socketpair()
        theirs.setblocking(False)
        bridging = self._loop.begin(self._bridge(theirs, host, port))
        if timeout_s is None:
            return ours
        try:
            self._loop.await_end(bridging, timeout_s=timeout_s)
        except BaseException as error:
            ours.close()
            if isinstance(error, asyncssh.Error):
                raise ConnectionError(f"{self.description} does not reach {host}:{port}: {error}") from error
            raise
        return ours

    def close(self) -> None:
        async def ended() -> None:
            if self._connection is not None:
                self._connection.abort()
                self._connection = None

        self._loop.wait(ended(), timeout_s=_CONNECTED_WITHIN_S)

    async def _connected(self) -> asyncssh.SSHClientConnection:
        async with self._connecting:
            if self._connection is None or self._connection.is_closed():
                key, config = self._ssh.key, self._ssh.config
                options: dict[str, Any] = {} if key is None else {"client_keys": [str(self._folder / key)]}
                self._connection = await asyncssh.connect(
                    self._host,
                    self._ssh.port,
                    username=self._ssh.user,
                    known_hosts=str(self._folder / (self._ssh.known_hosts or _KNOWN_HOSTS.expanduser())),
                    config=None if config is None else [str(self._folder / config)],
                    connect_timeout=_CONNECTED_WITHIN_S,
                    keepalive_interval=_KEEPALIVE_S,
                    **options,
                )
            return self._connection

    async def _bridge(self, theirs: socket.socket, host: str, port: int) -> None:
        """Connect the far side, and return; bytes are passed on until one side closes."""
        try:
            connection = await self._connected()
            far_in, far_out = await connection.open_connection(host, port)
        except BaseException:
            theirs.close()
            raise
        near_in, near_out = await asyncio.open_connection(sock=theirs)
        tasks = [asyncio.ensure_future(_pump(near_in, far_out)), asyncio.ensure_future(_pump(far_in, near_out))]
        _KEPT.update(tasks)
        for task in tasks:
            task.add_done_callback(_KEPT.discard)


#: References to running tasks: a task without one may be garbage-collected.
_KEPT: set[asyncio.Future[None]] = set()


async def _pump(source: Any, sink: Any) -> None:
    try:
        while data := await source.read(1 << 16):
            sink.write(data)
            await sink.drain()
    except (OSError, asyncssh.Error):
        pass
    finally:
        sink.close()
