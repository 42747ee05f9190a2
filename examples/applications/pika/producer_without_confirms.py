"""Send orders to a quorum queue without asking for confirms, which loses some: a warning, not a model."""

import json
import uuid

import orders
import pika

sent = 0


def produce(channel):
    global sent
    while not orders.stopping:
        order = {"order": str(uuid.uuid4()), "number": sent + 1}
        properties = pika.BasicProperties(
            content_type="application/json",
            delivery_mode=pika.DeliveryMode.Persistent,
            message_id=order["order"],
        )
        sent += 1
        channel.basic_publish("", orders.QUEUE, json.dumps(order), properties)
        channel.connection.sleep(1 / orders.RATE_PER_S)


orders.run(produce)
orders.say(f"ended: {sent} sent")
