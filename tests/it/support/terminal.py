"""Runs a command on a pseudo terminal of 80 columns and 24 lines.

Waits until the command has written a text, sends it keys, and prints all that it has written. The exit code is that of the
command.
"""

import fcntl
import os
import pty
import select
import struct
import sys
import termios
import time

expected, keys, *command = sys.argv[1:]
process, terminal = pty.fork()
if process == 0:
    fcntl.ioctl(0, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    os.environ["TERM"] = "xterm-256color"
    os.execvp(command[0], command)
written = b""
is_sent = False
deadline = time.monotonic() + 30
while True:
    ready, _, _ = select.select([terminal], [], [], max(0, deadline - time.monotonic()))
    if not ready:
        sys.exit(f"timeout; written: {written!r}")
    try:
        piece = os.read(terminal, 65536)
    except OSError:  # The command has ended.
        break
    if not piece:
        break
    written += piece
    if not is_sent and expected.encode() in written:
        os.write(terminal, keys.encode())
        is_sent = True
_, status = os.waitpid(process, 0)
sys.stdout.buffer.write(written)
sys.exit(os.waitstatus_to_exitcode(status))
