"""Walks pages as a reader would: runs the commands as printed, in the order printed, and compares the output.

    scripts/walk [--update] [PAGE …]

Without pages, walks all of `pages.py`, side by side, each in a copy of the checkout and a network of its own. A failure
shows page and line. `--update` writes the real output into the pages.
"""

import argparse
import json
import os
import re
import subprocess
import sys
import tempfile
import time
import urllib.request
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path

import configuration
import rules
from checkout import Copy, copy_checkout, start_loopback, with_network
from document import PageError, Stop, Write, has_commands, steps
from output import difference, matches, merged
from pages import NOT_WALKED, WALKED
from services import start
from terminal import PATIENCE, Terminal, WalkError

ROOT = Path(__file__).resolve().parents[2]

# Commands that stay in the foreground: each has a terminal of its own.
SERVER = re.compile(r"(\w+=(\$\(.*?\)|\S*) )*"
                    r"(tidings serve|cargo run .*-- serve|(python3|scripts/python) examples/(\w+_(repository|receiver)|solr)\.py)")

# Commands that follow changes until Ctrl-C.
FOLLOWER = re.compile(r"(tidings (tail|crawl)|curl -sN|scripts/python\S* examples/(follow|indexer)\.py)")

# Seconds in which a block that waits must print the right output.
REPEAT_TIME = 15

# Number of pages that are walked at once. Most of the time a page waits for its servers.
AT_ONCE = 4


class Reader:
    """Somebody who follows a page."""

    def __init__(self, copy, folder, update, has_services):
        self.copy, self.folder, self.update, self.has_services = copy, folder, update, has_services
        self.terminals, self.servers = 0, []
        self.terminal = self.open()
        # Real output for the output in the pages.
        self.updates = []

    def open(self):
        self.terminals += 1
        return Terminal(self.copy.folder, self.copy.environment, self.folder / f"statuses-{self.terminals}")

    def close(self):
        for terminal in [*self.servers, self.terminal]:
            terminal.close()

    def follow(self, step):
        if isinstance(step, Stop):
            for server in self.servers:
                server.interrupt()
                output = "\n".join(server.output())
                server.close()
                if "Traceback" in output:
                    raise WalkError(f"Ctrl-C in the section {step.section}:\n{output}")
            self.servers = []
        elif isinstance(step, Write):
            (self.copy.folder / step.name).write_text("\n".join([*step.fence.lines, ""]))
        elif step.skip is None:
            try:
                self.run(step)
            except WalkError as error:
                raise WalkError(f"{step.place}: {step.fence.lines[0]}\n{error}") from None

    def run(self, block):
        printed = block.output.lines if block.output else None
        last = re.split(r"\n(?! )", block.text)[-1]
        is_server = SERVER.match(last) and not last.endswith("&")
        terminal = self.open() if is_server else self.terminal
        if is_server:
            self.servers.append(terminal)
        until = time.monotonic() + REPEAT_TIME
        while True:
            terminal.paste(block.text)
            try:
                real = self.real_output(terminal, printed, is_server, FOLLOWER.search(last), " 2> " in last)
            except WalkError as error:
                raise WalkError(f"{error}; its output:\n" + "\n".join(self.shown(terminal))) from None
            if printed is None or matches(printed, real):
                return
            if not block.repeats or time.monotonic() > until:
                break
            time.sleep(0.2)
        self.updates.append((block.output, real))
        if not self.update:
            raise WalkError(difference(f"{block.page}:{block.output.line}", printed, real))

    def real_output(self, terminal, printed, is_server, is_follower, writes_log):
        """Returns the output of the block that was pasted, when it is complete."""
        def is_complete():
            return matches(printed, self.shown(terminal)) if printed else bool(terminal.output())

        if is_server:
            terminal.wait_for_server(["8395"] if writes_log else [])
            if self.has_services:
                wait_for_sources()
            if printed is not None:
                self.wait_for_output(terminal, is_complete)
        elif is_follower:
            self.wait_for_output(terminal, is_complete)
            real = self.shown(terminal)
            terminal.interrupt()
            return real
        else:
            status = terminal.wait()
            if status != 0 and printed is None:
                raise WalkError(f"it has ended with exit code {status}")
        return self.shown(terminal)

    def wait_for_output(self, terminal, is_complete):
        """Waits until the output is complete. An output that stays another one is compared afterwards."""
        try:
            terminal.wait(is_complete, PATIENCE / 3)
        except WalkError:
            pass

    def shown(self, terminal):
        """Returns the output with the folder that the pages print."""
        return [line.replace(str(self.copy.folder), "/home/you/tidings") for line in terminal.output()]


def wait_for_sources():
    """Waits until a gateway reads its sources, because messages of a topic are lost before that. A reader is slower."""
    until = time.monotonic() + PATIENCE
    while time.monotonic() < until:
        with urllib.request.urlopen("http://127.0.0.1:8395/sources") as response:
            sources = json.load(response)["sources"]
        if all(source["connection"]["state"] == "connected" for source in sources if source.get("connection")):
            return
        time.sleep(0.1)
    raise WalkError("the gateway does not read its sources")


def own_steps(page):
    return steps(page, (ROOT / page).read_text())


def steps_before(page):
    """Returns the steps of another page to the end of the section that a page assumes. The servers there still run."""
    if not WALKED[page].after:
        return []
    other, section = WALKED[page].after.split("#")
    before = own_steps(other)
    last = max(number for number, step in enumerate(before) if step.section == section)
    return steps_before(other) + [step for step in before[: last + 1] if not isinstance(step, Stop)]


