import javax.jms.*;
import java.nio.charset.StandardCharsets;
import java.util.Collections;
import org.apache.activemq.ActiveMQConnectionFactory;

/** Reads a queue with ActiveMQ's own client over OpenWire; prints the kind, the properties and the text of each message. */
public class OpenWireConsumer {
    public static void main(String[] arguments) throws Exception {
        Thread.setDefaultUncaughtExceptionHandler((thread, error) -> {
            error.printStackTrace();
            // The threads of the connection would keep the program alive.
            System.exit(1);
        });
        Connection connection = new ActiveMQConnectionFactory(arguments[0]).createConnection();
        connection.start();
        Session session = connection.createSession(false, Session.AUTO_ACKNOWLEDGE);
        MessageConsumer consumer = session.createConsumer(session.createQueue(arguments[1]), arguments[3]);
        for (int left = Integer.parseInt(arguments[2]); left > 0; left--) {
            Message message = consumer.receive(30_000);
            if (message == null) {
                System.err.println(left + " messages did not arrive");
                System.exit(1);
            }
            String text;
            if (message instanceof TextMessage) {
                text = "text\t" + ((TextMessage) message).getText();
            } else {
                byte[] octets = new byte[(int) ((BytesMessage) message).getBodyLength()];
                ((BytesMessage) message).readBytes(octets);
                text = "bytes\t" + new String(octets, StandardCharsets.UTF_8);
            }
            System.out.println(text.replace("\n", " "));
            System.out.println("JMSType\t" + message.getJMSType());
            System.out.println("persistent\t" + (message.getJMSDeliveryMode() == DeliveryMode.PERSISTENT));
            System.out.println("milliseconds\t" + message.getLongProperty("org.fcrepo.jms.timestamp"));
            for (Object name : Collections.list(message.getPropertyNames())) {
                System.out.println(name + "\t" + message.getObjectProperty((String) name));
            }
            System.out.println();
        }
        connection.close();
    }
}
