"""Containers of pods as machines: what is run there goes through the API server (exec)."""

from __future__ import annotations

import contextlib
import select
import shlex
import socket
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import urllib3
import websocket
from kubernetes import client
from kubernetes.stream import stream

from rabbitmq_resilience.clusters.attached.kubernetes.pods import Pod, Pods, words_of
from rabbitmq_resilience.clusters.attached.machine import AbsentError, MachineError
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: What starts what comes on standard input: so many bytes, as nobody can end that stream everywhere.
_SHELL = 'script=$(head -c "$1"); exec sh -c "$script" < /dev/null'
#: Bytes from us to a port and back. Whichever side ends first ends both.
_BRIDGE = """
exec 3<> "/dev/tcp/$0/$1" || exit 1
echo connected >&2
exec 4<&0
cat <&3 & cat <&4 >&3 & wait -n
kill %1 %2
"""
_POLL_S = 0.5
#: What bash says where the network has answered; all else tells nothing of the network.
_REFUSALS: Mapping[str, type[OSError]] = {
    "Connection refused": ConnectionRefusedError,
    "No route to host": OSError,
    "unreachable": OSError,
    "timed out": TimeoutError,
}
#: What the client raises where the API server, or the way to it, fails.
FAILURES = (client.ApiException, urllib3.exceptions.HTTPError, websocket.WebSocketException, OSError)


@dataclass(frozen=True)
class ContainerMachine:
    """A container of a pod: ``container`` tells which one, and makes it where that is how it is. ``Machine``."""

    pods: Pods
    pod: str
    container: Callable[[], str | None]
    state: str
    #: What goes before each script.
    first: str = ""

    @property
    def told(self) -> str:
        return f"pod {self.pods.namespace}/{self.pod}"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        whole = f"{self.first}\nset -- {shlex.join(arguments)}\n{script}".encode()
        container = self.container()  # making one takes its own time
        if container is None:
            raise AbsentError(f"{self.told} has no such container, or is no more")
        ends_s = time.monotonic() + timeout_s
        try:
            with self._execution(container, ["sh", "-c", _SHELL, "sh", str(len(whole))]) as running:
                running.write_stdin(whole)
                while running.is_open() and time.monotonic() < ends_s:
                    running.update(timeout=_POLL_S)
                if running.is_open():
                    raise MachineError(f"{self.told}: no answer within {timeout_s:g} s")
                out, err = (running.read_channel(channel).decode(errors="replace") for channel in (1, 2))
                status = running.returncode
        except (*FAILURES, TypeError, KeyError, ValueError) as error:  # of a stream that ended without a status
            raise MachineError(f"{self.told}, container {container}: {words_of(error)}") from error
        if status:
            words = (err or out).strip()[:1000] or "it said nothing"
            raise MachineError(f"{self.told}, container {container}, failed with status {status}: {words}")
        return str(out)

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        """By bash, which must be there."""
        container = self.container()
        if container is None:
            raise AbsentError(f"{self.told} has no such container, or is no more")
        ours, theirs = socket.socketpair()
        connected, failed = threading.Event(), list[str]()

        def carried() -> None:
            try:
                with self._execution(container, ["bash", "-c", _BRIDGE, host, str(port)]) as running:
                    _carry(running, theirs, connected)
                    failed.append(running.read_channel(2).decode(errors="replace").strip())
            except (*FAILURES, ClusterError) as error:
                failed.append(words_of(error))
            finally:
                theirs.close()
                connected.set()

        threading.Thread(target=carried, name=f"bytes to {host}:{port}", daemon=True).start()
        if timeout_s is None:
            return ours
        in_time = connected.wait(timeout_s)
        if failed or not in_time:
            ours.close()
            if not in_time:
                raise TimeoutError(f"{self.told} has no connection to {host}:{port} within {timeout_s:g} s")
            why = f"{self.told} does not reach {host}:{port}: {failed[0]}"
            raise next((kind(why) for words, kind in _REFUSALS.items() if words in failed[0]), MachineError(why))
        return ours

    @contextlib.contextmanager
    def _execution(self, container: str, command: list[str]) -> Iterator[Any]:
        with self.pods.api() as api:
            running = stream(
                api.connect_get_namespaced_pod_exec,
                self.pod,
                self.pods.namespace,
                container=container,
                command=command,
                stdin=True,
                stdout=True,
                stderr=True,
                tty=False,
                _preload_content=False,
                binary=True,
            )
        try:
            yield running
        finally:
            with contextlib.suppress(*FAILURES):
                running.close()
            with contextlib.suppress(*FAILURES):
                running.sock.shutdown()  # where taking leave has failed


