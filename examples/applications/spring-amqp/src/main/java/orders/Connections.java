package orders;

import com.rabbitmq.client.ShutdownSignalException;
import org.springframework.amqp.rabbit.connection.Connection;
import org.springframework.amqp.rabbit.connection.ConnectionFactory;
import org.springframework.amqp.rabbit.connection.ConnectionListener;
import org.springframework.stereotype.Component;

/** Reports each connection, and the loss of each. */
@Component
class Connections implements ConnectionListener {

    Connections(ConnectionFactory factory) {
        factory.addConnectionListener(this);
    }

    @Override
    public void onCreate(Connection connection) {
        System.out.println("connected");
    }

    @Override
    public void onShutDown(ShutdownSignalException signal) {
        if (!signal.isInitiatedByApplication()) {
            System.out.println("connection lost: " + signal.getMessage());
        }
    }
}
