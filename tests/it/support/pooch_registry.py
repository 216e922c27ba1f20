"""Prints the files of a dataset with their MD5 as JSON, as pooch lists them: PLATFORM URL."""

import json
import sys
from types import SimpleNamespace
from urllib.parse import parse_qs, urlsplit

import requests
from pooch import downloaders

platform, url = sys.argv[1:]
server = "http://" + urlsplit(url).netloc
send = requests.get


def get(address, **options):
    """Sends a request to the server that plays the platform."""
    address = address.replace("https://api.figshare.com", server + "/figshare-api")
    return send(address, **options)


requests.get = get
if platform == "zenodo":
    downloaders.ZenodoRepository.base_api_url = server + "/zenodo/api/records"
    repository = downloaders.ZenodoRepository("10.5072/x", url)
elif platform == "figshare":
    repository = downloaders.FigshareRepository("10.5072/x", url)
else:
    doi = parse_qs(urlsplit(url).query)["persistentId"][0].removeprefix("doi:")
    repository = downloaders.DataverseRepository(doi, url)
listed = SimpleNamespace(registry={})
repository.populate_registry(listed)
print(json.dumps({name: digest.removeprefix("md5:") for name, digest in listed.registry.items()}))
