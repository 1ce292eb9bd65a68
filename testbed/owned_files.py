"""Files and folders that belong to the user who called sudo.

Root writes there while that user's programs run, which may put a link in the
place of a folder. Root therefore follows no link that another user could have
made: each folder on the way is opened from the one above it.
"""

from __future__ import annotations

import errno
import os
import pwd
import shutil
import stat
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

FOLDER_MODE = 0o755
FILE_MODE = 0o644
_NEW = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
_FOLDER = os.O_DIRECTORY | os.O_CLOEXEC
_OTHERS_WRITE = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Owner:
    """The user and the group that a run's files belong to."""

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


def from_home(path: str, environ: Mapping[str, str] = os.environ) -> str:
    """A path with its ``~`` replaced, under sudo by the caller's home.

    Another path, or ``~`` of an unknown user, stays as it is.
    """
    owner = caller(environ)
    if owner is not None and path.split("/", 1)[0] == "~":
        with suppress(KeyError):
            return pwd.getpwuid(owner.uid).pw_dir + path[1:]
    return os.path.expanduser(path)  # noqa: PTH111 - Path raises for unknown users


def as_it_leads(path: Path) -> Path:
    """For root, a path's target, which no link leads to; else the path itself.

    Links that exist before a command begins are its caller's wish; root follows
    none that are made later.
    """
    # A path without a link stays as it was typed, for messages.
    target = path.resolve()
    if os.geteuid() != 0 or target == path.absolute():
        return path
    return target


@contextmanager
def opened_folder(
    path: Path, owner: Owner | None = None, *, make: bool = False
) -> Iterator[int]:
    """A descriptor of a folder, for paths relative to it, while the block
    lasts.

    ``make``: missing folders are made on the way, and they alone are the
    owner's. Raises OSError; with ELOOP where root meets a link of others.
    """
    folder = os.open("/", os.O_PATH | _FOLDER)
    try:
        for name in path.absolute().parts[1:]:
            below = _below(folder, name, path)
            if below is None:
                if not make:
                    why = os.strerror(errno.ENOENT)
                    raise FileNotFoundError(errno.ENOENT, why, str(path))
                below = make_folder(folder, name, owner)
            os.close(folder)
            folder = below
        yield folder
    finally:
        os.close(folder)


def _below(folder: int, name: str, path: Path) -> int | None:
    """A descriptor of a folder in another one; None where there is none."""
    flags = os.O_PATH | _FOLDER
    if not _trusted(folder):
        flags |= os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=folder)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        status = os.stat(name, dir_fd=folder, follow_symlinks=False)
        if not stat.S_ISLNK(status.st_mode):
            raise
        why = f"{name} is a link, which root does not follow"
        raise OSError(errno.ELOOP, why, str(path)) from None


def _trusted(folder: int) -> bool:
    """True if this process may follow links in a folder."""
    if os.geteuid() != 0:
        return True
    status = os.fstat(folder)
    return status.st_uid == 0 and not status.st_mode & _OTHERS_WRITE


def make_folder(folder: int, name: str, owner: Owner | None) -> int:
    """A descriptor of a new folder in another one. Raises OSError."""
    os.mkdir(name, FOLDER_MODE, dir_fd=folder)
    made = os.open(
        name, os.O_RDONLY | _FOLDER | os.O_NOFOLLOW, dir_fd=folder
    )
    # Explicitly: the umask of root's shell is no business of the results'
    # reader.
    os.fchmod(made, FOLDER_MODE)
    if owner is not None:
        os.fchown(made, owner.uid, owner.gid)
    return made


def new_file(path: Path, mode: int, owner: Owner | None) -> int:
    """A descriptor for a new file of that mode and owner. Raises OSError."""
    with opened_folder(path.parent) as folder:
        return new_file_in(folder, path.name, mode, owner)


def new_file_in(
    folder: int, name: str, mode: int, owner: Owner | None
) -> int:
    """As :func:`new_file`, in an open folder."""
    descriptor = os.open(name, _NEW, mode, dir_fd=folder)
    os.fchmod(descriptor, mode)
    if owner is not None:
        os.fchown(descriptor, owner.uid, owner.gid)
    return descriptor


