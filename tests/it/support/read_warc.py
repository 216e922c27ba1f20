"""Reads a WARC file with warcio, and indexes it with cdxj-indexer; prints what they find as JSON: FILE."""

import hashlib
import io
import json
import sys

from cdxj_indexer.main import CDXJIndexer
from warcio.archiveiterator import ArchiveIterator

warc = sys.argv[1]
records, digests = [], True
with open(warc, "rb") as stream:
    for record in ArchiveIterator(stream, check_digests=True):
        headers = dict(record.http_headers.headers) if record.http_headers else {}
        body = record.content_stream().read()
        digests = digests and record.digest_checker.passed is not False
        records.append(
            {
                "type": record.rec_type,
                "url": record.rec_headers.get_header("WARC-Target-URI"),
                "headers": headers,
                "sha256": hashlib.sha256(body).hexdigest(),
            }
        )
index = io.StringIO()
CDXJIndexer(index, [warc], sort=True).process_all()
print(json.dumps({"records": records, "digests": digests, "cdxj": index.getvalue()}))