def _carry(running: Any, theirs: socket.socket, connected: threading.Event) -> None:
    """Until one side ends."""
    while running.is_open():
        readable, _, _ = select.select([running.sock.sock, theirs], [], [], _POLL_S)
        running.update(timeout=0)
        if not connected.is_set() and b"connected" in running.peek_channel(2):
            running.read_channel(2)
            connected.set()
        if data := running.read_channel(1):
            theirs.sendall(data)
        if theirs in readable:
            sent = theirs.recv(1 << 16)
            if not sent:
                return
            running.write_stdin(sent)


#: By kind, what an ephemeral container may do, and whether it sees the processes of the broker's.
KINDS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "network": (("NET_ADMIN", "NET_RAW"), False),
    "process": (("KILL",), True),
}
STATE = "/tmp/rabbitmq-resilience"  # noqa: S108 - of a container of ours
_STARTED_WITHIN_S = 60.0
#: Lives as long as something is not healed there, or was done there within ten minutes.
_LIVES = f"""
mkdir -p {STATE}
left=600
while [ "$left" -gt 0 ] || [ -n "$(ls {STATE})" ]; do
    sleep 1
    left=$(( left - 1 ))
    [ -e {STATE}.used ] && rm -f {STATE}.used && left=600
done
"""


class EphemeralContainers:
    """Beside brokers, of ``image``, or else of the broker's own: found where one of ours runs, otherwise made. Nobody
    can take one out of a pod again, only end it; a new pod has none."""

    def __init__(self, pods: Pods, *, image: str | None, pull: str) -> None:
        self._pods = pods
        self._image = image
        self._pull = pull
        self._locks: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)

    def machine(self, pod: str, kind: str, *, made: bool = True) -> ContainerMachine:
        """``made``: in a container that is made where there is none."""
        return ContainerMachine(self._pods, pod, lambda: self._name(pod, kind, made=made), STATE, f"touch {STATE}.used")

    def _name(self, pod: str, kind: str, *, made: bool) -> str | None:
        with self._locks[pod, kind]:
            found = self._pods.there(pod) if made else self._pods.find(pod)
            if found is None:
                return None
            prefix = f"resilience-{kind}-"
            here = [name for name in sorted(found.containers) if name.startswith(prefix)]
            if here or not made:
                return here[0] if here else None
            before = [one.name for one in found.raw.spec.ephemeral_containers or () if one.name.startswith(prefix)]
            name = f"{prefix}{len(before) + 1}"
            self._add(pod, kind, name, found.broker_image)
            self._await_started(pod, name)
            return name

    def _add(self, pod: str, kind: str, name: str, broker_image: str) -> None:
        capabilities, beside = KINDS[kind]
        rights = {"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"add": [*capabilities]}}
        container = {
            "name": name,
            "image": self._image or broker_image,
            "imagePullPolicy": self._pull,
            "command": ["sh", "-c", _LIVES],
            "securityContext": rights,
            **({"targetContainerName": self._pods.container} if beside else {}),
        }
        self._pods.ask(
            f"pod {pod} takes no ephemeral container",
            lambda api: api.patch_namespaced_pod_ephemeralcontainers(
                pod, self._pods.namespace, {"spec": {"ephemeralContainers": [container]}}
            ),
        )

    def _await_started(self, pod: str, name: str) -> None:
        try:
            wait_until(
                lambda: self._pods.there(pod),
                timeout_s=_STARTED_WITHIN_S,
                what=f"{name} to start",
                poll_s=_POLL_S,
                until=lambda found: name in found.containers,
            )
        except WaitTimeout as timeout:
            assert isinstance(timeout.last_seen, Pod)
            why = timeout.last_seen.waiting.get(name, "nobody says why")
            raise MachineError(f"the container {name} of pod {pod} does not start: {why}") from timeout
