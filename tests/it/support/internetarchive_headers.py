"""Prints the headers with which internetarchive uploads the first file of an item, as JSON pairs."""
import json
import sys

from internetarchive.iarequest import S3PreparedRequest

request = S3PreparedRequest()
request.prepare(
    method="PUT",
    url="https://s3.us.archive.org/item/file",
    headers={},
    auth=None,
    metadata=json.loads(sys.argv[1]),
    queue_derive=False,
)
text = lambda value: value.decode() if isinstance(value, bytes) else str(value)
print(json.dumps([[name.lower(), text(value)] for name, value in request.headers.items()]))
