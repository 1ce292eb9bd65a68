"""Files and folders that belong to the user who called sudo."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

FOLDER_MODE = 0o755
FILE_MODE = 0o644


@dataclass(frozen=True)
class Owner:
    """Whom the files of a run belong to."""

    uid: int
    gid: int


def caller(
    environ: Mapping[str, str] = os.environ, euid: int | None = None
) -> Owner | None:
    """The user who called sudo; None if not root, or root without sudo."""
    if (os.geteuid() if euid is None else euid) != 0:
        return None
    try:
        return Owner(int(environ["SUDO_UID"]), int(environ["SUDO_GID"]))
    except (KeyError, ValueError):
        return None


def new_file(path: Path, mode: int, owner: Owner | None) -> int:
    """A descriptor for a file that was not there before, of that mode and
    owner.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    descriptor = os.open(path, flags, mode)
    os.fchmod(descriptor, mode)
    if owner is not None:
        os.fchown(descriptor, owner.uid, owner.gid)
    return descriptor


def make_folders(path: Path, owner: Owner | None) -> None:
    """``mkdir -p`` that hands every folder it makes, and no other, to the
    owner.
    """
    missing = [
        folder for folder in (path, *path.parents) if not folder.exists()
    ]
    for folder in reversed(missing):
        folder.mkdir(FOLDER_MODE, exist_ok=True)
        give(folder, owner)


def give(path: Path, owner: Owner | None) -> None:
    # Explicitly: the umask of root's shell is no business of the results'
    # reader.
    path.chmod(FOLDER_MODE)
    if owner is not None:
        os.chown(path, owner.uid, owner.gid, follow_symlinks=False)
