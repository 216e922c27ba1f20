#!/usr/bin/env python3
"""Plays Social Feed Manager: publishes messages as its components do, with kombu, to the durable topic exchange
sfm_exchange, as persistent JSON without a message id.

A line of standard input is a message, [routing key, body]; a body that is a text is sent as it stands.

    pip install kombu==5.7.0
    python3 examples/sfm.py amqp://guest:guest@127.0.0.1:5672/%2f < examples/harvest.jsonl
"""

import json
import sys

from kombu import Connection, Exchange

if len(sys.argv) != 2:
    sys.exit(__doc__)
exchange = Exchange("sfm_exchange", type="topic", durable=True)
# A connection that is not closed in good order may lose what the broker has not read yet.
with Connection(sys.argv[1]) as broker:
    producer = broker.Producer()
    for line in sys.stdin:
        routing_key, body = json.loads(line)
        as_it_is = {"content_type": "application/json", "content_encoding": "utf-8"} if isinstance(body, str) else {}
        producer.publish(body, routing_key=routing_key, exchange=exchange, declare=[exchange], retry=True, **as_it_is)
