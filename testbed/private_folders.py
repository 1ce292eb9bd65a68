"""Temporary folders that nobody but their user can make, replace or list.

In a shared folder such as /tmp whoever comes first makes a folder with a known
name; what another user's program later reads there may be his.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import stat
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOTS_BASE = Path("/var/cache/hosenet/tmp")
"""Root's temporary folders: root alone can write there and above, and programs
can be executed there, which /run often forbids.
"""
ABANDONED_S = 3600.0
"""Age from which a folder that no process uses is removed, in seconds."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def private_folder(prefix: str, *, entered: bool = False) -> Iterator[Path]:
    """A new folder of this user's with an unpredictable name; removed at the
    end of the block; those that killed processes left, at its beginning.

    ``entered``: other users, such as VMs' programs, may open what they know the
    name of; they cannot list or change it.
    """
    base = _base()
    if base is not None:
        _remove_abandoned(base)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=base) as name:
        folder = Path(name)
        if entered:
            folder.chmod(0o711)
        with _locked(folder, fcntl.LOCK_SH):
            yield folder


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[None]:
    """Locks a folder while the block lasts. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        fcntl.flock(descriptor, kind)
        yield
    finally:
        os.close(descriptor)


def _remove_abandoned(base: Path) -> None:
    until_s = time.time() - ABANDONED_S
    for folder in base.iterdir():
        with suppress(OSError):
            if folder.lstat().st_mtime < until_s:
                with _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB):
                    shutil.rmtree(folder)


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


def _base() -> Path | None:
    """The folder in which this user's temporary folders are made.

    None where the user has no home that can be written, for the shared one: its
    new folders are their maker's alone as long as it is sticky.
    """
    candidates = [ROOTS_BASE]
    if os.geteuid() != 0:
        run_time = os.environ.get("XDG_RUNTIME_DIR") or "/nowhere"
        cache = Path("~/.cache/hosenet/tmp").expanduser()
        candidates = [Path(run_time, "hosenet"), cache]
    for base in candidates:
        with suppress(OSError):
            base.mkdir(mode=0o755, parents=True, exist_ok=True)
            if base == ROOTS_BASE:
                # Whatever root's umask is.
                base.parent.chmod(0o711)
                base.chmod(0o711)
            if os.access(base, os.W_OK) and replaceable(base) is None:
                return base
    return None
