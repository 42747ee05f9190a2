package orders;

import org.springframework.amqp.core.Queue;
import org.springframework.amqp.core.QueueBuilder;
import org.springframework.amqp.support.converter.JacksonJsonMessageConverter;
import org.springframework.amqp.support.converter.MessageConverter;
import org.springframework.beans.factory.annotation.Value;
import org.springframework.boot.SpringApplication;
import org.springframework.boot.autoconfigure.SpringBootApplication;
import org.springframework.context.annotation.Bean;
import org.springframework.scheduling.annotation.EnableScheduling;

/** Send orders through a quorum queue, or take them from it: the argument, {@code producer} or {@code worker}. */
@SpringBootApplication
@EnableScheduling
public class Application {

    public static void main(String[] arguments) {
        SpringApplication application = new SpringApplication(Application.class);
        application.setAdditionalProfiles(arguments[0]);
        application.run(arguments);
        // After SIGTERM the JVM has the status 143 otherwise.
        SpringApplication.getShutdownHandlers().add(() -> Runtime.getRuntime().halt(0));
    }

    @Bean
    Queue orders(@Value("${orders.queue}") String name) {
        return QueueBuilder.durable(name).quorum().build();
    }

    @Bean
    MessageConverter json() {
        return new JacksonJsonMessageConverter();
    }
}
