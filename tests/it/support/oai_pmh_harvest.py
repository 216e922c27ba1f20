"""Harvests a repository with a client of OAI-PMH: first everything, then, after a line of input, what has changed since.

Prints a line after the first part, and at the end the records as JSON: for each identifier its relations, or null if it is
deleted. Arguments: sickle or scythe, and the base URL.
"""

import json
import re
import sys
import urllib.request

client, url = sys.argv[1:]

if client == "sickle":
    from sickle import Sickle
    from sickle.oaiexceptions import NoRecordsMatch

    def harvest(**arguments):
        renamed = {"from": arguments["from_"]} if arguments else {}
        return Sickle(url).ListRecords(metadataPrefix="oai_dc", **renamed)
else:
    from oaipmh_scythe import Scythe
    from oaipmh_scythe.exceptions import NoRecordsMatch

    def harvest(**arguments):
        return Scythe(url).list_records(metadata_prefix="oai_dc", **arguments)

records = {}


def read(**arguments):
    try:
        for record in harvest(**arguments):
            header = record.header
            relations = None if header.deleted else sorted((record.metadata or {}).get("relation", []))
            records[header.identifier] = relations
    except NoRecordsMatch:
        pass


identify = urllib.request.urlopen(url + "?verb=Identify").read().decode()
begun = re.search("<responseDate>(.*?)</responseDate>", identify).group(1)
read()
print(f"harvested {len(records)}", flush=True)
sys.stdin.readline()
read(from_=begun)
print(json.dumps(records), flush=True)
