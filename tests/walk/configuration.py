"""Blocks of configuration in the pages: `tidings check` accepts each of them.

A block is checked alone, or together with an earlier block of its page that it needs or whose table it continues. Secrets
and files of the reader get values.
"""

import os
import re
import subprocess
import tempfile
from pathlib import Path

from document import PageError, fences

DIGEST = "5f" * 32
KEY = "whsec_" + "c2VjcmV0" * 4

# Reasons that come after the configuration is read: `tidings check` also opens the database and certificates.
OPENED = re.compile(r"cannot connect to the journal's database|server\.tls: cannot read|journal\.ca: ")

SECRET = re.compile(r'\{ (?:file|env) = "[^"]*" \}')
KEY_LINE = re.compile(r"^([\w.-]+) *=", re.MULTILINE)


def with_values(block):
    """Returns a block with values for what a reader has to fill in."""
    urls = {"amqp": "amqp://user:password@broker.example.org/%2f", "stomp": "stomp://user:password@broker.example.org"}
    url = next((url for word, url in urls.items() if f'"{word}"' in block), "https://user:password@receiver.example.org/")
    values = {"secrets": KEY, "store": "postgres://tidings@db.example.org/tidings",
              "url": url}

    def filled(line):
        key = line.split("=")[0].strip()
        value = values.get(key, "a secret of the reader")
        return SECRET.sub(f'"{value}"', line.replace('sha256 = "…"', f'sha256 = "{DIGEST}"').replace("whsec_…", KEY))

    return "\n".join(filled(line) for line in block.splitlines())


def continued(earlier, keys):
    """Returns the first table of an earlier block with these keys in place of its own."""
    own = set(KEY_LINE.findall(keys))
    lines = [line for line in earlier.splitlines() if not (found := KEY_LINE.match(line)) or found[1] not in own]
    return "\n".join([lines[0], keys, *lines[1:]])


def candidates(block, earlier):
    if re.match(r"\s*[\w.-]+ *=", re.sub(r"#.*", "", block)):
        return [continued(before, block) for before in earlier if before.startswith("[")]
    return [block, *(f"{before}\n{block}" for before in earlier)]


def refusal(program, block):
    """Returns the reason why the program refuses a configuration, or nothing."""
    with tempfile.TemporaryDirectory(prefix="tidings-walk-") as folder:
        path = Path(folder) / "page.toml"
        path.write_text(with_values(block) + "\n")
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        done = subprocess.run([program, "check", "--config", path], cwd=folder, env=environment, capture_output=True, text=True)
    return "" if done.returncode == 0 or OPENED.search(done.stderr) else done.stderr.replace(f"{folder}/", "")


def check(root, pages, program):
    """Raises an error if the program refuses a block of a page."""
    wrong = []
    for page in pages:
        earlier = []
        for fence in fences((root / page).read_text()):
            if fence.language != "toml":
                continue
            block = "\n".join(fence.lines)
            refusals = []
            for candidate in candidates(block, reversed(earlier)):
                refusals.append(refusal(program, candidate))
                if not refusals[-1]:
                    break
            else:
                wrong.append(f"{page}:{fence.line}: {refusals[0] if refusals else 'it continues no block'}".rstrip())
            earlier.append(block)
    if wrong:
        raise PageError("\n".join(wrong))
