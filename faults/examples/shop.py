"""A small application to try: `python shop.py producer` publishes orders, and `python shop.py worker` works on them.

It reads the addresses of its brokers from AMQP_URLS, and goes to the next one whenever it loses a connection.
"""

from __future__ import annotations

import itertools
import json
import os
import signal
import sys
import threading
import time
import uuid
from pathlib import Path

import pika
from pika.adapters.blocking_connection import BlockingChannel, BlockingConnection
from pika.exceptions import AMQPError
from pika.spec import Basic

QUEUE = "orders"
EVERY_S = 0.02
OPTIONS = "?heartbeat=5&socket_timeout=5&stack_timeout=10&blocked_connection_timeout=60"

stop = threading.Event()


def main(role: str) -> None:
    """Connect, and work until SIGTERM; connect again to another broker after each error."""
    signal.signal(signal.SIGTERM, lambda *_: stop.set())
    for url in itertools.cycle(os.environ["AMQP_URLS"].split(",")):
        if stop.is_set():
            return
        try:
            with BlockingConnection(pika.URLParameters(url + OPTIONS)) as connection:
                print("connected", flush=True)
                channel = connection.channel()
                channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
                (produce if role == "producer" else work)(connection, channel)
        except (AMQPError, OSError) as error:
            print(f"lost the connection: {error!r}", flush=True)
            stop.wait(0.5)


def produce(connection: BlockingConnection, channel: BlockingChannel) -> None:
    """Publish orders one after another, each once the one before it is confirmed."""
    channel.confirm_delivery()
    while not stop.is_set():
        order = json.dumps({"order": str(uuid.uuid4())})
        properties = pika.BasicProperties(message_id=str(uuid.uuid4()), delivery_mode=pika.DeliveryMode.Persistent)
        channel.basic_publish("", QUEUE, order.encode(), properties, mandatory=True)
        connection.sleep(EVERY_S)


def work(connection: BlockingConnection, channel: BlockingChannel) -> None:
    """Work on orders, and acknowledge each one afterwards."""

    def take(channel: BlockingChannel, method: Basic.Deliver, properties: pika.BasicProperties, body: bytes) -> None:
        assert json.loads(body)["order"]  # this is the work
        say_committed(str(properties.message_id))
        channel.basic_ack(method.delivery_tag)

    channel.basic_qos(prefetch_count=20)
    channel.basic_consume(QUEUE, take)
    while not stop.is_set():
        connection.process_data_events(time_limit=0.2)


def say_committed(message_id: str) -> None:
    """Write that an order is done, if the environment names a file for this; it is one line, written at once."""
    if path := os.environ.get("RABBITMQ_RESILIENCE_EVENTS"):
        line = json.dumps({"event": "committed", "message_id": message_id, "at": time.time()})
        with Path(path).open("a", encoding="utf-8") as events:
            events.write(line + "\n")


if __name__ == "__main__":
    main(sys.argv[1])
