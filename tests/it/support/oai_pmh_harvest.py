"""Harvests repositories with a client of OAI-PMH: sickle, scythe or oaipmh, which is the argument.

Each line of input is a base URL, and the date from which on records have changed, unless all are wanted. Each line of
output is JSON: the date for the next harvest, and for each identifier its relations, or null if it is deleted.
"""

import datetime
import json
import re
import sys
import urllib.request


def identify(url):
    return urllib.request.urlopen(url + "?verb=Identify").read().decode()


def fields(record):
    # A deleted record of Sickle and oaipmh-scythe has no such attribute.
    return getattr(record, "metadata", None) or {}


# Each client has a generator of records: the identifier, whether it is deleted, and the fields by their names.

if sys.argv[1] == "sickle":
    from sickle import Sickle
    from sickle.oaiexceptions import NoRecordsMatch

    # It waits for the time of Retry-After.
    def client(url):
        return Sickle(url, max_retries=100)

    def identify(url):
        return client(url).harvest(verb="Identify").raw

    def records(url, since):
        dates = {"from": since} if since else {}
        for record in client(url).ListRecords(metadataPrefix="oai_dc", **dates):
            yield record.header.identifier, record.header.deleted, fields(record)

elif sys.argv[1] == "scythe":
    from oaipmh_scythe import Scythe
    from oaipmh_scythe.exceptions import NoRecordsMatch

    def records(url, since):
        for record in Scythe(url).list_records(metadata_prefix="oai_dc", from_=since):
            yield record.header.identifier, record.header.deleted, fields(record)

else:
    from oaipmh.client import Client
    from oaipmh.error import NoRecordsMatchError as NoRecordsMatch
    from oaipmh.metadata import MetadataRegistry, oai_dc_reader

    REGISTRY = MetadataRegistry()
    REGISTRY.registerReader("oai_dc", oai_dc_reader)

    # It sends POST requests.
    def records(url, since):
        date = since and datetime.datetime.strptime(since, "%Y-%m-%dT%H:%M:%SZ")
        for header, metadata, _ in Client(url, REGISTRY).listRecords(metadataPrefix="oai_dc", from_=date):
            yield header.identifier(), header.isDeleted(), metadata.getMap() if metadata else {}


def harvest(url, since=None):
    begun = re.search("<responseDate>(.*?)</responseDate>", identify(url)).group(1)
    harvested = {}
    try:
        for identifier, is_deleted, fields in records(url, since):
            harvested[identifier] = None if is_deleted else sorted(fields.get("relation", []))
    except NoRecordsMatch:
        pass
    return {"date": begun, "records": harvested}


for line in sys.stdin:
    print(json.dumps(harvest(*line.split())), flush=True)
