"""Read the properties that a broker sends before a login: Connection.Start (AMQP 0-9-1, 1.4.2.1)."""

from __future__ import annotations

import socket
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any

from pika.exceptions import AMQPError
from pika.frame import decode_frame
from pika.spec import Connection

from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.sut.broker.handshake import AMQP_GREETING

_BYTES_MAX = 1 << 17


def server_properties(endpoint: Endpoint, access: Access, *, timeout_s: float) -> Mapping[str, Any]:
    """Return the broker's properties, such as ``cluster_name`` and ``version``. This sends no user and no password.
    Raise OSError if no broker answers."""
    with ExitStack() as stack:
        connected = stack.enter_context(socket.create_connection((endpoint.host, endpoint.port), timeout=timeout_s))
        if endpoint.tls_name:
            connected = stack.enter_context(access.tls().wrap_socket(connected, server_hostname=endpoint.tls_name))
        connected.sendall(AMQP_GREETING.message)
        answer = b""
        while len(answer) < _BYTES_MAX and (more := connected.recv(1 << 12)):
            answer += more
            try:
                _, found = decode_frame(answer)
            except AMQPError as error:
                raise ConnectionError(f"the server that answers speaks no AMQP 0-9-1 ({error!r})") from error
            if found is not None:
                if not isinstance(getattr(found, "method", None), Connection.Start):
                    break
                properties: Mapping[str, Any] = found.method.server_properties
                return properties
    raise ConnectionError("the server that answers speaks no AMQP 0-9-1")
