"""Terminals of a reader: shells in which blocks are pasted, with their programs."""

import fcntl
import os
import pty
import re
import select
import signal
import socket
import struct
import subprocess
import termios
import threading
import time
from pathlib import Path

# Runs the blocks of standard input, and writes the exit code of each to a file. Ctrl-C ends the command, not the shell.
SHELL = r"""
trap : INT
while IFS= read -r -d '' block; do
    eval "$block" </dev/null
    echo "$?" >>"$1"
done
"""

# Ports that a server names when it is ready.
PORT = re.compile(r"(?:127\.0\.0\.1:|port )(\d{2,5})\b")

# Colours, and the sequences after which the rest of a line replaces its beginning, as progress bars write it.
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
REPLACED = re.compile(r"^.*(\r|\x1b\[2K)")

# Seconds in which a block must end, and a server must be ready.
PATIENCE = 30


class WalkError(Exception):
    """A command that did not do what its page says."""


class Terminal:
    """A shell with a pseudo terminal for its output, because programs keep lines back if they write to anything else."""

    def __init__(self, folder, environment, statuses):
        self.statuses = statuses
        self.statuses.touch()
        self.blocks = 0
        self.written = bytearray()
        self.lock = threading.Lock()
        self.screen, output = pty.openpty()
        rows, columns = 50, 160
        fcntl.ioctl(output, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
        self.shell = subprocess.Popen(
            ["bash", "--noprofile", "--norc", "-c", SHELL, "bash", self.statuses], cwd=folder, env=environment,
            stdin=subprocess.PIPE, stdout=output, stderr=output, start_new_session=True,
            # A shell in the background ignores Ctrl-C, and its programs would inherit that.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL))
        os.close(output)
        self.reader = threading.Thread(target=self.read, daemon=True)
        self.reader.start()

    def read(self):
        """Reads what the programs write, so that none blocks."""
        while True:
            select.select([self.screen], [], [])
            with self.lock:
                try:
                    self.written += os.read(self.screen, 65536)
                except OSError: # All programs have ended.
                    return

    def paste(self, text):
        """Starts the commands of a block."""
        self.output() # All that the last block has written is read, and none of it is output of this one.
        with self.lock:
            self.written.clear()
        self.blocks += 1
        self.shell.stdin.write(text.encode() + b"\0")
        self.shell.stdin.flush()

    def output(self):
        """Returns the lines since the last block was pasted."""
        while select.select([self.screen], [], [], 0)[0] and self.reader.is_alive():
            time.sleep(0.001)
        with self.lock:
            text = self.written.decode(errors="replace")
        lines = COLOUR.sub("", text.replace("\r\n", "\n")).rstrip().split("\n")
        return [REPLACED.sub("", line) for line in lines] if lines != [""] else []

    def status(self):
        """Returns the exit code of the last block, or `None` while it runs."""
        statuses = self.statuses.read_text().split()
        return int(statuses[-1]) if len(statuses) == self.blocks else None

    def wait(self, is_enough=lambda: False, patience=PATIENCE):
        """Waits until the block has ended, and returns its exit code; or until the condition holds, and returns `None`."""
        until = time.monotonic() + patience
        while (status := self.status()) is None:
            if is_enough():
                return None
            if time.monotonic() > until or self.shell.poll() is not None:
                raise WalkError(f"it has not ended within {patience} seconds")
            time.sleep(0.02)
        return status

    def wait_for_server(self, log_ports):
        """Waits until a server accepts connections at a port of its output or, if its output is in a file, at these."""
        status = self.wait(lambda: any(map(is_open, PORT.findall("\n".join(self.output())) or log_ports)))
        if status is not None:
            raise WalkError(f"the server has ended with exit code {status}")

    def interrupt(self):
        """Presses Ctrl-C, and waits until the commands have ended."""
        os.killpg(self.shell.pid, signal.SIGINT)
        self.wait()

    def close(self):
        """Ends the shell with everything that it has started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            until = time.monotonic() + 5
            while is_running(self.shell.pid):
                os.killpg(self.shell.pid, number)
                if time.monotonic() > until:
                    break
                time.sleep(0.02)
        self.shell.stdin.close()
        self.shell.wait()


def is_running(group):
    """Returns whether a process of a group runs. One that has ended counts no longer, even if nobody has asked how."""
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            state, _, number = stat.read_text().rsplit(")", 1)[1].split()[:3]
        except OSError:
            continue
        if int(number) == group and state != "Z":
            return True
    return False


def is_open(port):
    """Returns whether a server accepts connections at a port."""
    with socket.socket() as connection:
        connection.settimeout(1)
        return connection.connect_ex(("127.0.0.1", int(port))) == 0
