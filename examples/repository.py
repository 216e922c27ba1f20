#!/usr/bin/env python3
"""Simulates Fedora or Islandora: sends persistent messages over STOMP with stomp.py and waits for the receipt of each.
After a disconnection, messages without a receipt are sent again.

Each line of standard input is a message, [headers, body]. The program prints the number of each confirmed message.

    pip install stomp.py==9.0.0
    python3 examples/repository.py 127.0.0.1:61613 /topic/fedora < events.jsonl
"""

import json
import sys
import threading
import time

import stomp

# Maximum number of unconfirmed messages.
WINDOW = 500

# Seconds without a response of the broker after which the program gives up.
TIMEOUT = 30


class Receipts(stomp.ConnectionListener):
    """Tracks the messages that the broker has confirmed."""

    def __init__(self, missing):
        self.missing = missing
        self.changed = threading.Condition()
        self.connected = False
        self.disconnected = False

    def wait_for(self, condition):
        """Waits until the condition holds or the connection is lost."""
        with self.changed:
            if not self.changed.wait_for(lambda: self.disconnected or condition(), timeout=TIMEOUT):
                raise TimeoutError(f"the broker has not responded within {TIMEOUT} seconds")

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
            self.disconnected = True
            self.changed.notify()


def send_missing(connection, receipts, destination):
    """Sends the missing messages until all are confirmed or the connection is lost."""
    in_flight = set()
    for number, (headers, body) in list(receipts.missing.items()):
        receipts.wait_for(lambda: len(in_flight & receipts.missing.keys()) < WINDOW)
        if receipts.disconnected:
            return
        in_flight &= receipts.missing.keys()
        in_flight.add(number)
        connection.send(destination, body, headers={"persistent": "true", "receipt": number, **headers})
    receipts.wait_for(lambda: not receipts.missing)


def main(address, destination):
    host, port = address.rsplit(":", 1)
    missing = {str(number): json.loads(line) for number, line in enumerate(sys.stdin)}
    while missing:
        # Without content-length ActiveMQ creates text messages, like those of Fedora.
        connection = stomp.Connection12(
            [(host, int(port))], heartbeats=(5000, 5000), reconnect_attempts_max=1, auto_content_length=False
        )
        receipts = Receipts(missing)
        connection.set_listener("", receipts)
        try:
            # connect(wait=True) never returns if the broker dies before it sends CONNECTED.
            connection.connect(wait=False)
            receipts.wait_for(lambda: receipts.connected)
            send_missing(connection, receipts, destination)
            connection.disconnect()
        except (stomp.exception.StompException, OSError) as error:
            print(f"retrying after {error!r}", file=sys.stderr)
            connection.transport.disconnect_socket()
            time.sleep(0.2)


if len(sys.argv) != 3:
    sys.exit(__doc__)
main(*sys.argv[1:])
