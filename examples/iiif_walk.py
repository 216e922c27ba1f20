#!/usr/bin/env python3
"""Reads a stream of the IIIF Change Discovery API 1.0 as its section 3.5 says: from the last page backwards.

    python3 iiif_walk.py URL [--since TIME] [--token TOKEN]

URL is the collection, such as http://127.0.0.1:8395/iiif. Prints what a reader would do: a line "include URI" or
"remove URI" for each resource, newest first. TIME is that of the previous visit. Each rule of the API that a document
breaks is an error, with exit status 1. Needs nothing but Python.
"""

import argparse
import json
import sys
import urllib.request

CONTEXT = "http://iiif.io/api/discovery/1/context.json"


class Broken(Exception):
    """A document breaks a rule of the API."""


def check(holds, url, rule):
    if not holds:
        raise Broken(f"{url}: {rule}")


def fetch(url, token):
    """Returns the JSON of a document, and its URL after redirections."""
    request = urllib.request.Request(url, headers={"Authorization": f"Bearer {token}"} if token else {})
    with urllib.request.urlopen(request) as response:
        media_type = response.headers["Content-Type"]
        is_json_ld = media_type.split(";")[0] == "application/ld+json" and f'profile="{CONTEXT}"' in media_type
        check(is_json_ld, url, f"the media type is {media_type}")
        document = json.load(response)
        url = response.url
    context = document.get("@context")
    check(context == CONTEXT or (isinstance(context, list) and context[-1] == CONTEXT), url, "@context is not the last")
    check(next(iter(document)) == "@context", url, "@context is not the first key")
    check(document.get("id") == url, url, f"id is {document.get('id')}")
    return document


def link(document, name, kind):
    """Returns the URL of a link, or None if there is none."""
    target = document.get(name)
    if target is None:
        return None
    check(target["type"] == kind and target["id"].startswith("http"), document["id"], f"{name} is {target}")
    return target["id"]


def pages(collection, token):
    """Returns the pages of a collection, the last one first."""
    check(collection["type"] == "OrderedCollection", collection["id"], "it is no OrderedCollection")
    url, following = link(collection, "last", "OrderedCollectionPage"), None
    check(url, collection["id"], "it has no last page")
    while url:
        page = fetch(url, token)
        check(page["type"] == "OrderedCollectionPage", url, "it is no OrderedCollectionPage")
        check(link(page, "partOf", "OrderedCollection") == collection["id"], url, "partOf is another collection")
        # A page can get its successor after it was read.
        if following:
            check(link(page, "next", "OrderedCollectionPage") == following, url, "next is not the page that links here")
        check(page["orderedItems"], url, "there is no activity")
        times = [item["endTime"] for item in page["orderedItems"] if "endTime" in item]
        check(times == sorted(times), url, "the activities are not ordered by endTime")
        check(all(time.endswith("Z") for time in times), url, "a time is not in UTC")
        yield page
        url, following = link(page, "prev", "OrderedCollectionPage"), url
    first = link(collection, "first", "OrderedCollectionPage")
    check(first is None or first == following, collection["id"], "first is not the last page of the walk")


def walk(url, since, token):
    """Returns what to do with each resource: pairs of "include" or "remove", and its URI."""
    collection = fetch(url, token)
    processed, earlier, only_delete = set(), None, False
    for page in pages(collection, token):
        for activity in reversed(page["orderedItems"]):
            time, kind = activity.get("endTime"), activity["type"]
            check(not (time and earlier) or time <= earlier, page["id"], "a page before has a later time")
            earlier = time or earlier
            if since and time and time < since:
                return
            if kind == "Refresh":
                if not since:
                    return
                only_delete = True
                continue
            resource = activity["object"]
            check(resource["id"].startswith(("http://", "https://")), page["id"], f"{resource['id']} has no web URL")
            # The stream itself is no resource of the stream.
            if resource["id"] in processed or resource["type"] == "OrderedCollection":
                continue
            is_here = collection["id"] in (activity.get(end, {}).get("id") for end in ("origin", "target"))
            if kind == "Delete" or (kind == "Remove" and is_here):
                yield "remove", resource["id"]
            elif not only_delete and (kind in ("Create", "Update") or (kind == "Add" and is_here)):
                yield "include", resource["id"]
            elif not only_delete and kind == "Move":
                yield "remove", resource["id"]
                yield "include", activity["target"]["id"]
            processed.add(resource["id"])


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("url")
    parser.add_argument("--since")
    parser.add_argument("--token")
    arguments = parser.parse_args()
    try:
        for action, uri in walk(arguments.url, arguments.since, arguments.token):
            print(action, uri)
    except Broken as broken:
        sys.exit(str(broken))
    except urllib.error.HTTPError as error:
        sys.exit(f"{error.url}: {error.code} {error.read().decode()}")


if __name__ == "__main__":
    main()
