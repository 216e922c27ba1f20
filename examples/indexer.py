#!/usr/bin/env python3
"""A minimal indexer: consumes a subscription of Tidings, indexes public items and removes items that are no longer public.

The subscription needs delivery = "amqp", format = "atom", filter = { visibility = true }, and the queue in `queues`.

    pip install pika==1.4.4     # tried with Python 3.11; 3.9 and newer will do
    python3 examples/indexer.py amqp://guest:guest@127.0.0.1:5672/%2f index
"""

import sys
from xml.etree import ElementTree

import pika

ATOM = "{http://www.w3.org/2005/Atom}"
SEEN_LIMIT = 100_000  # identifiers; duplicates arrive soon, within the window of the subscription


def handle(feed):
    for entry in feed.iter(ATOM + "entry"):
        uri = entry.find(f"{ATOM}link[@rel='via']").get("href")
        change = entry.find(f"{ATOM}category[@scheme='changes:ITEM:CHANGE:TYPE']").get("term")
        content = entry.find(ATOM + "content")
        if change == "DELETE":
            print("remove", uri, flush=True)
        else:  # ADD or UPDATE; without a content URL, the content is at the URI of the item
            print("index ", uri, "from", uri if content is None else content.get("src"), flush=True)


def main(url, queue):
    seen = {}
    channel = pika.BlockingConnection(pika.URLParameters(url)).channel()
    channel.basic_qos(prefetch_count=100)
    for method, properties, body in channel.consume(queue):
        if properties.message_id not in seen:
            handle(ElementTree.fromstring(body))
            seen[properties.message_id] = True
            if len(seen) > SEEN_LIMIT:
                del seen[next(iter(seen))]
        channel.basic_ack(method.delivery_tag)  # after handling, because unacknowledged messages are delivered again


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
    except pika.exceptions.AMQPError as error:
        sys.exit(f"AMQP error: {error!r}")
