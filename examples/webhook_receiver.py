#!/usr/bin/env python3
"""A webhook receiver: verifies the messages of Tidings and prints the changed items.

The subscription needs delivery = "webhook", format = "json", the URL of this receiver, and the same secret.

    pip install standardwebhooks==1.1.0     # tried with Python 3.11; 3.9 and newer will do
    export WEBHOOK_SECRETS=$(tidings token --webhook)
    python3 examples/webhook_receiver.py 127.0.0.1 9000

To replace a secret, set WEBHOOK_SECRETS to both the old and the new one, separated by a space.
"""

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

MAX_BYTES = 4 << 20
SEEN_LIMIT = 100_000  # identifiers; duplicates arrive soon
seen = {}
lock = threading.Lock()


def handle(change):
    for item in change["items"]:
        print(change["seq"], item.get("change", "STATE"), item["uri"], flush=True)


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections alive

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        if length > MAX_BYTES:
            self.close_connection = True
            return self.respond(413)
        body, change = self.rfile.read(length), None
        for secret in self.server.secrets:
            try:
                change = secret.verify(body, dict(self.headers.items()))
            except WebhookVerificationError:
                pass  # try the other secret
        if change is None:
            return self.respond(401)
        with lock:
            if self.headers["webhook-id"] not in seen:
                handle(change)
                seen[self.headers["webhook-id"]] = True
                if len(seen) > SEEN_LIMIT:
                    del seen[next(iter(seen))]
        self.respond(204)  # after handling, because messages without a 2xx response are sent again

    def respond(self, status):
        self.send_response(status)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    secrets = os.environ.get("WEBHOOK_SECRETS", "").split()
    if len(sys.argv) != 3 or not secrets:
        sys.exit(__doc__)
    server = ThreadingHTTPServer((sys.argv[1], int(sys.argv[2])), Receiver)
    server.secrets = [Webhook(secret) for secret in secrets]
    print("receiving on port", server.server_port, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
