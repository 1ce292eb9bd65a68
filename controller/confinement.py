"""Confinement of an application that is not trusted, such as a student's.

Bubblewrap starts it in mount, process and IPC namespaces of its own. There the
machine's files are read-only, and scratch folders are empty at first. All that
the application writes and starts ends with it. The network is the machine's,
since the application listens on its loopback.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

PROGRAM = "bwrap"
SCRATCH = ("/tmp", "/var/tmp", "/run/lock", "/dev/shm")  # noqa: S108 - inside
SCRATCH_BYTES = 64 << 20
SCRATCH_OPTIONS = ("--size", str(SCRATCH_BYTES), "--perms", "1777")


def confined(command: Sequence[str], folders: Iterable[Path]) -> list[str]:
    """A command that runs ``command`` confined, and ends with the process that
    starts it.

    ``folders``: absolute paths of folders that ``command`` needs to read, which
    may be below scratch folders.
    """
    arguments = [
        PROGRAM,
        *("--unshare-pid", "--unshare-ipc", "--die-with-parent"),
        # The controller's launcher starts as root, and drops them itself.
        *("--cap-add", "ALL"),
        *("--ro-bind", "/", "/"),
        *("--dev", "/dev", "--proc", "/proc"),
    ]
    for scratch in SCRATCH:
        if Path(scratch).is_dir():
            arguments += [*SCRATCH_OPTIONS, "--tmpfs", scratch]
    # /dev is a tmpfs without a limit on its size. Mounts below it, such as
    # /dev/shm, stay writable.
    arguments += ["--remount-ro", "/dev"]
    for folder in folders:
        # The application may use either path, if one of them has a link.
        for path in (str(folder), str(folder.resolve())):
            # The empty scratch folder would hide it.
            if path.startswith(SCRATCH):
                arguments += ["--ro-bind", str(folder), path]
    return [*arguments, "--", *command]
