"""Prints the files of a dataset as JSON, as datahugger lists them: PLATFORM URL. The host of the URL plays the platform."""

import json
import sys
from urllib.parse import urlsplit

from datahugger import services

platform, url = sys.argv[1:]
server, identifier = "http://" + urlsplit(url).netloc, url.rstrip("/").rsplit("/", 1)[1]
if platform == "zenodo":
    services.ZenodoDataset.API_URL = server + "/zenodo/api/"
    dataset = services.ZenodoDataset("https://zenodo.org/records/" + identifier)
else:
    services.OSFDataset.API_URL = server + "/osf-api/v2/nodes/"
    dataset = services.OSFDataset("https://osf.io/" + identifier)
print(json.dumps([[file["name"], file["size"], file["hash"], file["link"]] for file in dataset.files]))
