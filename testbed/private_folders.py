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
from collections.abc import Container, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

ROOTS_BASE = Path("/var/cache/hosenet/tmp")
"""Root's temporary folders: root alone can write there and above, and programs
can be executed there, which /run often forbids.
"""
ABANDONED_S = 3600.0
"""Age from which a folder that no process uses is removed, in seconds."""
YOUNG_S = 60.0
"""Age below which a folder may have been made, and not locked yet."""
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@contextmanager
def private_folder(prefix: str, *, entered: bool = False) -> Iterator[Path]:
    """A new folder of this user with an unpredictable name, removed at the end
    of the block. Folders that killed processes left are removed first.

    ``entered``: other users, such as VMs' programs, may open files whose names
    they know; they cannot list or change the folder.
    """
    base = _base()
    if base is not None:
        remove_abandoned(base, age_s=ABANDONED_S)
    with tempfile.TemporaryDirectory(prefix=prefix, dir=base) as name:
        folder = Path(name)
        if entered:
            folder.chmod(0o711)
        with _locked(folder, fcntl.LOCK_SH):
            yield folder


@contextmanager
def _locked(folder: Path, kind: int) -> Iterator[int]:
    """Opens and locks a folder while the block lasts. Raises OSError."""
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(folder, flags)
    try:
        fcntl.flock(descriptor, kind)
        yield descriptor
    finally:
        os.close(descriptor)


def remove_abandoned(
    base: Path,
    *,
    age_s: float = YOUNG_S,
    pattern: str = "*",
    users: Container[int] = range(1 << 32),
    dry_run: bool = False,
) -> list[Path]:
    """Removes the folders that killed processes have left; their paths.

    ``age_s``: nothing was made in them for so long. ``pattern``: of their names.
    ``users``: numbers of their possible owners. A dry run removes nothing.
    """
    until_s = time.time() - age_s
    removed = []
    for folder in sorted(base.glob(pattern)):
        with (
            suppress(OSError),
            _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB) as held,
        ):
            status = os.fstat(held)
            if status.st_mtime >= until_s or status.st_uid not in users:
                continue
            if not dry_run:
                # By descriptor: its user may put another folder in its place.
                for name in os.listdir(held):  # noqa: PTH208 - a descriptor
                    _remove_in(held, name)
                folder.rmdir()
            removed.append(folder)
    return removed


def _remove_in(folder: int, name: str) -> None:
    status = os.stat(name, dir_fd=folder, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(name, dir_fd=folder)
    else:
        os.unlink(name, dir_fd=folder)


def replaceable(folder: Path) -> Path | None:
    """The uppermost of a folder and those above it that another user owns or can
    rename things in; None where there is none.
    """
    path = folder.resolve()
    for ancestor in (*reversed(path.parents), path):
        status = ancestor.stat()
        is_others = status.st_uid not in (0, os.geteuid())
        sticky = status.st_mode & stat.S_ISVTX
        if is_others or (status.st_mode & _OTHERS_WRITE and not sticky):
            return ancestor
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
