#!/usr/bin/env python3
"""A small data repository with one dataset of two files, for trying out its archiving. It needs only Python's own library.

    python3 examples/dataset_repository.py 8091

    curl -X PUT    http://127.0.0.1:8091/files/readings.csv --data 'day,degrees'   # a new file, or other content
    curl -X DELETE http://127.0.0.1:8091/files/readings.csv

The landing page /datasets/1 names the files in links with the relation "item" (Signposting).
"""

import hashlib
import sys
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

PAGE = "<!doctype html><title>Temperatures of a pond</title><h1>Temperatures of a pond</h1>\n"


class Repository(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    files = {
        "readings.csv": b"day,degrees\n2026-11-01,8.2\n2026-11-02,7.9\n",
        "README.txt": b"Measured at noon, half a metre below the surface.\n",
    }

    def do_GET(self):
        name = self.path.removeprefix("/files/")
        if self.path == "/datasets/1":
            links = ", ".join(f'</files/{name}>; rel="item"' for name in self.files)
            self.answer(200, "text/html; charset=utf-8", PAGE.encode(), {"Link": links})
        elif name in self.files:
            body = self.files[name]
            tag = hashlib.sha256(body).hexdigest()
            media_type = "text/csv" if name.endswith(".csv") else "text/plain"
            self.answer(200, media_type, body, {"ETag": f'"{tag}"'})
        else:
            self.answer(404, "text/plain", b"use /datasets/1\n", {})

    def do_PUT(self):
        self.files[self.path.removeprefix("/files/")] = self.rfile.read(int(self.headers["Content-Length"]))
        self.answer(200, "text/plain", b"changed\n", {})

    def do_DELETE(self):
        self.files.pop(self.path.removeprefix("/files/"), None)
        self.answer(200, "text/plain", b"changed\n", {})

    def answer(self, status, media_type, body, headers):
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        for name, value in headers.items():
            self.send_header(name, value)
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments):
        pass


if __name__ == "__main__":
    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8091
    server = ThreadingHTTPServer(("127.0.0.1", port), Repository)
    print(f"http://127.0.0.1:{port}/datasets/1", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
