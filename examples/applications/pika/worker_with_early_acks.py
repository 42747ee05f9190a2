"""Take orders from a queue and acknowledge each before the work, which loses some: a warning, not a model."""

import orders

done = 0


def work(channel):
    global done
    channel.basic_qos(prefetch_count=orders.PREFETCH)
    for method, properties, body in channel.consume(orders.QUEUE, inactivity_timeout=0.2):
        if method is not None:
            channel.basic_ack(method.delivery_tag)
            orders.handle(body)
            orders.say_committed(properties.message_id)
            done += 1
        if orders.stopping:
            break
    channel.cancel()


orders.run(work)
orders.say(f"ended: {done} done")
