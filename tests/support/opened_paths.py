"""``python opened_paths.py OUT ARGUMENTS``: the command ``testbed`` as root, with a
line in OUT for each path that it opens, makes or removes through a folder in
which another user can exchange what is there.

Paths relative to an open folder are not told: nobody can exchange that.
"""

from __future__ import annotations

import os
import stat
import sys
from pathlib import Path

EVENTS = frozenset(
    ["open", "shutil.rmtree", "shutil.move"]
    + [
        f"os.{name}"
        for name in (
            *("mkdir", "rename", "remove", "rmdir", "chmod", "chown"),
            *("link", "symlink", "truncate", "utime"),
        )
    ]
)
OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


def exchangeable(path: str) -> bool:
    """True if a folder on the way is another user's, or any user's where the
    name in it is not root's.
    """
    here = Path("/")
    for name in Path(path).absolute().parts[1:]:
        try:
            status = here.stat()
        except OSError:
            return False
        below = here / name
        if status.st_uid != 0:
            return True
        if status.st_mode & OTHERS_WRITE:
            # In a sticky folder, as /tmp is, only its owner can exchange
            # what a name stands for; but anybody can make a name that is
            # not there.
            if not status.st_mode & stat.S_ISVTX:
                return True
            if below.is_symlink() or not below.exists():
                return True
            if below.stat().st_uid != 0:
                return True
        here = below
    return False


def by_name(event: str, arguments: tuple[object, ...]) -> str | None:
    """The path of an event, None where it is relative to an open folder."""
    path = arguments[0]
    if not isinstance(path, str | bytes):
        return None
    name = os.fsdecode(path)
    if name.startswith(("/proc/", "/dev/")):
        return None
    if not name.startswith("/"):
        if event == "open":
            # Of os.open, which alone takes a folder; the event does not say.
            return None if arguments[1] is None else name
        if any(isinstance(n, int) and n > 2 for n in arguments[1:]):
            return None
    return name


class Watch:
    """Writes down what is opened by a path that others can change."""

    def __init__(self, out: Path) -> None:
        self._out = out.open("w", buffering=1)
        self._busy = False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._busy or event not in EVENTS or os.geteuid() != 0:
            return
        self._busy = True
        try:
            path = by_name(event, arguments)
            if path is not None and exchangeable(path):
                print(event, path, file=self._out)
        finally:
            self._busy = False


if __name__ == "__main__":
    sys.addaudithook(Watch(Path(sys.argv[1])))
    del sys.argv[:2]
    # What an installation made before tests/unit/test_editable_installation.py
    # has there.
    sys.path[:] = [entry for entry in sys.path if entry.startswith("/")]
    from testbed.cli.main import main

    main(sys.argv)
