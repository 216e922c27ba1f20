#!/usr/bin/env python3
"""A receiver of webhooks: it verifies what Tidings posts, and prints what has changed.

The subscription has delivery = "webhook", format = "json", the URL of this receiver, and the same secret.

    pip install standardwebhooks==1.1.0     # tried with Python 3.11; 3.9 and newer will do
    export WEBHOOK_SECRETS=$(tidings token --webhook)
    python3 examples/webhook_receiver.py 127.0.0.1 9000

While one secret gives way to another, WEBHOOK_SECRETS has both, with a space between them.
"""

import os
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

from standardwebhooks import Webhook, WebhookVerificationError

LARGEST = 4 << 20  # bytes; the gateway takes no larger message either
REMEMBERED = 100_000  # identifiers; a repeat comes soon
seen = {}
one_at_a_time = threading.Lock()


def handle(change):
    for item in change["items"]:
        print(change["seq"], item.get("change", "STATE"), item["uri"], flush=True)


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # so that the connection is kept

    def do_POST(self):
        length = int(self.headers.get("Content-Length", 0))
        if length > LARGEST:
            self.close_connection = True
            return self.answer(413)
        body, change = self.rfile.read(length), None
        for secret in self.server.secrets:
            try:
                change = secret.verify(body, dict(self.headers.items()))
            except WebhookVerificationError:
                pass  # the other secret may fit
        if change is None:
            return self.answer(401)
        with one_at_a_time:
            if self.headers["webhook-id"] not in seen:
                handle(change)
                seen[self.headers["webhook-id"]] = True
                if len(seen) > REMEMBERED:
                    del seen[next(iter(seen))]
        self.answer(204)  # after it is handled: what is not answered with 2xx comes again

    def answer(self, status):
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
