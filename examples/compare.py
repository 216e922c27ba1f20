#!/usr/bin/env python3
"""Compares a copy with the registry of a gateway: python3 examples/compare.py URL FILE [--visibility] [--existence]

It is a second implementation of docs/compare.md, in the standard library alone. FILE has a line for each item: JSON with
"object", "uri" and perhaps "state" and "content", or the URI of the object, a blank and a digest. It prints the objects that
differ, as `tidings compare` does. The variable TIDINGS_TOKEN can have a token.
"""

import bisect
import hashlib
import json
import os
import sys
import urllib.request

MODULUS = 1 << 128
FIRST_PARTS, PARTS, RANGES = 256, 16, 256


def number(text):
    """The digest of a text as a number: the first 16 octets of its SHA-256."""
    return int.from_bytes(hashlib.sha256(text.encode()).digest()[:16], "big")


def item_digest(item, is_public=False, existence_only=False):
    if existence_only:
        return number(f"{item['object']}\n{item['uri']}")
    content = item.get("content") or {}
    digest = content.get("digest")
    facts = [
        item["object"],
        item["uri"],
        None if is_public else item.get("state"),
        content.get("url"),
        content.get("mediaType"),
        content.get("size"),
        f"{digest['algorithm']}:{digest['value']}" if digest else None,
    ]
    return number("".join("\n" if fact is None else f"{fact}\n" for fact in facts))


class Copy:
    """Objects with the number and the sum of the digests of their items, in the order of the octets of their URIs."""

    def __init__(self, lines, is_public, existence_only):
        objects = {}
        for line in lines:
            line = line.strip()
            if not line:
                continue
            if line.startswith("{"):
                item = json.loads(line)
                uri, digest = item["object"], item_digest(item, is_public, existence_only)
            else:
                uri, text = line.split(None, 1)
                digest = int(text, 16)
            items, total = objects.get(uri, (0, 0))
            objects[uri] = (items + 1, (total + digest) % MODULUS)
        self.objects = sorted((uri.encode(), *sums) for uri, sums in objects.items())
        self.uris = [uri for uri, _, _ in self.objects]
        self.before = [(0, 0)]
        for _, items, digest in self.objects:
            self.before.append((self.before[-1][0] + items, (self.before[-1][1] + digest) % MODULUS))

    def span(self, after, through):
        first = 0 if after is None else bisect.bisect_right(self.uris, after.encode())
        last = len(self.uris) if through is None else bisect.bisect_right(self.uris, through.encode())
        return min(first, last), last

    def sums(self, after, through):
        first, last = self.span(after, through)
        items, digest = (self.before[last][at] - self.before[first][at] for at in (0, 1))
        return last - first, items, digest % MODULUS

    def listed(self, after, through):
        first, last = self.span(after, through)
        return {uri.decode(): (items, digest) for uri, items, digest in self.objects[first:last]}


class Gateway:
    def __init__(self, url, facts, is_public):
        self.url, self.facts, self.filter = url.rstrip("/"), facts, {"visibility": is_public}
        self.requests, self.octets = 0, 0

    def divide(self, ranges, parts):
        body = json.dumps({"ranges": ranges, "parts": parts, "facts": self.facts, "filter": self.filter}).encode()
        request = urllib.request.Request(f"{self.url}/registry/digests", body, {"content-type": "application/json"})
        if "TIDINGS_TOKEN" in os.environ:
            request.add_header("authorization", f"Bearer {os.environ['TIDINGS_TOKEN']}")
        with urllib.request.urlopen(request) as response:
            answer = response.read()
        self.requests, self.octets = self.requests + 1, self.octets + len(body) + len(answer)
        return json.loads(answer)["ranges"]


def compare(copy, gateway):
    """Yields each object that differs, and how."""
    ranges, parts = [{}], FIRST_PARTS
    while ranges:
        asked, rest = ranges[:RANGES], ranges[RANGES:]
        ranges = []
        for divided in gateway.divide(asked, parts):
            after, through = divided.get("after"), divided.get("through")
            if "objects" in divided:
                yield from differences(copy.listed(after, through), divided["objects"])
            for part in divided.get("parts", []):
                through = part.get("through")
                theirs = part["objects"], part["items"], int(part["digest"], 16)
                if part["objects"] == 0:
                    yield from differences(copy.listed(after, through), [])
                elif copy.sums(after, through) != theirs:
                    ends = {"after": after, "through": through}
                    ranges.append({name: end for name, end in ends.items() if end is not None})
                after = through
        # In the order of the URIs, as the gateway demands it.
        ranges, parts = ranges + rest, PARTS


def differences(own, registered):
    for one in registered:
        mine = own.pop(one["uri"], None)
        if mine is None:
            yield one["uri"], "missing"
        elif mine != (one["items"], int(one["digest"], 16)):
            yield one["uri"], "different"
    for uri in own:
        yield uri, "extra"


def main(url, file, *options):
    is_public, existence_only = "--visibility" in options, "--existence" in options
    with open(file, encoding="utf-8") as lines:
        copy = Copy(lines, is_public, existence_only)
    gateway = Gateway(url, "existence" if existence_only else "all", is_public)
    found = sorted(compare(copy, gateway), key=lambda difference: difference[0].encode())
    for uri, kind in found:
        print(f"{kind:9}  {uri}")
    print(f"{gateway.requests} requests, {gateway.octets} octets", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
