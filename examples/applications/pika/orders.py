"""Share what the programs of this folder need: the connection, the queue, and the end at SIGTERM."""

import json
import os
import random
import signal
import time
from pathlib import Path

import pika

QUEUE = os.environ.get("QUEUE", "orders")
RATE_PER_S = float(os.environ.get("RATE_PER_S", "50"))
URLS = os.environ.get("AMQP_URLS") or os.environ.get("AMQP_URL") or "amqp://guest:guest@127.0.0.1:5672/%2F"
PREFETCH = 20
WORK_S = float(os.environ.get("WORK_S", "0.005"))
EVENTS = os.environ.get("RABBITMQ_RESILIENCE_EVENTS")

stopping = False


def stop(*_):
    global stopping
    stopping = True


def say(text):
    print(text, flush=True)


def run(serve):
    """Call `serve(channel)` until SIGTERM; connect again when the connection is lost.

    This is the loop that pika's documentation shows for recovery."""
    signal.signal(signal.SIGTERM, stop)
    endpoints = [pika.URLParameters(url) for url in URLS.split(",")]
    while not stopping:
        random.shuffle(endpoints)
        try:
            connection = pika.BlockingConnection(endpoints)
            say("connected")
            channel = connection.channel()
            channel.queue_declare(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})
            serve(channel)
            connection.close()
        except pika.exceptions.AMQPChannelError as error:
            say(f"ended: gave up: {error!r}")
            raise SystemExit(1) from error
        except pika.exceptions.AMQPConnectionError as error:
            say(f"connection lost: {error!r}")
            if not stopping:
                time.sleep(1)


def handle(body):
    order = json.loads(body)
    assert order["order"]
    time.sleep(WORK_S)


def say_committed(message_id):
    """Write that the work on a message is done for good, if the environment names a file for this."""
    if EVENTS:
        line = json.dumps({"event": "committed", "message_id": message_id, "at": time.time()})
        with Path(EVENTS).open("a", encoding="utf-8") as events:
            events.write(line + "\n")
