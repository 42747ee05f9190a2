"""Take orders from a quorum queue with a consumer that is made once; `Connection.ensure` is to bring it back."""

import signal
import time

from orders import PREFETCH, QUEUE, connection, say

stopping = False
done = 0


def stop(*_):
    global stopping
    stopping = True


def on_order(order, message):
    global done
    assert order["order"]
    time.sleep(0.005)
    message.ack()
    done += 1


def on_error(error, interval):
    say(f"connection lost: {error!r}")


def main():
    signal.signal(signal.SIGTERM, stop)
    with connection() as conn:
        consumer = conn.Consumer(queues=[QUEUE], callbacks=[on_order], prefetch_count=PREFETCH)
        consumer.consume()
        say("connected")

        def drain():
            conn.heartbeat_check()
            try:
                conn.drain_events(timeout=1)
            except TimeoutError:
                pass

        ensured = conn.ensure(consumer, drain, errback=on_error, on_revive=lambda _: say("connected"))
        while not stopping:
            ensured()
    say(f"ended: {done} done")


main()
