"""Mock cluster of librdkafka: prints the addresses of its brokers, then publishes the messages of each line of standard
input (an object with topic, partition and values), and prints an empty line when they are confirmed."""

import json
import sys

from confluent_kafka import Producer

producer = Producer({"bootstrap.servers": "", "test.mock.num.brokers": int(sys.argv[1]), "linger.ms": 5})
brokers = producer.list_topics(timeout=30).brokers.values()
print(",".join(f"{broker.host}:{broker.port}" for broker in brokers), flush=True)
for line in sys.stdin:
    batch = json.loads(line)
    for value in batch["values"]:
        producer.produce(batch["topic"], value=value, partition=batch["partition"])
        producer.poll(0)
    if producer.flush(60):
        sys.exit("some messages are not confirmed")
    print(flush=True)
