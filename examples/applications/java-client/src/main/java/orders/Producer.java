package orders;

import com.rabbitmq.client.AMQP.BasicProperties;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.ShutdownSignalException;
import java.io.IOException;
import java.nio.charset.StandardCharsets;
import java.util.UUID;
import java.util.concurrent.TimeoutException;

/** Sends orders, each with a publisher confirm. */
final class Producer implements Orders.Role {

    private static final int CONFIRM_WITHIN_MS = 5000;

    @Override
    public String serve(Channel channel) throws Exception {
        double ratePerS = Double.parseDouble(Orders.setting("RATE_PER_S", "50"));
        channel.confirmSelect();
        int confirmed = 0;
        while (!Orders.isStopping()) {
            String id = UUID.randomUUID().toString();
            while (!isConfirmed(channel, id, confirmed + 1)) {
                if (Orders.isStopping()) {
                    return confirmed + " confirmed";
                }
                Thread.sleep(1000); // the client reconnects meanwhile; then the same order again
            }
            confirmed++;
            Thread.sleep(Math.round(1000 / ratePerS));
        }
        return confirmed + " confirmed";
    }

    private static boolean isConfirmed(Channel channel, String id, int number) throws InterruptedException {
        String body = "{\"order\": \"" + id + "\", \"number\": " + number + "}";
        BasicProperties properties = new BasicProperties.Builder()
                .contentType("application/json")
                .deliveryMode(2)
                .messageId(id)
                .build();
        try {
            channel.basicPublish("", Orders.QUEUE, properties, body.getBytes(StandardCharsets.UTF_8));
            return channel.waitForConfirms(CONFIRM_WITHIN_MS);
        } catch (IOException | ShutdownSignalException | TimeoutException error) {
            return false;
        }
    }
}
