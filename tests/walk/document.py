"""Pages as a reader sees them: blocks of commands, each with the output that is printed after it.

A block of commands has the language `sh`. A block without a language, or of the language `json`, is the output of the
block of commands directly before it. HTML comments, which a reader does not see, say what a script cannot know:

    <!-- walk: write FILE -->      the text tells the reader to write the next block into this file
    <!-- walk: stop -->            the text tells the reader to press Ctrl-C in the terminals of all servers
    <!-- walk: skip REASON -->     the next block is not run
    <!-- walk: wait -->            the next block is repeated for some seconds until its output is the printed one, because
                                   a reader is slower than a program
"""

import re
from dataclasses import dataclass, field

FENCE = re.compile(r"( *)```(\w*)$")
DIRECTIVE = re.compile(r" *<!-- walk: (\w+) ?(.*?) *-->$")
HEADING = re.compile(r"#+ (.*)$")


class PageError(Exception):
    """A page that cannot be walked, with its place."""


@dataclass
class Fence:
    """A block of a page, without its indentation. `line` is the number of its first line within the fences."""

    language: str
    line: int
    indent: str
    lines: list[str] = field(default_factory=list)


@dataclass
class Commands:
    """A block of commands with its output; `section` is the anchor of its heading."""

    page: str
    section: str
    fence: Fence
    output: Fence | None = None
    skip: str | None = None
    repeats: bool = False

    @property
    def place(self):
        return f"{self.page}:{self.fence.line}"

    @property
    def text(self):
        return "\n".join(self.fence.lines)


@dataclass
class Write:
    """The reader writes a block into a file."""

    section: str
    name: str
    fence: Fence


@dataclass
class Stop:
    """The reader presses Ctrl-C in the terminals of all servers."""

    section: str


def anchor(heading):
    """Returns the anchor that a heading has in the rendered page."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def has_commands(text):
    """Returns whether a page has commands for a reader."""
    return any(fence.language in ("sh", "console") for fence in fences(text))


def fences(text):
    """Yields the blocks of a page."""
    return (part for part in parts(text) if isinstance(part, Fence))


def parts(text):
    """Yields the blocks and the lines between them that are not empty."""
    block = None
    for number, line in enumerate(text.splitlines(), 1):
        fence = FENCE.match(line)
        if block is not None and line.strip() == "```":
            yield block
            block = None
        elif block is not None:
            block.lines.append(line.removeprefix(block.indent))
        elif fence:
            block = Fence(fence[2], number + 1, fence[1])
        elif line.strip():
            yield number, line


def steps(page, text):
    """Returns what a reader of a page does, in order."""
    result, last, section, directives = [], None, "", {}
    for part in parts(text):
        if isinstance(part, Fence):
            if part.language == "console":
                raise PageError(f"{page}:{part.line}: a page that is walked has its commands in a block sh, and their "
                                "output in a block after it")
            if part.language == "sh":
                last = Commands(page, section, part, None, directives.pop("skip", None), "wait" in directives)
                result.append(last)
                directives = {}
            elif part.language in ("", "json") and last is not None:
                while part.lines and not part.lines[-1]:
                    part.lines.pop()
                last.output, last = part, None
            else:
                last = None
                if "write" in directives:
                    result.append(Write(section, directives.pop("write"), part))
            continue
        number, line = part
        last = None
        heading, directive = HEADING.match(line), DIRECTIVE.match(line)
        if heading:
            section = anchor(heading[1])
        elif directive and directive[1] == "stop":
            result.append(Stop(section))
        elif directive and directive[1] in ("skip", "wait", "write"):
            directives[directive[1]] = directive[2]
        elif "<!-- walk" in line:
            raise PageError(f"{page}:{number}: there are write, stop, skip and wait")
    return result