def walk(page, template, program, update):
    """Walks one page in a copy of the copy of the checkout. Raises an error if it is not as printed."""
    with ExitStack() as end:
        folder = Path(end.enter_context(tempfile.TemporaryDirectory(prefix="tidings-walk-")))
        copy = Copy(ROOT, template, folder, program)
        for name in WALKED[page].services:
            service, variables = start(name, folder, copy.environment)
            end.callback(service.close)
            copy.environment |= variables
        reader = Reader(copy, folder, update, bool(WALKED[page].services))
        end.callback(reader.close)
        for step in steps_before(page):
            reader.follow(step)
        reader.updates = []
        for step in own_steps(page):
            reader.follow(step)
        if changed := copy.changes():
            raise WalkError(f"{page}: git status shows after the walk: {', '.join(changed[:10])}")
    if reader.updates:
        rewrite(ROOT / page, reader.updates)


def rewrite(path, updates):
    """Writes real output into a page."""
    lines = path.read_text().splitlines()
    for fence, real in sorted(updates, key=lambda update: -update[0].line):
        new = [(fence.indent + line).rstrip() for line in merged(fence.lines, real)]
        lines[fence.line - 1 : fence.line - 1 + len(fence.lines)] = new
    path.write_text("\n".join(lines) + "\n")


def check_lists():
    """Raises an error if a page with commands is in no list, or a list has a page without commands."""
    pages = [path for folder in ["docs", "docs/connect"] for path in (ROOT / folder).glob("*.md")]
    with_commands = {name for name in ["README.md", *(str(path.relative_to(ROOT)) for path in pages)]
                     if has_commands((ROOT / name).read_text())}
    listed = WALKED.keys() | NOT_WALKED.keys()
    wrong = [f"{page} has commands; add it to tests/walk/pages.py" for page in sorted(with_commands - listed)]
    wrong += [f"{page} has no commands; remove it from tests/walk/pages.py" for page in sorted(listed - with_commands)]
    wrong += [f"{page} is in both lists of tests/walk/pages.py" for page in sorted(WALKED.keys() & NOT_WALKED.keys())]
    if wrong:
        raise PageError("\n".join(wrong))


def check_texts(program, given):
    """Raises an error if a page breaks a rule, or one of the given pages has a configuration that the program refuses."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard", "*.md"], cwd=ROOT,
                            check=True, capture_output=True, text=True).stdout
    pages = sorted(name for name in listed.split("\0") if name and (ROOT / name).exists())
    rules.check(ROOT, pages)
    configuration.check(ROOT, given or pages, program)


def walk_all(pages, program, update):
    """Walks pages side by side, and returns whether all are as printed."""
    network = with_network()
    if not network:
        print("walk: the system allows no networks of their own (unshare), so one page is walked after the other")

    def walk_one(page, template):
        began = time.monotonic()
        options = [*(["--update"] if update else []), *(["--new-network"] if network else [])]
        command = [*network, sys.executable, __file__, "--program", program, *options, "--template", template, page]
        done = subprocess.run(command, capture_output=True, text=True)
        return page, done, time.monotonic() - began

    is_right = True
    with ExitStack() as end:
        template = Path(end.enter_context(tempfile.TemporaryDirectory(prefix="tidings-walk-"))) / "tidings"
        copy_checkout(ROOT, template)
        walks = end.enter_context(ThreadPoolExecutor(AT_ONCE if network else 1))
        # Those that wait for a broker first.
        pages = sorted(pages, key=lambda page: not WALKED[page].services)
        for page, done, seconds in walks.map(lambda page: walk_one(page, template), pages):
            is_right &= done.returncode == 0
            outcome = "NOT AS PRINTED" if done.returncode else "updated" if update else "as printed"
            print(f"{outcome:14}  {seconds:4.1f} s  {page}", flush=True)
            print(done.stdout + done.stderr, end="", flush=True)
    if len(pages) == len(WALKED):
        print(f"{len(pages)} pages are walked; tests/walk/pages.py says why {len(NOT_WALKED)} others with commands are not")
    return is_right


def main():
    arguments = argparse.ArgumentParser(prog="scripts/walk", description=__doc__.splitlines()[0])
    arguments.add_argument("--update", action="store_true", help="write the real output into the pages")
    arguments.add_argument("--program", required=True, help=argparse.SUPPRESS)
    arguments.add_argument("--new-network", action="store_true", help=argparse.SUPPRESS)
    arguments.add_argument("--template", type=Path, help=argparse.SUPPRESS)
    arguments.add_argument("pages", nargs="*", help="pages; default: all")
    given = arguments.parse_args()
    try:
        if given.template:
            # All servers are on this machine.
            for name in [name for name in os.environ if name.lower().endswith("_proxy")]:
                del os.environ[name]
            if given.new_network:
                start_loopback()
            walk(given.pages[0], given.template, given.program, given.update)
            return
        check_lists()
        check_texts(given.program, given.pages)
        if unknown := [page for page in given.pages if page not in WALKED]:
            raise PageError(f"not in the list WALKED of tests/walk/pages.py: {', '.join(unknown)}")
        if not walk_all(given.pages or list(WALKED), given.program, given.update):
            sys.exit(1)
    except (PageError, WalkError) as error:
        sys.exit(str(error))
    except KeyboardInterrupt:
        sys.exit(130)


if __name__ == "__main__":
    main()
