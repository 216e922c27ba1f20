#!/usr/bin/env python3
"""Simulates Social Feed Manager: publishes messages with kombu to the durable topic exchange sfm_exchange, as persistent
JSON without a message id, like its components. Unlike them, it waits for the broker's confirmations.

Each line of standard input is a message, [routing key, body]. A body that is a string is sent unchanged.

    pip install kombu==5.7.0
    python3 examples/sfm.py amqp://guest:guest@127.0.0.1:5672/%2f < examples/harvest.jsonl
"""

import json
import sys

from kombu import Connection, Exchange

if len(sys.argv) != 2:
    sys.exit(__doc__)
exchange = Exchange("sfm_exchange", type="topic", durable=True)
# Each message is confirmed, because a quorum queue can lose the last messages of a connection that is closed at once.
with Connection(sys.argv[1], transport_options={"confirm_publish": True}) as broker:
    producer = broker.Producer()
    for line in sys.stdin:
        routing_key, body = json.loads(line)
        unchanged = {"content_type": "application/json", "content_encoding": "utf-8"} if isinstance(body, str) else {}
        producer.publish(body, routing_key=routing_key, exchange=exchange, declare=[exchange], retry=True, **unchanged)
