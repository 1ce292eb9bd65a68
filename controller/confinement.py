"""A person's application in mount, process and IPC namespaces of its own.

For code that nobody trusts, such as a student's: by bubblewrap. It sees the
machine's files read-only and has scratch folders of its own; all its files and
processes end with it. The network is the machine's, on whose loopback it
listens.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path

PROGRAM = "bwrap"
SCRATCH = ("/tmp", "/var/tmp", "/run/lock", "/dev/shm")  # noqa: S108 - inside
SCRATCH_BYTES = 64 << 20
OF_SCRATCH = ("--size", str(SCRATCH_BYTES), "--perms", "1777")


def confined(command: Sequence[str], folders: Iterable[Path]) -> list[str]:
    """The command in namespaces that end with the process that starts it.

    ``folders``: what it needs to read, wherever it is.
    """
    arguments = [
        PROGRAM,
        *("--unshare-pid", "--unshare-ipc", "--die-with-parent"),
        # The launcher, root still, gives up all of them itself.
        *("--cap-add", "ALL"),
        *("--ro-bind", "/", "/"),
        *("--dev", "/dev", "--proc", "/proc"),
    ]
    for scratch in filter(_exists, SCRATCH):
        arguments += [*OF_SCRATCH, "--tmpfs", scratch]
    # /dev is a tmpfs too, and would take files without a bound. This makes
    # it alone read-only, not /dev/shm below it.
    arguments += ["--remount-ro", "/dev"]
    for folder in folders:
        for name in (str(folder), str(folder.resolve())):
            if name.startswith(SCRATCH):
                # It would be hidden.
                arguments += ["--ro-bind", str(folder), name]
    return [*arguments, "--", *command]


def _exists(folder: str) -> bool:
    return Path(folder).is_dir()
