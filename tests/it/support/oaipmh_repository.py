"""Repository with OAI-PMH 2.0 by the package oaipmh, whose records change, vanish and come back while it is harvested.

Usage: oaipmh_repository.py PORT STATE

STATE is a JSON file with the records, which survive a kill of the program. Each page of a list is followed by a few
changes. POST /freeze ends the changes. GET /records returns the title of each record.
"""

import datetime
import http.server
import json
import os
import random
import sys
import threading
import urllib.parse

from oaipmh import common, error, metadata, server

RECORDS = 3000
PAGE = 100
CHANGES = 6


def now():
    return datetime.datetime.now(datetime.timezone.utc).replace(tzinfo=None, microsecond=0)


class Repository:
    """Records with their titles and datestamps. Deleted records leave no trace."""

    def __init__(self, path):
        self.path = path
        self.frozen = False
        self.random = random.Random(17)
        if os.path.exists(path):
            with open(path) as file:
                self.records = json.load(file)
        else:
            date = now().isoformat()
            self.records = {identifier(number): [f"Title {number}", date] for number in range(RECORDS)}
            self.save()

    def save(self):
        with open(self.path + ".new", "w") as file:
            json.dump(self.records, file)
        os.replace(self.path + ".new", self.path)

    def change(self):
        if self.frozen:
            return
        date = now().isoformat()
        for _ in range(CHANGES):
            name = identifier(self.random.randrange(RECORDS))
            if name in self.records and self.random.random() < 0.4:
                del self.records[name]
            else:
                self.records[name] = [f"Title {self.random.randrange(10**9)}", date]
        self.save()

    # The interface of the package.

    def identify(self):
        return common.Identify(
            repositoryName="oaipmh",
            baseURL=f"http://127.0.0.1:{PORT}/oai",
            protocolVersion="2.0",
            adminEmails=["admin@repository.example"],
            earliestDatestamp=datetime.datetime(2020, 1, 1),
            deletedRecord="no",
            granularity="YYYY-MM-DDThh:mm:ssZ",
            compression=["identity"],
            toolkit_description=False,
        )

    def record(self, name):
        title, date = self.records[name]
        header = common.Header(None, name, datetime.datetime.fromisoformat(date), [], False)
        return header, common.Metadata(None, {"title": [title]}), None

    def getRecord(self, metadataPrefix, identifier):
        if identifier not in self.records:
            raise error.IdDoesNotExistError(identifier)
        return self.record(identifier)

    def listRecords(self, metadataPrefix, set=None, from_=None, until=None, cursor=0, batch_size=10):
        dated = sorted((date, name) for name, (_, date) in self.records.items())
        selected = [
            name
            for date, name in dated
            if (from_ is None or date >= from_.isoformat()) and (until is None or date <= until.isoformat())
        ]
        page = [self.record(name) for name in selected[cursor : cursor + batch_size]]
        self.change()
        return page


def identifier(number):
    return f"oai:oaipmh.example:{number:05}"


class Handler(http.server.BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"

    def respond(self, body, kind):
        self.send_response(200)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def do_POST(self):
        REPOSITORY.frozen = True
        self.respond(b"", "text/plain")

    def do_GET(self):
        url = urllib.parse.urlsplit(self.path)
        if url.path == "/records":
            with LOCK:
                titles = {name: title for name, (title, _) in REPOSITORY.records.items()}
            return self.respond(json.dumps(titles).encode(), "application/json")
        with LOCK:
            body = OAI.handleRequest(dict(urllib.parse.parse_qsl(url.query)))
        self.respond(body, "text/xml")

    def log_message(self, *_):
        pass


LOCK = threading.Lock()
PORT = int(sys.argv[1])
REPOSITORY = Repository(sys.argv[2])
registry = metadata.MetadataRegistry()
registry.registerWriter("oai_dc", server.oai_dc_writer)
OAI = server.BatchingServer(REPOSITORY, metadata_registry=registry, resumption_batch_size=PAGE)
print("ready", flush=True)
http.server.ThreadingHTTPServer(("127.0.0.1", PORT), Handler).serve_forever()
