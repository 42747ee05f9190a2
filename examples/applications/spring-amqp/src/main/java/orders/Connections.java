package orders;

import com.rabbitmq.client.ShutdownSignalException;
import java.util.concurrent.atomic.AtomicBoolean;
import org.springframework.amqp.rabbit.connection.Connection;
import org.springframework.amqp.rabbit.connection.ConnectionFactory;
import org.springframework.amqp.rabbit.connection.ConnectionListener;
import org.springframework.stereotype.Component;

/** Reports when there is a connection, and when it is lost. The listener may be called twice for one. */
@Component
class Connections implements ConnectionListener {

    private final AtomicBoolean connected = new AtomicBoolean();

    Connections(ConnectionFactory factory) {
        factory.addConnectionListener(this);
    }

    @Override
    public void onCreate(Connection connection) {
        if (connected.compareAndSet(false, true)) {
            System.out.println("connected");
        }
    }

    @Override
    public void onShutDown(ShutdownSignalException signal) {
        if (!signal.isInitiatedByApplication() && connected.compareAndSet(true, false)) {
            System.out.println("connection lost: " + signal.getMessage());
        }
    }
}
