"""Reads messages, a JSON object a line, with the CloudEvents SDK, and prints each event as JSON."""

import json
import sys
from datetime import datetime

from cloudevents.core.bindings import amqp, http, rabbitmq
from cloudevents.core.formats.json import JSONFormat


def read(message):
    headers, content_type, body = message["headers"], message["content_type"], message["body"].encode()
    if message["binding"] == "http":
        received = http.HTTPMessage({**headers, "content-type": content_type}, body)
        return http.from_http(received, JSONFormat())
    if message["binding"] == "rabbitmq":
        return rabbitmq.from_rabbitmq(rabbitmq.RabbitMQMessage(headers, content_type, body), JSONFormat())
    properties = {"content-type": content_type}
    return amqp.from_amqp(amqp.AMQPMessage(properties, headers, body), JSONFormat())


for line in sys.stdin:
    event = read(json.loads(line))
    shown = {
        name: value.isoformat() if isinstance(value, datetime) else value
        for name, value in event.get_attributes().items()
    }
    print(json.dumps({**shown, "data": event.get_data()}))
