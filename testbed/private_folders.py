"""Temporary folders that nobody but their user can make, replace or list.

In a shared folder such as /tmp whoever comes first makes a folder with a known
name; what another user's program later reads there may be his.
"""

from __future__ import annotations

import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOTS_BASE = Path("/var/cache/hosenet/tmp")
"""Root's temporary folders: root alone can write there and above, and programs
can be executed there, which /run often forbids.
"""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def private_folder(prefix: str, *, entered: bool = False) -> Iterator[Path]:
    """A new folder of this user's with an unpredictable name; removed at the
    end of the block.

    ``entered``: other users, such as VMs' programs, may open what they know the
    name of; they cannot list or change it.
    """
    base = _base()
    with tempfile.TemporaryDirectory(prefix=prefix, dir=base) as name:
        folder = Path(name)
        if entered:
            folder.chmod(0o711)
        yield folder


def replaceable(folder: Path) -> Path | None:
    """The first folder on the way to this one, it included, that another user
    owns or can rename things in; None where there is none.
    """
    path = folder.resolve()
    for here in (*reversed(path.parents), path):
        status = here.stat()
        is_others = status.st_uid not in (0, os.geteuid())
        sticky = status.st_mode & stat.S_ISVTX
        if is_others or (status.st_mode & _OTHERS_WRITE and not sticky):
            return here
    return None


def _base() -> Path:
    """The folder in which this user's temporary folders are made.

    Where the user has no home that can be written, the shared one: its new
    folders are its maker's alone as long as it is sticky.
    """
    candidates = [ROOTS_BASE]
    if os.geteuid() != 0:
        run_time = os.environ.get("XDG_RUNTIME_DIR") or "/nowhere"
        cache = Path("~/.cache/hosenet/tmp").expanduser()
        candidates = [Path(run_time), cache]
    for base in candidates:
        with suppress(OSError):
            base.mkdir(mode=0o755, parents=True, exist_ok=True)
            if base == ROOTS_BASE:
                # Whatever root's umask is.
                base.parent.chmod(0o711)
                base.chmod(0o711)
            if os.access(base, os.W_OK) and replaceable(base) is None:
                return base
    return Path(tempfile.gettempdir())
