package orders;

import jakarta.annotation.PreDestroy;
import java.util.UUID;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.TimeoutException;
import org.springframework.amqp.AmqpException;
import org.springframework.amqp.rabbit.connection.CorrelationData;
import org.springframework.amqp.rabbit.core.RabbitTemplate;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.context.annotation.Profile;
import org.springframework.scheduling.annotation.Scheduled;
import org.springframework.stereotype.Component;

/** Sends orders, each with a publisher confirm; one that is not confirmed is sent again. */
@Component
@Profile("producer")
class Producer {

    private static final int CONFIRM_WITHIN_S = 5;

    private final RabbitTemplate template;
    private final String queue;
    private Order order;
    private volatile int confirmed;

    Producer(RabbitTemplate template, @Value("${orders.queue}") String queue) {
        this.template = template;
        this.queue = queue;
    }

    @Scheduled(fixedDelayString = "#{1000000 / ${orders.rate-per-s}}", timeUnit = TimeUnit.MICROSECONDS)
    void send() throws InterruptedException {
        if (order == null) {
            order = new Order(UUID.randomUUID().toString(), confirmed + 1);
        }
        if (isConfirmed(order)) {
            confirmed++;
            order = null;
        } else {
            Thread.sleep(1000);
        }
    }

    private boolean isConfirmed(Order order) throws InterruptedException {
        CorrelationData correlation = new CorrelationData(order.order());
        try {
            template.convertAndSend("", queue, order, message -> {
                message.getMessageProperties().setMessageId(order.order());
                return message;
            }, correlation);
            return correlation.getFuture().get(CONFIRM_WITHIN_S, TimeUnit.SECONDS).ack();
        } catch (AmqpException | ExecutionException | TimeoutException error) {
            return false;
        }
    }

    @PreDestroy
    void end() {
        System.out.println("ended: " + confirmed + " confirmed");
    }
}
