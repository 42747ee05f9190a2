"""Send orders to a quorum queue, each with a publisher confirm; SIGTERM ends it."""

import json
import time
import uuid

import orders
import pika

confirmed = 0
order = None


def produce(channel):
    global confirmed, order
    channel.confirm_delivery()
    while not orders.stopping:
        if order is None:  # else the last one was not confirmed: send it again
            order = {"order": str(uuid.uuid4()), "number": confirmed + 1}
        properties = pika.BasicProperties(
            content_type="application/json",
            delivery_mode=pika.DeliveryMode.Persistent,
            message_id=order["order"],
        )
        try:
            channel.basic_publish("", orders.QUEUE, json.dumps(order), properties, mandatory=True)
        except (pika.exceptions.UnroutableError, pika.exceptions.NackError):
            time.sleep(1)
            continue
        order = None
        confirmed += 1
        channel.connection.sleep(1 / orders.RATE_PER_S)


orders.run(produce)
orders.say(f"ended: {confirmed} confirmed")
