"""Rules of all pages, walked or not: links lead somewhere, and nothing printed harms a reader who copies it."""

import re

from document import PageError, anchor, fences, parts, Fence

LINK = re.compile(r"\]\(([^)\s]+)\)")
HEADING = re.compile(r"#+ (.*)$")

# The digest of a token in a configuration. A reader who copies it admits everybody who knows the token.
TOKEN_DIGEST = re.compile(r'^#?\s*sha256 = "[0-9a-fA-F]{64}"', re.MULTILINE)

# The folder of the journal, unless a configuration names another one: a reader may have a journal there.
DELETES_JOURNAL = re.compile(r"\brm\b[^\n;&|]*\s(\./)?data/?(\s|$)")

# Stands for a token of the gateway; `/TOKEN` is a part of an address. A recipe says how to make one, another page says it or
# links to the page that does.
TOKEN = re.compile(r"(?<!/)\bTOKEN\b|TIDINGS_TOKEN|Authorization: Bearer")
MAKES_TOKEN = re.compile(r"tidings token .*--scope")


def text_of(heading):
    """Returns a heading without the addresses of its links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)


def prose(text):
    """Yields the lines outside of blocks, each with its number."""
    return (part for part in parts(text) if not isinstance(part, Fence))


def anchors(text):
    headings = (HEADING.match(line) for _, line in prose(text))
    return {anchor(text_of(heading[1])) for heading in headings if heading}


def dead_links(root, page):
    for number, line in prose((root / page).read_text()):
        for target in LINK.findall(re.sub(r"`[^`]*`", "", line)):
            if re.match(r"\w+:", target):
                continue
            file, _, part = target.partition("#")
            path = (root / page).parent / file if file else root / page
            if not path.exists():
                yield f"{page}:{number}: there is no file {file}"
            elif part and path.suffix == ".md" and part not in anchors(path.read_text()):
                yield f"{page}:{number}: there is no heading {target}"


def harms(root, page):
    text = (root / page).read_text()
    blocks = list(fences(text))
    for fence in blocks:
        block = "\n".join(fence.lines)
        if TOKEN_DIGEST.search(block):
            yield f"{page}:{fence.line}: a reader may copy the digest of a token; print sha256 = \"…\", which is refused"
        if DELETES_JOURNAL.search(block):
            yield f"{page}:{fence.line}: ./data may be the journal of the reader; give the example a folder of its own"
    says_how = MAKES_TOKEN.search(text) or ("access.md" in text and not page.startswith("docs/connect/"))
    if page.startswith("docs/") and TOKEN.search(text) and not says_how:
        yield f"{page}: it names a token; print the `tidings token --scope …` that makes it"


def unlisted(root, pages):
    overview = (root / "docs/README.md").read_text()
    for page in pages:
        name = page.removeprefix("docs/")
        if name != page and name != "README.md" and f"({name})" not in overview:
            yield f"{page}: docs/README.md does not list it"


def check(root, pages):
    """Raises an error if a page breaks a rule."""
    wrong = [line for page in pages for rule in (dead_links, harms) for line in rule(root, page)]
    wrong += unlisted(root, pages)
    wrong += [f"{name}: a reader may copy the digest of a token" for name in ("config/default.toml", "packaging/tidings.toml")
              if TOKEN_DIGEST.search((root / name).read_text())]
    if wrong:
        raise PageError("\n".join(wrong))
