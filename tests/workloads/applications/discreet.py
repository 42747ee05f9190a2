"""An application whose messages are confidential: ``python discreet.py publish|consume``."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError

EXCHANGE, QUEUE = "post", "letters"
OPTIONS = "?heartbeat=5&socket_timeout=5&stack_timeout=10"

stop = threading.Event()


def main(role: str) -> None:
    """Do what the role says, over one connection after another, until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    for url in itertools.cycle(os.environ["AMQP_URLS"].split(",")):
        if stop.is_set():
            return
        try:
            with BlockingConnection(pika.URLParameters(url + OPTIONS)) as connection:
                channel = connection.channel()
                channel.exchange_declare(EXCHANGE, "topic", durable=True)
                channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
                channel.queue_bind(QUEUE, EXCHANGE, "#")
                (publish if role == "publish" else consume)(connection, channel)
        except (AMQPError, OSError) as error:
            print(f"lost the connection: {error!r}", flush=True)
            stop.wait(0.5)


def publish(connection: BlockingConnection, channel: BlockingChannel) -> None:
    """Publish letters, each once the one before it is confirmed."""
    channel.confirm_delivery()
    for number in itertools.count():
        if stop.is_set():
            return
        properties = pika.BasicProperties(
            headers={"customer": "header-of-mine"},
            correlation_id="correlation-of-mine",
            message_id=f"name-of-mine-{os.getpid()}-{number}",
            delivery_mode=pika.DeliveryMode.Persistent,
        )
        channel.basic_publish(EXCHANGE, "news", b"body-of-mine", properties, mandatory=True)
        connection.sleep(0.02)


def consume(connection: BlockingConnection, channel: BlockingChannel) -> None:
    channel.basic_qos(prefetch_count=20)
    channel.basic_consume(QUEUE, lambda its, method, _, __: its.basic_ack(method.delivery_tag))
    while not stop.is_set():
        connection.process_data_events(time_limit=0.2)


if __name__ == "__main__":
    main(sys.argv[1])
