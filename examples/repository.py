#!/usr/bin/env python3
"""Plays Fedora or Islandora: sends messages over STOMP with stomp.py, as persistent ones, and waits until the broker has
confirmed each. When the connection breaks, what was not confirmed is sent again.

A line of standard input is a message, [headers, body]. For each that is confirmed a line is printed, its number.

    pip install stomp.py==9.0.0
    python3 examples/repository.py 127.0.0.1:61613 /topic/fedora < events.jsonl
"""

import json
import sys
import threading
import time

import stomp

# How many messages may be sent and not confirmed.
WINDOW = 500

# How many seconds the broker may take to answer before the connection is given up.
PATIENCE = 30


class Receipts(stomp.ConnectionListener):
    """Which messages the broker has confirmed."""

    def __init__(self, missing):
        self.missing = missing
        self.changed = threading.Condition()
        self.connected = False
        self.broken = False

    def wait_for(self, condition):
        """Waits until a condition holds or the connection has broken."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.broken or condition(), timeout=PATIENCE):
                raise TimeoutError(f"the broker has not answered within {PATIENCE} seconds")

    def on_connected(self, frame):
        with self.changed:
            self.connected = True
            self.changed.notify()

    def on_receipt(self, frame):
        with self.changed:
            number = frame.headers["receipt-id"]
            if self.missing.pop(number, None) is not None:
                print(number, flush=True)
            self.changed.notify()

    def on_error(self, frame):
        print(frame.headers.get("message"), frame.body, file=sys.stderr)

    def on_disconnected(self):
        with self.changed:
            self.broken = True
            self.changed.notify()


def send_on(connection, receipts, destination):
    """Sends what is missing, until all of it is confirmed or the connection has broken."""
    under_way = set()
    for number, (headers, body) in list(receipts.missing.items()):
        receipts.wait_for(lambda: len(under_way & receipts.missing.keys()) < WINDOW)
        if receipts.broken:
            return
        under_way &= receipts.missing.keys()
        under_way.add(number)
        connection.send(destination, body, headers={"persistent": "true", "receipt": number, **headers})
    receipts.wait_for(lambda: not receipts.missing)


def main(address, destination):
    host, port = address.rsplit(":", 1)
    missing = {str(number): json.loads(line) for number, line in enumerate(sys.stdin)}
    while missing:
        # Without a content-length ActiveMQ makes it a text message, as Fedora's are.
        connection = stomp.Connection12(
            [(host, int(port))], heartbeats=(5000, 5000), reconnect_attempts_max=1, auto_content_length=False
        )
        receipts = Receipts(missing)
        connection.set_listener("", receipts)
        try:
            # The library's own wait has no end where the broker dies between the socket and its CONNECTED.
            connection.connect(wait=False)
            receipts.wait_for(lambda: receipts.connected)
            send_on(connection, receipts, destination)
            connection.disconnect()
        except (stomp.exception.StompException, OSError) as error:
            print(f"again, for {error!r}", file=sys.stderr)
            connection.transport.disconnect_socket()
            time.sleep(0.2)


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(*sys.argv[1:])
