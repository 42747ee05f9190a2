"""Ports of this machine that lead to ports of pods, through the API server (port-forward).

A connection is made anew for each that is accepted, to whatever pod has the name by then.
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

from rabbitmq_resilience.clusters.attached.cluster_file import KnownCluster
from rabbitmq_resilience.clusters.attached.kubernetes.containers import FAILURES
from rabbitmq_resilience.clusters.attached.kubernetes.pods import Pods, configured
from rabbitmq_resilience.clusters.attached.spec import AttachedNode, forwarded_port
from rabbitmq_resilience.tools.closing import Closing
from rabbitmq_resilience.tools.waiting import WaitTimeout, wait_until

#: A connection is not kept longer than that for what its end has to say.
ENDS_WITHIN_S = 5.0
_SCHEMES = {"amqp": "amqp", "management": "http", "prometheus": "http"}


class Tunnel(Closing):
    """``port`` of this machine, until ``close``, which ends its connections too."""

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
        with contextlib.suppress(OSError):  # it may have no end to shut down
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
    """The library's own thread is all that still uses the port-forward. It ends when it sees that our end is closed;
    where it waits for something else, it is told that nothing comes any more. It may leave its connection open, and to
    close that any sooner would break the thread."""
    if not _comes_true(lambda: used() is None, within_s=ENDS_WITHIN_S):
        with contextlib.suppress(OSError, AttributeError):  # it may have ended just now
            socket.socket.shutdown(websocket.sock, socket.SHUT_RDWR)  # not that of TLS, which changes what is read from
        _comes_true(lambda: used() is None, within_s=ENDS_WITHIN_S)
    with contextlib.suppress(*FAILURES):
        websocket.shutdown()


def _comes_true(look: Callable[[], bool], *, within_s: float) -> bool:
    try:
        return wait_until(look, timeout_s=within_s, what="the end of a port-forward")
    except WaitTimeout:
        return False


def _pump(source: Any, sink: Any) -> None:
    """Until the source ends; then the sink is told so, and in the end so is the source."""
    with contextlib.suppress(*FAILURES):
        while data := source.recv(1 << 16):
            sink.sendall(data)
    for one in (sink, source):
        with contextlib.suppress(OSError):
            one.shutdown(socket.SHUT_RDWR)


@contextlib.contextmanager
def forwarded(known: KnownCluster) -> Iterator[KnownCluster]:
    """The same cluster, with addresses of this machine for those that are ports of pods."""
    offer = known.stated.offers.kubernetes
    assert offer is not None, "such addresses go with it"
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
