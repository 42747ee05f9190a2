"""Send the task `handle` for one order after another; SIGTERM ends it."""

import os
import signal
import time
import uuid

from celery.exceptions import OperationalError
from orders import app, handle

RATE_PER_S = float(os.environ.get("RATE_PER_S", "50"))
stopping = False


def stop(*_):
    global stopping
    stopping = True


def say(text):
    print(text, flush=True)


def main():
    signal.signal(signal.SIGTERM, stop)
    with app.connection_for_write() as connection:
        connection.ensure_connection(errback=lambda error, _: say(f"connection lost: {error!r}"))
    say("connected")
    confirmed, lost, order = 0, False, None
    while not stopping:
        order = order or {"order": str(uuid.uuid4()), "number": confirmed + 1}
        try:
            handle.apply_async((order,), task_id=order["order"], message_id=order["order"])
        except OperationalError as error:  # Celery has tried again before; so do we, with the same order
            if not lost:
                say(f"connection lost: {error!r}")
            lost = True
            time.sleep(1)
            continue
        if lost:
            say("connected")
        lost, order = False, None
        confirmed += 1
        time.sleep(1 / RATE_PER_S)
    say(f"ended: {confirmed} confirmed")


main()