def opened_file(path: Path, *, itself: bool = False) -> int:
    """A descriptor of a file to be read. Opening a FIFO does not block.

    Raises OSError; with ELOOP where root meets a link of others, and with
    ``itself`` where the file is any link.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    with opened_folder(path.parent) as folder:
        if itself or not _trusted(folder):
            flags |= os.O_NOFOLLOW
        try:
            return os.open(path.name, flags, dir_fd=folder)
        except OSError as error:
            why = error.strerror
            if error.errno == errno.ELOOP:
                why = f"{path.name} is a link, which root does not follow"
            raise OSError(error.errno, why, str(path)) from None


def remove_file(path: Path) -> None:
    """Removes a file or a link. Raises OSError."""
    with opened_folder(path.parent) as folder:
        os.unlink(path.name, dir_fd=folder)


def remove_folder(path: Path) -> None:
    """Removes a folder with all that is in it, and follows no links of others
    on the way. Raises OSError.
    """
    with opened_folder(path.parent) as above:
        shutil.rmtree(path.name, dir_fd=above)


def remove_lone_folder(path: Path, name: str) -> None:
    """Removes the folder ``name`` with its content where nothing else is in
    ``path``. Raises OSError.
    """
    with opened_folder(path) as above:
        if names_in(above) == [name]:
            shutil.rmtree(name, dir_fd=above)


def names_in(folder: int) -> list[str]:
    """Names of all that is in an open folder, sorted."""
    opened = os.open(".", os.O_RDONLY | _FOLDER, dir_fd=folder)
    try:
        with os.scandir(opened) as entries:
            return sorted(entry.name for entry in entries)
    finally:
        os.close(opened)


def set_aside(
    path: Path, begin: str, kept: str, owner: Owner | None
) -> Path:
    """Moves the content of a folder into a new folder in it; that one's path.

    The new folder is named ``begin`` and a number. A file named ``kept`` stays,
    and so do folders that earlier calls have made. Raises OSError.
    """
    with opened_folder(path) as folder:
        names = names_in(folder)
        number = 1
        while f"{begin}{number}" in names:
            number += 1
        # Used by its descriptor: the owner may put another folder in its place.
        aside = make_folder(folder, f"{begin}{number}", owner)
        within = {"src_dir_fd": folder, "dst_dir_fd": aside}
        try:
            for name in names:
                if name != kept and not name.startswith(begin):
                    os.rename(name, name, **within)  # noqa: PTH104 - by open folders
        finally:
            os.close(aside)
    return path / f"{begin}{number}"


def files_in(path: Path) -> list[str]:
    """Names of the files in a folder and below, without links, sorted."""
    names = []
    with opened_folder(path) as top:
        for below, _, files, opened in os.fwalk(".", dir_fd=top):
            for name in files:
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    names.append(os.path.normpath(f"{below}/{name}"))
    return sorted(names)


def make_folders(path: Path, owner: Owner | None) -> None:
    """``mkdir -p`` that hands every folder it makes, and no other, to the
    owner.
    """
    with opened_folder(path, owner, make=True):
        pass


def give_all(folder: Path, owner: Owner) -> None:
    """Gives the owner all files, folders and links of root in a folder.

    Links are not followed. A file that has a second name stays root's: that
    name may be outside the folder.
    """
    with opened_folder(folder) as top:
        for _, folders, files, opened in os.fwalk(".", dir_fd=top):
            for name in (*folders, *files):
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                is_folder = stat.S_ISDIR(status.st_mode)
                is_alone = is_folder or status.st_nlink == 1
                if status.st_uid == 0 and is_alone:
                    os.chown(
                        name,
                        owner.uid,
                        owner.gid,
                        dir_fd=opened,
                        follow_symlinks=False,
                    )


@contextmanager
def held_folder(path: Path) -> Iterator[Path]:
    """A path of a folder that stays valid when the folder is renamed, also for
    this user's other processes. A missing folder is made.
    """
    with opened_folder(path, make=True) as folder:
        yield Path(f"/proc/{os.getpid()}/fd/{folder}")
