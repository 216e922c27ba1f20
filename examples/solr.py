#!/usr/bin/env python3
"""A stand-in for Solr, to try a subscription with the preset `solr`: python3 examples/solr.py [PORT] [FILE]

It has one core, `repository`, and as much of Solr's interface as the preset needs: JSON commands at /update (add with the
atomic operation "set", delete by id, commit), with commitWithin; and /select with q=*:* or q=FIELD:"VALUE", rows and start.
It refuses what Solr would refuse: commands that are not JSON, documents without an id, and fields that the default
configuration of Solr does not know. With FILE, accepted commands survive a restart.
"""

import json
import re
import sys
import threading
import time
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

# Types of the fields that the default configuration makes of the ends of their names.
FIELDS = {"_s": str, "_ss": list, "_l": int, "_dt": str, "_b": bool}
TIME = re.compile(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d(\.\d+)?Z$")


class Refused(Exception):
    pass


class Core:
    """Documents by id, and those that a search sees: a commit makes them the same."""

    def __init__(self, file=None):
        self.lock = threading.Lock()
        self.documents, self.visible, self.due = {}, {}, None
        self.log = None
        if file:
            with open(file, "a+", encoding="utf-8") as log:
                log.seek(0)
                for line in log:
                    self.apply(pairs(json.loads(line)))
            self.visible = dict(self.documents)
            self.log = open(file, "a", encoding="utf-8")

    def update(self, body, commit_within):
        try:
            commands = pairs(body)
        except ValueError as error:
            raise Refused(f"JSON Parse Error: {error}") from error
        with self.lock:
            before = dict(self.documents)
            try:
                self.apply(commands)
            except Refused:
                self.documents = before
                raise
            if self.log:
                print(json.dumps(body.decode()), file=self.log, flush=True)
            if commit_within is not None and self.due is None:
                self.due = time.monotonic() + commit_within / 1000

    def apply(self, commands):
        for name, value in commands:
            if name == "add":
                self.add(dict(dict(value)["doc"]))
            elif name == "delete":
                self.documents.pop(dict(value)["id"], None)
            elif name == "commit":
                self.due = 0
            else:
                raise Refused(f"Unknown command '{name}'")

    def add(self, fields):
        if not isinstance(fields.get("id"), str):
            raise Refused("Document is missing mandatory uniqueKey field: id")
        is_atomic = any(isinstance(value, list) and value[:1] and isinstance(value[0], tuple) for value in fields.values())
        document = dict(self.documents.get(fields["id"], {})) if is_atomic else {}
        for name, value in fields.items():
            if isinstance(value, list) and value and isinstance(value[0], tuple):
                [(operation, value)] = value
                if operation != "set":
                    raise Refused(f"Unknown operation for the an atomic update: {operation}")
            if value is None:
                document.pop(name, None)
                continue
            check(name, value)
            document[name] = value
        self.documents[fields["id"]] = document

    def select(self, query, start, rows):
        with self.lock:
            if self.due is not None and time.monotonic() >= self.due:
                self.visible, self.due = dict(self.documents), None
            found = list(self.visible.values())
        if query != "*:*":
            match = re.fullmatch(r'(\w+):"(.*)"', query)
            if not match:
                raise Refused(f"this stand-in reads q=*:* and q=FIELD:\"VALUE\", not {query}")
            name, value = match.groups()
            found = [one for one in found if value == one.get(name) or value in (one.get(name) or [])]
        return {"response": {"numFound": len(found), "start": start, "docs": found[start : start + rows]}}


def pairs(text):
    """Reads JSON with objects as lists of pairs, because Solr's commands repeat names."""
    return json.loads(text, object_pairs_hook=list)


def check(name, value):
    kind = str if name == "id" else next((FIELDS[end] for end in FIELDS if name.endswith(end)), None)
    if kind is None:
        raise Refused(f"unknown field '{name}'")
    is_wrong = not isinstance(value, kind) or (name.endswith("_dt") and not TIME.match(value))
    if is_wrong or (kind is int and not -(2**63) <= value < 2**63):
        raise Refused(f"Error adding field '{name}'='{value}'")


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def do_POST(self):
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        url, query = self.parsed()
        if url != "/solr/repository/update":
            return self.answer(404, {"error": {"msg": "there is one core: /solr/repository"}})
        within = query.get("commitWithin")
        self.attempt(lambda: self.server.core.update(body, int(within) if within else None) or {})

    def do_GET(self):
        url, query = self.parsed()
        if url != "/solr/repository/select":
            return self.answer(404, {"error": {"msg": "there is one core: /solr/repository"}})
        number = lambda name, default: int(query.get(name, default))
        self.attempt(lambda: self.server.core.select(query.get("q", "*:*"), number("start", 0), number("rows", 10)))

    def parsed(self):
        url = urlsplit(self.path)
        return url.path, {name: values[0] for name, values in parse_qs(url.query).items()}

    def attempt(self, work):
        try:
            self.answer(200, {"responseHeader": {"status": 0}, **work()})
        except Refused as refused:
            self.answer(400, {"responseHeader": {"status": 400}, "error": {"msg": str(refused), "code": 400}})

    def answer(self, status, document):
        body = json.dumps(document, indent=1).encode()
        self.send_response(status)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


if __name__ == "__main__":
    port, file = (sys.argv[1:] + ["8983", ""])[0], (sys.argv[2:] + [""])[0]
    server = ThreadingHTTPServer(("127.0.0.1", int(port)), Handler)
    server.core = Core(file or None)
    print(f"listening on http://127.0.0.1:{server.server_address[1]}/solr/repository", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
