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
"""Age below which a folder may be made but not yet locked, in seconds."""
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

    ``age_s``: least time since an entry was made in the folder. ``pattern``: for
    its name. ``users``: numbers of owners to consider. A dry run removes nothing.
    """
    until_s = time.time() - age_s
    removed = []
    for folder in sorted(base.glob(pattern)):
        with (
            suppress(OSError),
            _locked(folder, fcntl.LOCK_EX | fcntl.LOCK_NB) as descriptor,
        ):
            status = os.fstat(descriptor)
            if status.st_mtime >= until_s or status.st_uid not in users:
                continue
            if not dry_run:
                # By descriptor: its user may put another folder in its place.
                for name in os.listdir(descriptor):  # noqa: PTH208 - a descriptor
                    _remove_in(descriptor, name)
                folder.rmdir()
            removed.append(folder)
    return removed


def _remove_in(descriptor: int, name: str) -> None:
    status = os.stat(name, dir_fd=descriptor, follow_symlinks=False)
    if stat.S_ISDIR(status.st_mode):
        shutil.rmtree(name, dir_fd=descriptor)
    else:
        os.unlink(name, dir_fd=descriptor)


def replaceable(folder: Path) -> Path | None:
    """The uppermost folder on the way to ``folder``, itself included, that
    another user owns or can rename entries in; None without one.
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

    None if no private folder can be written: then the shared one serves. While
    that is sticky, nobody but its maker can replace a new folder there.
    """
    candidates = [ROOTS_BASE]
    if os.geteuid() != 0:
        run_time = os.environ.get("XDG_RUNTIME_DIR") or "/nowhere"
        cache = Path("~/.cache/hosenet/tmp")
        candidates = [Path(run_time, "hosenet"), cache]
    for candidate in candidates:
        # Users without a home have no ~ either (RuntimeError).
        with suppress(OSError, RuntimeError):
            base = candidate.expanduser()
            base.mkdir(mode=0o755, parents=True, exist_ok=True)
            if base == ROOTS_BASE:
                # Whatever root's umask is.
                base.parent.chmod(0o711)
                base.chmod(0o711)
            if os.access(base, os.W_OK) and replaceable(base) is None:
                return base
    return None
