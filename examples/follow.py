#!/usr/bin/env python3
"""Follows the event stream of Tidings. After a disconnection or a restart it resumes after the last handled change.

    pip install httpx==0.28.1 httpx-sse==0.4.3     # tried with Python 3.11; 3.9 and newer will do
    python3 examples/follow.py http://127.0.0.1:8395/stream place.txt

Set the environment variable TIDINGS_TOKEN if the gateway needs a token. If the changes after the stored place were
deleted, the gateway responds 410 and the program ends: start over from /snapshot.
"""

import json
import os
import sys
import time
from pathlib import Path

import httpx
from httpx_sse import connect_sse

TIMEOUT = httpx.Timeout(10, read=60)  # seconds; the gateway sends a heartbeat every 15


def handle(change):
    print(change["seq"], change["object"], flush=True)


def follow(client, url, place):
    headers = {"Last-Event-ID": place.read_text()} if place.exists() else {}
    with connect_sse(client, "GET", url, headers=headers) as source:
        source.response.raise_for_status()
        for event in source.iter_sse():
            if event.data:  # an event without data only advances the place
                handle(json.loads(event.data))
            place.write_text(event.id)


def main(url, place):
    token = os.environ.get("TIDINGS_TOKEN")
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    with httpx.Client(timeout=TIMEOUT, headers=headers) as client:
        while True:
            try:
                follow(client, url, Path(place))
            except httpx.TransportError as error:
                print(f"disconnected: {error!r}", file=sys.stderr)
            except httpx.HTTPStatusError as error:
                if error.response.status_code != 503:
                    raise
            time.sleep(1)


if __name__ == "__main__":
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    try:
        main(*sys.argv[1:])
    except KeyboardInterrupt:
        pass
    except httpx.HTTPStatusError as error:
        sys.exit(f"refused: {error.response.status_code}")
