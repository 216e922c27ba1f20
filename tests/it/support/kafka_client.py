"""Client of Kafka over librdkafka: publishes the messages on standard input, alone or in transactions, or prints those of a
topic, as JSON lines."""

import json
import sys

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic


def text(value):
    return None if value is None else value.decode()


def publish(brokers, codec):
    producer = Producer({"bootstrap.servers": brokers, "compression.type": codec, "partitioner": "murmur2_random",
                         "enable.idempotence": True, "linger.ms": 5})
    failures = []

    def confirmed(error, _):
        if error is not None:
            failures.append(str(error))

    for line in sys.stdin:
        message = json.loads(line)
        headers = list(message.get("headers", {}).items())
        producer.produce(message["topic"], value=message["value"], key=message.get("key"), headers=headers,
                         on_delivery=confirmed)
        producer.poll(0)
    producer.flush(30)
    if failures or len(producer):
        sys.exit(f"{len(producer)} messages are not confirmed: {failures[:3]}")


def transact(brokers, topic):
    """Sends the values of each line in a transaction."""
    producer = Producer({"bootstrap.servers": brokers, "transactional.id": "tests", "linger.ms": 5})
    producer.init_transactions(30)
    for line in sys.stdin:
        transaction = json.loads(line)
        producer.begin_transaction()
        for value in transaction["values"]:
            producer.produce(topic, value=value, partition=0)
        producer.commit_transaction(30)


def consume(brokers, topic):
    consumer = Consumer({"bootstrap.servers": brokers, "group.id": "tests", "enable.auto.commit": False,
                         "enable.partition.eof": True})
    partitions = consumer.list_topics(topic, 30).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    ended = set()
    while len(ended) < len(partitions):
        message = consumer.poll(30)
        if message is None:
            sys.exit(f"the end of {set(partitions) - ended} does not arrive")
        if message.error() and message.error().code() == KafkaError._PARTITION_EOF:
            ended.add(message.partition())
            continue
        if message.error():
            sys.exit(str(message.error()))
        headers = {name: text(value) for name, value in message.headers() or []}
        print(json.dumps({"partition": message.partition(), "offset": message.offset(), "key": text(message.key()),
                          "headers": headers, "value": text(message.value())}))
    consumer.close()


def prepare(brokers, topic, ca, user, password):
    access = {"bootstrap.servers": brokers, "security.protocol": "SASL_SSL", "ssl.ca.location": ca,
              "sasl.mechanism": "SCRAM-SHA-512", "sasl.username": user, "sasl.password": password}
    admin = AdminClient(access)
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result(30)
    producer = Producer(access)
    for line in sys.stdin:
        producer.produce(topic, value=line.strip())
    if producer.flush(30):
        sys.exit("some messages are not confirmed")


if sys.argv[1] == "prepare":
    prepare(*sys.argv[2:])
elif sys.argv[1] == "publish":
    publish(sys.argv[2], sys.argv[3])
elif sys.argv[1] == "transact":
    transact(sys.argv[2], sys.argv[3])
else:
    consume(sys.argv[2], sys.argv[3])
