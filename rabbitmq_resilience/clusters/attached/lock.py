"""One run at a time on a cluster: an exclusive queue, which belongs to a connection and ends with it.

So a run that is killed leaves no lock. While the node of the connection is away the lock is taken anew at another one.
"""

from __future__ import annotations

import getpass
import logging
import os
import socket
import threading
import time
from collections.abc import Sequence
from contextlib import suppress

from pika import BlockingConnection, ConnectionParameters
from pika.exceptions import AMQPError, ChannelClosedByBroker

from rabbitmq_resilience.clusters.access import Access, Endpoint
from rabbitmq_resilience.clusters.errors import ClusterError
from rabbitmq_resilience.tools.closing import Closing

QUEUE = "rabbitmq-resilience.lock"
#: AMQP 0-9-1, 1.1: the queue is exclusive to another connection.
RESOURCE_LOCKED = 405

_TURN_S = 0.5
_TAKEN_WITHIN_S = 15.0
_HEARTBEAT_S = 10
#: For so long brokers may hold a connection of ours for alive that is gone, as where all of them have paused.
_OURS_GOES_WITHIN_S = 3 * _HEARTBEAT_S


class LockedError(ClusterError):
    """Another run has the cluster."""


class ClusterLock(Closing):
    """Held from now until ``close`` (or leaving the context). Raises ``LockedError``, and ``ClusterError`` where no
    node lets it be taken."""

    def __init__(self, access: Access, endpoints: Sequence[Endpoint], *, vhost: str) -> None:
        self._access = access
        self._endpoints = list(endpoints)
        self._vhost = vhost
        self._closed = threading.Event()
        self._held = threading.Event()
        self._holding = False
        self._lost: str = ""
        self._trouble = ""
        self._thread = threading.Thread(target=self._hold, name="cluster-lock", daemon=True)
        self._thread.start()
        if not self._held.wait(_TAKEN_WITHIN_S) or self._lost:
            self.close()
            raise (
                LockedError(self._lost)
                if self._lost
                else ClusterError(
                    f"the lock of the cluster ({QUEUE} in the virtual host {vhost}) could not be taken: {self._trouble}"
                )
            )

    def check(self) -> None:
        """Raises LockedError once another run has taken it, which it can while ours reaches no node."""
        if self._lost:
            raise LockedError(self._lost)

    def close(self) -> None:
        self._closed.set()
        self._thread.join()

    def _hold(self) -> None:
        logging.getLogger("pika").setLevel(logging.CRITICAL)  # nodes that are killed are no news
        turn, ours_until_s = 0, 0.0
        while not self._closed.is_set() and not self._lost:
            endpoint = self._endpoints[turn % len(self._endpoints)]
            turn += 1
            try:
                try:
                    self._hold_at(endpoint)
                finally:
                    if self._holding:
                        self._holding, ours_until_s = False, time.monotonic() + _OURS_GOES_WITHIN_S
            except ChannelClosedByBroker as error:
                if error.reply_code == RESOURCE_LOCKED and time.monotonic() > ours_until_s:
                    self._lost = f"another run has this cluster: {QUEUE} in the virtual host {self._vhost} is taken"
                    self._held.set()
                self._trouble = str(error)
            except (AMQPError, OSError) as error:
                self._trouble = f"{endpoint.host}:{endpoint.port}: {type(error).__name__} {error}".strip()
            self._closed.wait(_TURN_S)

    def _hold_at(self, endpoint: Endpoint) -> None:
        parameters = ConnectionParameters(
            **self._access.parameters(endpoint),
            virtual_host=self._vhost,
            heartbeat=_HEARTBEAT_S,
            socket_timeout=2,
            stack_timeout=5,
            blocked_connection_timeout=None,
            client_properties={"connection_name": f"rabbitmq-resilience, the lock of {our_name()}"},
        )
        connection = BlockingConnection(parameters)
        try:
            connection.channel().queue_declare(QUEUE, exclusive=True)
            self._held.set()
            self._holding = True
            while not self._closed.is_set():
                connection.process_data_events(time_limit=_TURN_S)
        finally:
            with suppress(AMQPError, OSError):
                if connection.is_open:
                    connection.close()


def our_name() -> str:
    """Of this process, for people. In a container its user often has a number and no name."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        user = f"user {os.getuid()}"
    return f"{user}@{socket.gethostname()}, process {os.getpid()}"
