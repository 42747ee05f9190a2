"""Purge a queue over AMQP, which reports how many messages the purge has dropped.

The management API does not report the number; ``queue.purge-ok`` has it (AMQP 0-9-1, 50.31).
"""

from __future__ import annotations

from typing import Any

from pika import ConnectionParameters, SelectConnection

from rabbitmq_resilience.model.access import Access, Endpoint
from rabbitmq_resilience.model.errors import ClusterError

#: How long to wait for the end of the connection. A broker that does not answer does not answer its end either.
_CLOSED_WITHIN_S = 2.0


def purge_queue(access: Access, endpoint: Endpoint, *, vhost: str, queue: str, timeout_s: float) -> int:
    """Purge a queue on a new connection. Return how many ready messages the broker reports as dropped. Raise
    ``ClusterError`` if the queue is not purged within ``timeout_s``."""
    dropped: list[int] = []
    trouble = [f"no answer came within {timeout_s:g} s"]

    def end(why: object) -> None:
        trouble.append(str(why))
        if connection.is_open:
            connection.close()
        elif connection.is_closed:
            connection.ioloop.stop()

    def purged(answer: Any) -> None:
        dropped.append(answer.method.message_count)
        end("it is done")

    def opened(channel: Any) -> None:
        channel.add_on_close_callback(lambda _, reason: end(reason))
        channel.queue_purge(queue, callback=purged)

    connection: Any = SelectConnection(
        ConnectionParameters(**access.parameters(endpoint), virtual_host=vhost, connection_attempts=1),
        on_open_callback=lambda connection: connection.channel(on_open_callback=opened),
        on_open_error_callback=lambda _, error: end(error),
        on_close_callback=lambda _, reason: end(reason),
    )
    connection.ioloop.call_later(timeout_s, lambda: end(trouble[0]))
    connection.ioloop.call_later(timeout_s + _CLOSED_WITHIN_S, connection.ioloop.stop)
    try:
        connection.ioloop.start()
    finally:
        connection.ioloop.close()
    if not dropped:
        raise ClusterError(f"{queue} was not purged: {trouble[1] if len(trouble) > 1 else trouble[0]}")
    return dropped[0]
