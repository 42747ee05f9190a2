"""Forward ports of this machine to ports of pods, through the API server (port-forward).

Each accepted connection gets a connection of its own, to the pod that has the name at that time.
"""

from __future__ import annotations

import contextlib
import socket
import threading
import weakref
from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

from kubernetes.stream import portforward

from rabbitmq_resilience.extensions.attached.cluster_file import KnownCluster
from rabbitmq_resilience.extensions.attached.cluster_model import AttachedNode, forwarded_port
from rabbitmq_resilience.extensions.attached.kubernetes.containers import FAILURES
from rabbitmq_resilience.extensions.attached.kubernetes.pods import Pods, configured
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: How long to wait for the end of a port-forward whose connection has ended.
ENDS_WITHIN_S = 5.0
_SCHEMES = {"amqp": "amqp", "management": "http", "prometheus": "http"}


class Tunnel(Closing):
    """Forward ``port`` of this machine to a port of a pod, until ``close``. ``close`` ends the connections too."""

    def __init__(self, pods: Pods, pod: str, pod_port: int) -> None:
        self._pods = pods
        self._pod = pod
        self._pod_port = pod_port
        self._listening = socket.create_server(("127.0.0.1", 0))
        self._open: set[Any] = set()
        self._closed = False
        threading.Thread(target=self._accept, name=f"port-forward to {pod}:{pod_port}", daemon=True).start()

    @property
    def port(self) -> int:
        return int(self._listening.getsockname()[1])

    def close(self) -> None:
        self._closed = True
        with contextlib.suppress(OSError):  # some systems refuse this for a listening socket
            self._listening.shutdown(socket.SHUT_RDWR)
        self._listening.close()
        for one in list(self._open):
            with contextlib.suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)

    def _accept(self) -> None:
        while not self._closed:
            try:
                near, _ = self._listening.accept()
            except OSError:
                return
            threading.Thread(target=self._forward, args=(near,), daemon=True).start()

    def _forward(self, near: socket.socket) -> None:
        try:
            with self._pods.api() as api:
                forwarded = portforward(
                    api.connect_get_namespaced_pod_portforward,
                    self._pod,
                    self._pods.namespace,
                    ports=str(self._pod_port),
                )
        except FAILURES:
            near.close()
            return
        far = forwarded.socket(self._pod_port)
        self._open |= {near, far}
        back = threading.Thread(target=_pump, args=(far, near), daemon=True)
        back.start()
        _pump(near, far)
        back.join()
        self._open -= {near, far}
        near.close()
        forwarded.close()
        websocket, used = forwarded.websocket, weakref.ref(forwarded)
        del forwarded
        _end(websocket, used)


def _end(websocket: Any, used: weakref.ref[Any]) -> None:
    """Close the connection of a port-forward once the library's thread no longer uses it.

    The thread ends when it sees that our end is closed. If it waits for other data, shut down its input. The thread may
    leave the connection open, and would break if we closed the connection sooner."""
    if not _comes_true(lambda: used() is None, within_s=ENDS_WITHIN_S):
        with contextlib.suppress(OSError, AttributeError):  # the thread may have ended just now
            socket.socket.shutdown(websocket.sock, socket.SHUT_RDWR)  # shutdown() of TLS would change the reading side
        _comes_true(lambda: used() is None, within_s=ENDS_WITHIN_S)
    with contextlib.suppress(*FAILURES):
        websocket.shutdown()


def _comes_true(look: Callable[[], bool], *, within_s: float) -> bool:
    try:
        return wait_until(look, timeout_s=within_s, what="the end of a port-forward")
    except WaitTimeout:
        return False


def _pump(source: Any, sink: Any) -> None:
    """Carry bytes until the source ends; then shut down the sink and the source."""
    with contextlib.suppress(*FAILURES):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for one in (sink, source):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def forwarded(known: KnownCluster) -> Iterator[KnownCluster]:
    """Yield the same cluster, with addresses of this machine in place of the ``port-forward`` addresses."""
    offer = known.stated.offers.kubernetes
    assert offer is not None, "port-forward addresses need it"
    pods = Pods(configured(offer, known.path.resolve().parent), offer.namespace, offer.container)
    with contextlib.ExitStack() as stack:

        def here(node: AttachedNode) -> AttachedNode:
            changed: dict[str, str] = {}
            for field, scheme in _SCHEMES.items():
                port = forwarded_port(getattr(node, field))
                if port is not None:
                    tunnel = stack.enter_context(Tunnel(pods, offer.pod_of(node.name), port))
                    changed[field] = f"{scheme}://127.0.0.1:{tunnel.port}"
            return node.model_copy(update=changed)

        nodes = tuple(here(node) for node in known.stated.nodes)
        yield replace(known, stated=known.stated.model_copy(update={"nodes": nodes}))
