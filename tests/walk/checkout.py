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


def copy_checkout(root, folder):
    """Copies the files of a checkout that Git knows, or would know."""
    listed = subprocess.run(["git", "ls-files", "-z", "--cached", "--others", "--exclude-standard"], cwd=root, check=True,
                            capture_output=True).stdout
    names = [name for name in listed.decode().split("\0") if name and (root / name).exists()]
    folder.mkdir()
    subprocess.run(["cp", "--parents", "--preserve=mode,links", "--target-directory", folder, "--", *names], cwd=root,
                   check=True)


def files_of(folder):
    """Returns the files of a folder by name, each with the time of its last change."""
    files = (path for path in folder.rglob("*") if path.is_symlink() or not path.is_dir())
    return {str(path.relative_to(folder)): path.lstat().st_mtime_ns for path in files}


class Copy:
    """The copy for one page, made of hard links to a copy for all pages. A page that writes into such a file fails."""

    def __init__(self, root, template, folder, program):
        self.root, self.folder = root, folder / "tidings"
        subprocess.run(["cp", "--archive", "--link", template, self.folder], check=True)
        self.files = files_of(self.folder)
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
        files = files_of(self.folder)
        changed = {name for name, time in self.files.items() if files.get(name) != time}
        new = files.keys() - self.files.keys()
        ignored = subprocess.run(["git", "check-ignore", "--no-index", "-z", "--stdin"], cwd=self.root,
                                 input="\0".join(new), text=True, capture_output=True).stdout.split("\0")
        return sorted(changed | new - set(ignored))


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
