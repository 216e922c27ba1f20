"""Reads a destination with stomp.py until it has that many different changes, and prints each message as JSON.

    stomp_consumer.py 127.0.0.1:61613 /queue/changes 3
"""

import json
import sys
import threading

import stomp

TIMEOUT = 90


class Messages(stomp.ConnectionListener):
    def __init__(self, changes):
        self.changes = changes
        self.known = set()
        self.done = threading.Event()

    def on_message(self, frame):
        if self.done.is_set():
            return
        print(json.dumps({"headers": frame.headers, "body": frame.body}), flush=True)
        self.known.add(frame.headers["change-id"])
        if len(self.known) == self.changes:
            self.done.set()

    def on_error(self, frame):
        print(frame.headers, frame.body, file=sys.stderr)


address, destination, changes = sys.argv[1:]
host, port = address.rsplit(":", 1)
messages = Messages(int(changes))
connection = stomp.Connection12([(host, int(port))])
connection.set_listener("", messages)
connection.connect(wait=True)
connection.subscribe(destination, id="1", ack="auto")
complete = messages.done.wait(TIMEOUT)
connection.disconnect()
if not complete:
    sys.exit(f"only {len(messages.known)} changes arrived")
