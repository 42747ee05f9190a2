"""Send orders through a quorum queue, or take them from it: `python orders.py producer` or `worker`."""

import asyncio
import json
import os
import signal
import sys
import uuid

import aio_pika

QUEUE = os.environ.get("QUEUE", "orders")
RATE_PER_S = float(os.environ.get("RATE_PER_S", "50"))
URL = os.environ.get("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F")
PREFETCH = 20
GRACE_S = 5


def say(text):
    print(text, flush=True)


async def declared(channel):
    return await channel.declare_queue(QUEUE, durable=True, arguments={"x-queue-type": "quorum"})


async def produce(connection, stopping, counts):
    """Send orders, each with a publisher confirm, for which `publish` waits."""
    channel = await connection.channel()
    await declared(channel)
    while not stopping.is_set():
        order = {"order": str(uuid.uuid4()), "number": counts["confirmed"] + 1}
        message = aio_pika.Message(
            json.dumps(order).encode(),
            content_type="application/json",
            delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
            message_id=order["order"],
        )
        while True:
            try:
                await channel.default_exchange.publish(message, routing_key=QUEUE, timeout=10)
                break
            except (aio_pika.exceptions.AMQPError, ConnectionError, RuntimeError, TimeoutError):
                await asyncio.sleep(1)  # not confirmed: send it again
        counts["confirmed"] += 1
        await asyncio.sleep(1 / RATE_PER_S)


async def work(connection, stopping, counts):
    """Take orders, and acknowledge each after the work."""
    channel = await connection.channel()
    await channel.set_qos(prefetch_count=PREFETCH)
    queue = await declared(channel)

    async def on_order(message):
        async with message.process():
            assert json.loads(message.body)["order"]
            await asyncio.sleep(0.005)
        counts["done"] += 1

    tag = await queue.consume(on_order)
    await stopping.wait()
    await queue.cancel(tag)


async def main(role):
    stopping = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, stopping.set)
    connection = await aio_pika.connect_robust(URL)
    say("connected")
    connection.close_callbacks.add(lambda _, error: stopping.is_set() or say(f"connection lost: {error!r}"))
    connection.reconnect_callbacks.add(lambda _: say("connected"))
    counts = {"producer": {"confirmed": 0}, "worker": {"done": 0}}[role]
    running = asyncio.create_task({"producer": produce, "worker": work}[role](connection, stopping, counts))
    await asyncio.wait([running, asyncio.create_task(stopping.wait())], return_when=asyncio.FIRST_COMPLETED)
    await asyncio.wait([running], timeout=GRACE_S)
    if running.done():
        running.result()
    running.cancel()
    try:
        await asyncio.wait_for(connection.close(), timeout=GRACE_S / 2)
    except TimeoutError:
        pass
    say("ended: " + "".join(f"{count} {what}" for what, count in counts.items()))


asyncio.run(main(sys.argv[1]))
