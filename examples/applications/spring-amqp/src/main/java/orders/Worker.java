package orders;

import jakarta.annotation.PreDestroy;
import java.util.concurrent.atomic.AtomicInteger;
import org.springframework.amqp.rabbit.annotation.RabbitListener;
import org.springframework.context.annotation.Profile;
import org.springframework.stereotype.Component;

/** Takes orders; the container acknowledges each after {@code handle} has returned. */
@Component
@Profile("worker")
class Worker {

    private final AtomicInteger done = new AtomicInteger();

    @RabbitListener(queues = "${orders.queue}")
    void handle(Order order) throws InterruptedException {
        if (order.order() == null) {
            throw new IllegalArgumentException("no order");
        }
        Thread.sleep(5);
        done.incrementAndGet();
    }

    @PreDestroy
    void end() {
        System.out.println("ended: " + done + " done");
    }
}
