"""Follows a stream of the protocol Durable Streams with the library of PyPI, and prints the numbers of the changes of each batch.

Arguments: URL, offset, and the way of following: auto, long-poll or sse. A connection that fails is made again. Prints "gone" if
the offset is not in the journal any more.
"""

import json
import sys
import time

import httpx
from durable_streams import DurableStreamError, RetentionGoneError, stream

url, offset, live = sys.argv[1:]
while True:
    try:
        response = stream(url, offset=offset, live=live)
        for batch in response.iter_json_batches():
            if batch:
                print(json.dumps([change["seq"] for change in batch]), flush=True)
            offset = response.offset
    except RetentionGoneError:
        print("gone", flush=True)
        break
    except (DurableStreamError, httpx.HTTPError):
        time.sleep(0.05)
