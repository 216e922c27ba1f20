#!/usr/bin/env python3
"""A small OAI-PMH repository with one thesis and its PDF, for trying out harvests. It needs only Python's own library.

    python3 examples/oai_pmh_repository.py 8090

    curl -X PUT    http://127.0.0.1:8090/records/18 --data 'A title'   # a new record, or another title
    curl -X DELETE http://127.0.0.1:8090/records/18                    # the repository remembers the deletion
"""

import sys
from datetime import datetime, timezone
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit
from xml.sax.saxutils import escape, quoteattr

OAI = 'xmlns="http://www.openarchives.org/OAI/2.0/"'
DUBLIN_CORE = (
    'xmlns:oai_dc="http://www.openarchives.org/OAI/2.0/oai_dc/" xmlns:dc="http://purl.org/dc/elements/1.1/"'
)
HOST = "oai:repository.example.org:"


def now():
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


class Repository(BaseHTTPRequestHandler):
    # Number of a record: its datestamp and its title, which is None after a deletion.
    records = {"17": (now(), "On learning of changes")}

    def do_GET(self):
        address = urlsplit(self.path)
        if address.path == "/oai":
            arguments = {name: values[0] for name, values in parse_qs(address.query).items()}
            self.answer(200, "text/xml; charset=utf-8", self.response(arguments))
        elif address.path.startswith("/files/"):
            number = address.path.removeprefix("/files/").removesuffix(".pdf")
            date, title = self.records.get(number, (None, None))
            if title is None:
                self.answer(404, "text/plain", "the repository has no such file\n")
            else:
                self.answer(200, "application/pdf", f"%PDF-1.4\n% {title}\n%%EOF\n")
        else:
            self.answer(404, "text/plain", "use /oai?verb=Identify\n")

    def do_PUT(self):
        title = self.rfile.read(int(self.headers["Content-Length"])).decode()
        self.change(title)

    def do_DELETE(self):
        self.change(None)

    def change(self, title):
        self.records[self.path.rsplit("/", 1)[-1]] = (now(), title)
        self.answer(200, "text/plain", "changed\n")

    def response(self, arguments):
        verb = arguments.get("verb")
        if verb == "Identify":
            content = self.identify()
        elif verb == "ListRecords":
            start = arguments.get("from", "")
            changed = {number: record for number, record in self.records.items() if record[0] >= start}
            records = "".join(self.record(number) for number in changed)
            content = f"<ListRecords>{records}</ListRecords>" if records else error("noRecordsMatch")
        elif verb == "GetRecord":
            number = arguments.get("identifier", "").removeprefix(HOST)
            known = number in self.records
            content = f"<GetRecord>{self.record(number)}</GetRecord>" if known else error("idDoesNotExist")
        else:
            content = error("badVerb")
        request = "".join(f" {name}={quoteattr(value)}" for name, value in arguments.items())
        return (
            f'<?xml version="1.0" encoding="UTF-8"?>\n<OAI-PMH {OAI}><responseDate>{now()}</responseDate>'
            f"<request{request}>{self.address()}/oai</request>{content}</OAI-PMH>"
        )

    def identify(self):
        return (
            "<Identify><repositoryName>Theses</repositoryName>"
            f"<baseURL>{self.address()}/oai</baseURL><protocolVersion>2.0</protocolVersion>"
            "<adminEmail>admin@repository.example.org</adminEmail>"
            "<earliestDatestamp>2020-01-01T00:00:00Z</earliestDatestamp>"
            "<deletedRecord>persistent</deletedRecord><granularity>YYYY-MM-DDThh:mm:ssZ</granularity></Identify>"
        )

    def record(self, number):
        date, title = self.records[number]
        status = ' status="deleted"' if title is None else ""
        header = f"<identifier>{HOST}{number}</identifier><datestamp>{date}</datestamp>"
        if title is None:
            return f"<record><header{status}>{header}</header></record>"
        return (
            f"<record><header>{header}</header><metadata><oai_dc:dc {DUBLIN_CORE}>"
            f"<dc:title>{escape(title)}</dc:title>"
            f"<dc:identifier>{self.address()}/files/{number}.pdf</dc:identifier>"
            "</oai_dc:dc></metadata></record>"
        )

    def address(self):
        return f"http://127.0.0.1:{self.server.server_port}"

    def answer(self, status, media_type, text):
        body = text.encode()
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


def error(code):
    return f'<error code="{code}">{code}</error>'


if __name__ == "__main__":
    server = ThreadingHTTPServer(("127.0.0.1", int(sys.argv[1])), Repository)
    print(f"http://127.0.0.1:{server.server_port}/oai", flush=True)
    try:
        server.serve_forever()
    except KeyboardInterrupt:
        pass
