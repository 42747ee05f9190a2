"""Use containers of pods as machines: scripts run there through the API server (exec)."""

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

from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pod, Pods, words_of
from rabbitmq_resilience.extensions.attached.machine import AbsentError, MachineError
from rabbitmq_resilience.model.errors import ClusterError
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: Runs the script on standard input. Its length is an argument, as not every API server passes on the end of a stream.
_SHELL = 'script=$(head -c "$1"); exec sh -c "$script" < /dev/null'
#: Carries bytes between us and a port. If one side ends, both end.
_BRIDGE = """
exec 3<> "/dev/tcp/$0/$1" || exit 1
echo connected >&2
exec 4<&0
cat <&3 & cat <&4 >&3 & wait -n
kill %1 %2
"""
_POLL_S = 0.5
#: Words of bash if the network has answered, with the error to raise. Other words say nothing about the network.
_REFUSALS: Mapping[str, type[OSError]] = {
    "Connection refused": ConnectionRefusedError,
    "No route to host": OSError,
    "unreachable": OSError,
    "timed out": TimeoutError,
}
#: What the client raises if the API server, or the connection to it, fails.
FAILURES = (client.ApiException, urllib3.exceptions.HTTPError, websocket.WebSocketException, OSError)


@dataclass(frozen=True)
class ContainerMachine:
    """A container of a pod, used as a ``Machine``. ``container`` returns its name; it may make the container first."""

    pods: Pods
    pod: str
    container: Callable[[], str | None]
    state: str
    #: Shell commands that run before each script.
    first: str = ""

    @property
    def description(self) -> str:
        """Return the name of the pod for messages."""
        return f"pod {self.pods.namespace}/{self.pod}"

    def run(self, script: str, *arguments: str, timeout_s: float = 20.0) -> str:
        """Run the script in the container by ``sh``; return its output.

        Raise MachineError if it fails or takes too long, and AbsentError if there is no such container."""
        whole = f"{self.first}\nset -- {shlex.join(arguments)}\n{script}".encode()
        container = self.container()  # this may make one, which has its own time limit
        if container is None:
            raise AbsentError(f"{self.description} has no such container, or is no more")
        ends_s = time.monotonic() + timeout_s
        try:
            with self._execution(container, ["sh", "-c", _SHELL, "sh", str(len(whole))]) as running:
                running.write_stdin(whole)
                while running.is_open() and time.monotonic() < ends_s:
                    running.update(timeout=_POLL_S)
                if running.is_open():
                    raise MachineError(f"{self.description}: no answer within {timeout_s:g} s")
                out, err = (running.read_channel(channel).decode(errors="replace") for channel in (1, 2))
                status = running.returncode
        except (*FAILURES, TypeError, KeyError, ValueError) as error:  # the last three: no status at the stream's end
            raise MachineError(f"{self.description}, container {container}: {words_of(error)}") from error
        if status:
            words = (err or out).strip()[:1000] or "no output"
            raise MachineError(f"{self.description}, container {container}, failed with status {status}: {words}")
        return str(out)

    def connect(self, host: str, port: int, *, timeout_s: float | None) -> socket.socket:
        """Return a socket that is connected to the port from inside the container; the container needs bash."""
        container = self.container()
        if container is None:
            raise AbsentError(f"{self.description} has no such container, or is no more")
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
                raise TimeoutError(f"{self.description} has no connection to {host}:{port} within {timeout_s:g} s")
            why = f"{self.description} does not reach {host}:{port}: {failed[0]}"
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
                running.sock.shutdown()  # if the closing handshake has failed


def _carry(running: Any, theirs: socket.socket, connected: threading.Event) -> None:
    """Carry bytes in both directions until one side ends; set ``connected`` once the port has answered."""
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


#: By kind of ephemeral container: its capabilities, and whether it sees the processes of the broker's container.
KINDS: Mapping[str, tuple[tuple[str, ...], bool]] = {
    "network": (("NET_ADMIN", "NET_RAW"), False),
    "process": (("KILL",), True),
}
STATE = "/tmp/rabbitmq-resilience"  # noqa: S108 - of a container of ours
_STARTED_WITHIN_S = 60.0
#: Ends ten minutes after its last use, but not before everything there is healed.
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
    """Our ephemeral containers in the pods of brokers.

    A running one is used again; otherwise a new one is made, from ``image`` or from the broker's own image. Kubernetes
    cannot remove an ephemeral container from a pod: it can only end. A new pod has none."""

    def __init__(self, pods: Pods, *, image: str | None, pull: str) -> None:
        self._pods = pods
        self._image = image
        self._pull = pull
        self._locks: defaultdict[tuple[str, str], threading.Lock] = defaultdict(threading.Lock)

    def machine(self, pod: str, kind: str, *, made: bool = True) -> ContainerMachine:
        """Return the ephemeral container of that kind in the pod. ``made``: make one at first use if none runs."""
        return ContainerMachine(self._pods, pod, lambda: self._name(pod, kind, made=made), STATE, f"touch {STATE}.used")

    def _name(self, pod: str, kind: str, *, made: bool) -> str | None:
        with self._locks[pod, kind]:
            found = self._pods.get(pod) if made else self._pods.find(pod)
            if found is None:
                return None
            prefix = f"resilience-{kind}-"
            # A container of the pod itself may be called like ours.
            before = [one.name for one in found.raw.spec.ephemeral_containers or () if one.name.startswith(prefix)]
            here = sorted({*before} & found.containers)
            if here or not made:
                return here[0] if here else None
            name = f"{prefix}{len(before) + 1}"
            self._add(pod, kind, name, found.broker_image)
            self._await_started(pod, name)
            return name

    def _add(self, pod: str, kind: str, name: str, broker_image: str) -> None:
        capabilities, sees_broker = KINDS[kind]
        rights = {"runAsUser": 0, "runAsNonRoot": False, "capabilities": {"add": [*capabilities]}}
        container = {
            "name": name,
            "image": self._image or broker_image,
            "imagePullPolicy": self._pull,
            "command": ["sh", "-c", _LIVES],
            "securityContext": rights,
            **({"targetContainerName": self._pods.container} if sees_broker else {}),
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
                lambda: self._pods.get(pod),
                timeout_s=_STARTED_WITHIN_S,
                what=f"{name} to start",
                poll_s=_POLL_S,
                until=lambda found: name in found.containers,
            )
        except WaitTimeout as timeout:
            assert isinstance(timeout.last_seen, Pod)
            why = timeout.last_seen.waiting.get(name, "Kubernetes gives no reason")
            raise MachineError(f"the container {name} of pod {pod} does not start: {why}") from timeout
