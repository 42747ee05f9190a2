"""Define the task `handle`; the worker is `celery -A orders worker`."""

import os
import time

from celery import Celery, bootsteps, signals

app = Celery("orders")
app.conf.update(
    broker_url=(os.environ.get("AMQP_URLS") or os.environ.get("AMQP_URL") or "amqp://").split(","),
    broker_connection_retry_on_startup=True,
    broker_transport_options={"confirm_publish": True},
    task_default_queue=os.environ.get("QUEUE", "orders"),
    task_default_queue_type="quorum",
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    worker_concurrency=1,
    worker_prefetch_multiplier=20,
    worker_redirect_stdouts=False,
)


@app.task(name="orders.handle")
def handle(order):
    assert order["order"]
    time.sleep(0.005)


class Connections(bootsteps.StartStopStep):
    """Report when the worker is connected, and when it has lost its connection."""

    requires = ("celery.worker.consumer.connection:Connection",)
    ending = False

    def start(self, consumer):
        print("connected", flush=True)

    def stop(self, consumer):
        if not Connections.ending:
            print("connection lost", flush=True)


app.steps["consumer"].add(Connections)


@signals.worker_shutting_down.connect
def on_shutting_down(**_):
    Connections.ending = True


@signals.worker_shutdown.connect
def on_shutdown(**_):
    print("ended", flush=True)
