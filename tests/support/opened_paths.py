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

PATHS: dict[str, tuple[tuple[int, int | None], ...]] = {
    # Of os.open, which alone takes a folder, the event does not say which.
    "open": ((0, None),),
    "os.chmod": ((0, 2),),
    "os.chown": ((0, 3),),
    "os.link": ((0, 2), (1, 3)),
    "os.mkdir": ((0, 2),),
    "os.remove": ((0, 1),),
    "os.rename": ((0, 2), (1, 3)),
    "os.rmdir": ((0, 1),),
    # Its first argument is what the link says, which is not looked up.
    "os.symlink": ((1, 2),),
    "os.truncate": ((0, None),),
    "os.utime": ((0, 3),),
    "shutil.move": ((0, None), (1, None)),
    "shutil.rmtree": ((0, 1),),
}
"""Of each audit event its paths: which argument, and which one is the open
folder that it is relative to (https://docs.python.org/3/library/audit_events.html).
"""
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


def by_name(event: str, arguments: tuple[object, ...]) -> list[str]:
    """The paths of an event that are not relative to an open folder."""
    names = []
    for number, folder_number in PATHS[event]:
        path = arguments[number]
        # Numbers are files that are open.
        if not isinstance(path, str | bytes | os.PathLike):
            continue
        name = os.fsdecode(path)
        if name.startswith(("/proc/", "/dev/")):
            continue
        if not name.startswith("/") and _in_open_folder(
            event, arguments, folder_number
        ):
            continue
        names.append(name)
    return names


def _in_open_folder(
    event: str, arguments: tuple[object, ...], folder_number: int | None
) -> bool:
    if event == "open":
        # os.open alone has no mode.
        return arguments[1] is None
    if folder_number is None:
        return False
    # Without a folder: -1, of shutil None.
    folder = arguments[folder_number]
    return isinstance(folder, int) and folder >= 0


class Watch:
    """Writes down what is opened by a path that others can change."""

    def __init__(self, out: Path) -> None:
        self._out = out.open("w", buffering=1)
        self._busy = False

    def __call__(self, event: str, arguments: tuple[object, ...]) -> None:
        if self._busy or event not in PATHS or os.geteuid() != 0:
            return
        self._busy = True
        try:
            for path in by_name(event, arguments):
                if exchangeable(path):
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
