"""Take orders that the broker drops as soon as it has sent them, which loses some: a warning, not a model."""

import orders

done = 0


def work(channel):
    global done
    channel.basic_qos(prefetch_count=orders.PREFETCH)  # has no effect with automatic acknowledgement
    for method, _, body in channel.consume(orders.QUEUE, auto_ack=True, inactivity_timeout=0.2):
        if method is not None:
            orders.handle(body)
            done += 1
        if orders.stopping:
            break
    channel.cancel()


orders.run(work)
orders.say(f"ended: {done} done")
