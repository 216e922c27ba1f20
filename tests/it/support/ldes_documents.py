"""Reads a stream with rdflib: all documents from a root on. Prints what they are as RDF.

    ldes_documents.py URL
"""

import json
import sys
import urllib.request

from rdflib import Graph, Literal, Namespace, URIRef
from rdflib.namespace import RDF, XSD

AS = Namespace("https://www.w3.org/ns/activitystreams#")
LDES = Namespace("https://w3id.org/ldes#")
TREE = Namespace("https://w3id.org/tree#")
TIDINGS = Namespace("urn:tidings:change:1:")

pending, seen, everything, views = [sys.argv[1]], set(), Graph(), 0
while pending:
    with urllib.request.urlopen(pending.pop()) as response:
        url, text = response.url, response.read().decode()
    if url in seen:
        continue
    seen.add(url)
    graph = Graph()
    graph.parse(data=text, format="json-ld", publicID=url)
    view = URIRef(url)
    streams = list(graph.subjects(TREE.view, view))
    assert len(streams) == 1, (url, streams)
    views += 1
    for relation in graph.objects(view, TREE.relation):
        assert len(list(graph.objects(relation, TREE.path))) == len(list(graph.objects(relation, TREE.value))) == 1
        pending.append(str(graph.value(relation, TREE.node)))
    if (streams[0], LDES.timestampPath, None) in graph:
        for path in (LDES.timestampPath, LDES.sequencePath, LDES.versionOfPath, LDES.versionTimestampPath):
            assert isinstance(graph.value(streams[0], path), URIRef), path
    everything += graph



def text(value):
    # rdflib writes times in its own spelling.
    is_time = isinstance(value, Literal) and value.datatype == XSD.dateTime
    return value.toPython().strftime("%Y-%m-%dT%H:%M:%S.%f")[:-3] + "Z" if is_time else str(value)


late = next(everything.subjects(TIDINGS.late, None))
facts = {
    "type": RDF.type, "object": AS.object, "published": AS.published, "endTime": AS.endTime,
    "version": TIDINGS.version, "late": TIDINGS.late, "source": TIDINGS.source,
}
print(json.dumps({
    "members": len(set(everything.objects(None, TREE.member))),
    "lists": len(list(everything.subjects(RDF.first, None))),
    "views": views,
    "late": {name: text(everything.value(late, path)) for name, path in facts.items()} | {"id": str(late)},
}))
