package orders;

import com.rabbitmq.client.Address;
import com.rabbitmq.client.Channel;
import com.rabbitmq.client.Connection;
import com.rabbitmq.client.ConnectionFactory;
import com.rabbitmq.client.Recoverable;
import com.rabbitmq.client.RecoveryListener;
import java.net.URI;
import java.util.ArrayList;
import java.util.List;
import java.util.Map;
import java.util.concurrent.CountDownLatch;

/** Send orders through a quorum queue, or take them from it: {@code orders.Orders producer} or {@code worker}. */
public final class Orders {

    static final String QUEUE = setting("QUEUE", "orders");
    private static final int END_WITHIN_MS = 3000;
    private static final CountDownLatch STOPPING = new CountDownLatch(1);

    interface Role {
        /** Serve until {@link #isStopping}; return how many orders, and what was done with them. */
        String serve(Channel channel) throws Exception;
    }

    public static void main(String[] arguments) throws Exception {
        Role role = arguments[0].equals("producer") ? new Producer() : new Worker();
        Thread main = Thread.currentThread();
        Runtime.getRuntime().addShutdownHook(new Thread(() -> stop(main)));
        Connection connection = connect();
        Channel channel = connection.createChannel();
        channel.queueDeclare(QUEUE, true, false, false, Map.of("x-queue-type", "quorum"));
        String how = role.serve(channel);
        connection.abort(END_WITHIN_MS);
        say("ended: " + how);
        Runtime.getRuntime().halt(0); // after SIGTERM the JVM has the status 143 otherwise
    }

    private static void stop(Thread main) {
        STOPPING.countDown();
        try {
            main.join(END_WITHIN_MS * 3);
        } catch (InterruptedException error) {
            Thread.currentThread().interrupt();
        }
    }

    private static Connection connect() throws Exception {
        String url = setting("AMQP_URL", "amqp://guest:guest@127.0.0.1:5672/%2F");
        ConnectionFactory factory = new ConnectionFactory();
        factory.setUri(url);
        factory.setAutomaticRecoveryEnabled(true);
        factory.setTopologyRecoveryEnabled(true);
        List<Address> addresses = new ArrayList<>();
        for (String each : setting("AMQP_URLS", url).split(",")) {
            URI uri = new URI(each);
            addresses.add(new Address(uri.getHost(), uri.getPort()));
        }
        Connection connection = factory.newConnection(addresses);
        say("connected");
        connection.addShutdownListener(cause -> {
            if (!cause.isInitiatedByApplication()) {
                say("connection lost: " + cause.getMessage());
            }
        });
        ((Recoverable) connection).addRecoveryListener(new RecoveryListener() {
            @Override
            public void handleRecovery(Recoverable recovered) {
                say("connected");
            }

            @Override
            public void handleRecoveryStarted(Recoverable recovered) {}
        });
        return connection;
    }

    static boolean isStopping() {
        return STOPPING.getCount() == 0;
    }

    static void awaitStopping() throws InterruptedException {
        STOPPING.await();
    }

    static String setting(String name, String otherwise) {
        return System.getenv().getOrDefault(name, otherwise);
    }

    private static void say(String text) {
        System.out.println(text);
    }
}
