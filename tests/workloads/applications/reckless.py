"""An application that is careless with its messages: ``python reckless.py publish|consume|quit``."""

from __future__ import annotations

import itertools
import os
import signal
import sys
import threading

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError

QUEUE = "jobs"
OPTIONS = "?heartbeat=5&socket_timeout=5&stack_timeout=10"

stop = threading.Event()


def main(role: str) -> None:
    """Do what the role says, over one connection after another, until SIGTERM."""
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    if role == "quit":
        stop.wait(15)
        print("a worker without work gives up", flush=True)
        sys.exit(3)
    for url in itertools.cycle(os.environ["AMQP_URLS"].split(",")):
        if stop.is_set():
            return
        try:
            with BlockingConnection(pika.URLParameters(url + OPTIONS)) as connection:
                channel = connection.channel()
                channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
                (publish if role == "publish" else consume)(connection, channel)
        except (AMQPError, OSError) as error:
            print(f"lost the connection: {error!r}", flush=True)
            stop.wait(0.5)


def publish(connection: BlockingConnection, channel: BlockingChannel) -> None:
    """Publish equal messages without confirms, and without names."""
    while not stop.is_set():
        channel.basic_publish("", QUEUE, b"go", pika.BasicProperties(delivery_mode=pika.DeliveryMode.Persistent))
        connection.sleep(0.02)


def consume(connection: BlockingConnection, channel: BlockingChannel) -> None:
    """Take messages that count as acknowledged when they are sent."""
    channel.basic_consume(QUEUE, lambda *_: None, auto_ack=True)
    while not stop.is_set():
        connection.process_data_events(time_limit=0.2)


if __name__ == "__main__":
    main(sys.argv[1])
