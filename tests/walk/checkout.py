"""The private copy of the checkout in which a page is walked, and the machine that its reader has."""

import fcntl
import os
import socket
import struct
import subprocess
from pathlib import Path

# Stands for Cargo, because the program is built already. `cargo install` and `cargo build` do nothing.
CARGO = """#!/bin/sh
case "$1" in
run) while [ "$1" != -- ]; do shift; done; shift; exec tidings "$@" ;;
build | install) exit 0 ;;
*) echo "cargo $1 is not walked" >&2; exit 1 ;;
esac
"""


class Copy:
    """A copy of the files of a checkout that Git knows, or would know."""

    def __init__(self, root, folder, program):
        self.root, self.folder = root, folder / "tidings"
        listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root,
                                check=True, capture_output=True).stdout
        names = [name for name in listed.decode().split("\0") if name and (root / name).exists()]
        self.folder.mkdir()
        subprocess.run(["cp", "--parents", "--preserve=mode,links", "--target-directory", self.folder, "--", *names],
                       cwd=root, check=True)
        self.times = {name: (self.folder / name).stat().st_mtime_ns for name in names}
        binaries = folder / "bin"
        binaries.mkdir()
        (binaries / "tidings").symlink_to(program)
        (binaries / "cargo").write_text(CARGO)
        (binaries / "cargo").chmod(0o755)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("TIDINGS_")}
        target = environment.get("CARGO_TARGET_DIR", "target")
        self.environment = environment | {
            "PATH": f"{binaries}:{environment['PATH']}", "HOME": str(folder), "CARGO_TARGET_DIR": str(root / target),
            "PYTHONDONTWRITEBYTECODE": "1"}

    def changes(self):
        """Returns the files that `git status` would show after the walk."""
        files = {str(path.relative_to(self.folder)): path for path in self.folder.rglob("*") if not path.is_dir()}
        changed = [name for name, time in self.times.items()
                   if name not in files or files[name].stat().st_mtime_ns != time]
        others = "\0".join(files.keys() - self.times.keys())
        ignored = subprocess.run(["git", "check-ignore", "--no-index", "-z", "--stdin"], cwd=self.root, input=others,
                                 text=True, capture_output=True).stdout.split("\0")
        return sorted(changed + list(files.keys() - self.times.keys() - set(ignored)))


def with_network():
    """Returns the command that runs another one in a network of its own, or nothing if the system refuses that."""
    for command in (["unshare", "--net"], ["unshare", "--map-root-user", "--net"]):
        try:
            if subprocess.run([*command, "true"], capture_output=True).returncode == 0:
                return command
        except FileNotFoundError:
            pass
    return []


def start_loopback():
    """Starts the loopback interface of a new network."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        up = 1
        request = struct.pack("16sH14s", b"lo", up, b"")
        set_flags = 0x8914
        fcntl.ioctl(any_socket, set_flags, request)
