"""Send orders through a quorum queue, or take them from it: `python orders.py producer` or `worker`."""

import os
import signal
import sys
import time
import uuid

from kombu import Connection, Exchange, Queue
from kombu.exceptions import OperationalError
from kombu.mixins import ConsumerMixin

QUEUE = Queue(
    os.environ.get("QUEUE", "orders"),
    Exchange(""),
    routing_key=os.environ.get("QUEUE", "orders"),
    queue_arguments={"x-queue-type": "quorum"},
)
RATE_PER_S = float(os.environ.get("RATE_PER_S", "50"))
URLS = os.environ.get("AMQP_URLS") or os.environ.get("AMQP_URL") or "amqp://guest:guest@127.0.0.1:5672/%2F"
PREFETCH = 20


def say(text):
    print(text, flush=True)


def connection():
    return Connection(URLS.split(","), heartbeat=10, transport_options={"confirm_publish": True})


class Producer:
    """Send orders, each with a publisher confirm."""

    should_stop = False

    def run(self):
        confirmed, order = 0, None
        with connection() as conn:
            conn.ensure_connection(errback=self.on_connection_error)
            say("connected")
            producer = conn.Producer(serializer="json")
            self.lost = False
            while not self.should_stop:
                order = order or {"order": str(uuid.uuid4()), "number": confirmed + 1}
                if not self.is_sent(producer, order):
                    time.sleep(1)
                    continue
                order = None
                confirmed += 1
                time.sleep(1 / RATE_PER_S)
        return f"{confirmed} confirmed"

    def is_sent(self, producer, order):
        try:
            producer.publish(
                order,
                exchange="",
                routing_key=QUEUE.name,
                declare=[QUEUE],
                delivery_mode="persistent",
                message_id=order["order"],
                retry=True,
                retry_policy={"max_retries": 3, "errback": self.on_connection_error},
            )
        except OperationalError as error:
            self.on_connection_error(error, 1)
            return False
        if self.lost:
            say("connected")
            self.lost = False
        return True

    def on_connection_error(self, error, interval):
        say(f"connection lost: {error!r}")
        self.lost = True


class Worker(ConsumerMixin):
    """Take orders, and acknowledge each after the work."""

    def __init__(self):
        self.connection = connection()
        self.done = 0

    def run(self):
        super().run()
        return f"{self.done} done"

    def get_consumers(self, Consumer, channel):
        return [Consumer(queues=[QUEUE], callbacks=[self.on_order], prefetch_count=PREFETCH)]

    def on_order(self, order, message):
        assert order["order"]
        time.sleep(0.005)
        message.ack()
        self.done += 1

    def on_connection_revived(self):
        say("connected")

    def on_connection_error(self, error, interval):
        say(f"connection lost: {error!r}")


def main(role):
    program = {"producer": Producer, "worker": Worker}[role]()
    signal.signal(signal.SIGTERM, lambda *_: setattr(program, "should_stop", True))
    say(f"ended: {program.run()}")


if __name__ == "__main__":
    main(sys.argv[1])
