"""Take orders from a queue and acknowledge each after the work; SIGTERM ends it."""

import orders

done = 0


def work(channel):
    global done
    channel.basic_qos(prefetch_count=orders.PREFETCH)
    for method, properties, body in channel.consume(orders.QUEUE, inactivity_timeout=0.2):
        if method is not None:
            orders.handle(body)
            orders.say_committed(properties.message_id)
            channel.basic_ack(method.delivery_tag)
            done += 1
        if orders.stopping:
            break
    channel.cancel()


orders.run(work)
orders.say(f"ended: {done} done")
