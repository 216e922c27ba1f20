#!/usr/bin/env python3
"""Accepts every request, to try a webhook: python3 examples/request_receiver.py [PORT]

GET /received returns the requests so far: method, host, path and body. The response to all others is that of a bulk request
of Elasticsearch without errors, which the presets for other receivers do not read.
"""

import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

received = []


class Receiver(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"  # keeps connections alive

    def receive(self):
        body = self.rfile.read(int(self.headers.get("Content-Length", 0))).decode()
        received.append(f"{self.command} {self.headers['Host']} {self.path}\n{body}".rstrip() + "\n")
        self.respond('{"errors": false}', "application/json")

    do_POST = do_PUT = do_DELETE = do_PURGE = receive

    def do_GET(self):
        self.respond("".join(received), "text/plain; charset=utf-8")

    def respond(self, text, media_type):
        body = text.encode()
        self.send_response(200)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1]) if len(sys.argv) > 1 else 9000), Receiver)
    print("receiving on port", server.server_port, flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
