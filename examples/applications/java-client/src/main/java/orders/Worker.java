package orders;

import com.rabbitmq.client.Channel;
import java.nio.charset.StandardCharsets;
import java.util.concurrent.atomic.AtomicInteger;

/** Takes orders, and acknowledges each after the work. */
final class Worker implements Orders.Role {

    private static final int PREFETCH = 20;

    @Override
    public String serve(Channel channel) throws Exception {
        AtomicInteger done = new AtomicInteger();
        channel.basicQos(PREFETCH);
        String tag = channel.basicConsume(Orders.QUEUE, false, (consumer, delivery) -> {
            handle(new String(delivery.getBody(), StandardCharsets.UTF_8));
            channel.basicAck(delivery.getEnvelope().getDeliveryTag(), false);
            done.incrementAndGet();
        }, consumer -> {});
        Orders.awaitStopping();
        if (channel.isOpen()) {
            channel.basicCancel(tag);
        }
        return done + " done";
    }

    private static void handle(String order) {
        if (!order.contains("\"order\"")) {
            throw new IllegalArgumentException("no order: " + order);
        }
        try {
            Thread.sleep(5);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }
}
