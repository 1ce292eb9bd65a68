"""Files and folders that belong to the user who called sudo.

Root writes into them while that user's programs run, which may replace a folder
by a link. Root therefore follows no link that another user could have made. A
path is opened folder by folder, each relative to the descriptor of its parent.
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
_NEW_FILE_FLAGS = (
    os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
)
_FOLDER_FLAGS = os.O_DIRECTORY | os.O_CLOEXEC
_WRITABLE_BY_OTHERS = stat.S_IWGRP | stat.S_IWOTH


@dataclass(frozen=True)
class Owner:
    """The user and the group that a run's files belong to."""

    uid: int
    gid: int


def caller(
    environ: Mapping[str, str] = os.environ, euid: int | None = None
) -> Owner | None:
    """The user who called sudo; None if this process is not root, or is root
    without sudo.
    """
    if euid is None:
        euid = os.geteuid()
    if euid != 0:
        return None
    try:
        return Owner(int(environ["SUDO_UID"]), int(environ["SUDO_GID"]))
    except (KeyError, ValueError):
        return None


def from_home(path: str, environ: Mapping[str, str] = os.environ) -> str:
    """A path with ``~`` or ``~USER`` at its begin replaced by a home folder.

    Under sudo, ``~`` is the home of the user who called sudo. Other paths, and
    those of an unknown user, are returned unchanged.
    """
    owner = caller(environ)
    if owner is not None and path.partition("/")[0] == "~":
        with suppress(KeyError):
            return pwd.getpwuid(owner.uid).pw_dir + path[1:]
    return os.path.expanduser(path)  # noqa: PTH111 - Path raises for unknown users


def user_name(uid: int) -> str:
    """A user's name; the number of one without a name, as in some containers."""
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)


def without_links(path: Path) -> Path:
    """The absolute path without links; of a loop of links, with the loop."""
    # Path.resolve raises RuntimeError for a loop (Python 3.11, 3.12).
    return Path(os.path.realpath(path))


def resolved_for_root(path: Path) -> Path:
    """For root, the absolute path without links; for other users, the path
    itself.

    Commands resolve the paths of their command line by this function, once, at
    their start: links that exist by then are intended by the user. Root follows
    no link that is made later. A loop of links is found when the path is opened.
    """
    target = without_links(path)
    # A path without links is returned as it was typed, for messages.
    if os.geteuid() != 0 or target == path.absolute():
        return path
    return target


@contextmanager
def opened_folder(
    path: Path, owner: Owner | None = None, *, make: bool = False
) -> Iterator[int]:
    """A descriptor of a folder, which is closed at the end of the block.

    ``make``: makes missing folders on the path, and gives these to the owner.
    Raises OSError; its errno is ELOOP if root would follow a link that another
    user could have made.
    """
    folder = os.open("/", os.O_PATH | _FOLDER_FLAGS)
    try:
        for name in path.absolute().parts[1:]:
            child = _child_folder(folder, name, path)
            if child is None and make:
                # Another process may be the first to make it.
                with suppress(FileExistsError):
                    os.close(make_folder(folder, name, owner))
                child = _child_folder(folder, name, path)
            if child is None:
                why = os.strerror(errno.ENOENT)
                raise FileNotFoundError(errno.ENOENT, why, str(path))
            os.close(folder)
            folder = child
        yield folder
    finally:
        os.close(folder)


def _child_folder(parent: int, name: str, path: Path) -> int | None:
    """A descriptor of the folder ``name`` in a folder; None if it is missing.

    ``path`` is the whole path, for errors.
    """
    flags = os.O_PATH | _FOLDER_FLAGS
    follows_links = _may_follow_links(parent)
    if not follows_links:
        flags |= os.O_NOFOLLOW
    try:
        return os.open(name, flags, dir_fd=parent)
    except FileNotFoundError:
        return None
    except NotADirectoryError:
        # Linux reports ENOTDIR also for a link that it must not follow.
        status = os.stat(name, dir_fd=parent, follow_symlinks=False)
        if follows_links or not stat.S_ISLNK(status.st_mode):
            raise
        why = f"{name} is a link, which root does not follow"
        raise OSError(errno.ELOOP, why, str(path)) from None


def _may_follow_links(folder: int) -> bool:
    """True unless this process is root and another user can make links in a
    folder.
    """
    if os.geteuid() != 0:
        return True
    status = os.fstat(folder)
    return status.st_uid == 0 and not status.st_mode & _WRITABLE_BY_OTHERS


def make_folder(parent: int, name: str, owner: Owner | None) -> int:
    """A descriptor of a new folder in a folder. Raises OSError."""
    os.mkdir(name, FOLDER_MODE, dir_fd=parent)
    made = os.open(
        name, os.O_RDONLY | _FOLDER_FLAGS | os.O_NOFOLLOW, dir_fd=parent
    )
    # mkdir subtracts the umask of root's shell from the mode.
    _give(made, FOLDER_MODE, owner)
    return made


def _give(descriptor: int, mode: int, owner: Owner | None) -> None:
    """Sets the mode and the owner; closes the descriptor where that fails."""
    try:
        os.fchmod(descriptor, mode)
        if owner is not None:
            os.fchown(descriptor, owner.uid, owner.gid)
    except BaseException:
        os.close(descriptor)
        raise


def new_file(path: Path, mode: int, owner: Owner | None) -> int:
    """A descriptor to write a new file of this mode and owner. Raises OSError."""
    with opened_folder(path.parent) as folder:
        return new_file_in(folder, path.name, mode, owner)


def new_file_in(
    folder: int, name: str, mode: int, owner: Owner | None
) -> int:
    """As :func:`new_file`, in an open folder."""
    descriptor = os.open(name, _NEW_FILE_FLAGS, mode, dir_fd=folder)
    # open subtracts the umask from the mode.
    _give(descriptor, mode, owner)
    return descriptor


def opened_file(path: Path, *, follow_link: bool = True) -> int:
    """A descriptor of a file to be read. Opening a FIFO does not block.

    ``follow_link``: the file itself may be a link. Raises OSError; its errno is
    ELOOP for a link that is not followed, including every link on the path that
    another user could have made if this process is root.
    """
    flags = os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK
    with opened_folder(path.parent) as folder:
        is_safe = _may_follow_links(folder)
        if not follow_link or not is_safe:
            flags |= os.O_NOFOLLOW
        try:
            return os.open(path.name, flags, dir_fd=folder)
        except OSError as error:
            why = error.strerror
            # Where links are followed, ELOOP means a loop of links.
            if error.errno == errno.ELOOP and not is_safe:
                why = f"{path.name} is a link, which root does not follow"
            raise OSError(error.errno, why, str(path)) from None


def remove_file(path: Path) -> None:
    """Removes a file or a link. Raises OSError."""
    with opened_folder(path.parent) as folder:
        os.unlink(path.name, dir_fd=folder)


def remove_folder(path: Path) -> None:
    """Removes a folder and its content. Raises OSError."""
    with opened_folder(path.parent) as parent:
        shutil.rmtree(path.name, dir_fd=parent)


def remove_lone_folder(path: Path, name: str) -> None:
    """Removes the folder ``name`` and its content if it is the only entry of
    ``path``. Raises OSError.
    """
    with opened_folder(path) as parent:
        if names_in(parent) == [name]:
            shutil.rmtree(name, dir_fd=parent)


def names_in(folder: int) -> list[str]:
    """Names of the entries of an open folder, sorted."""
    # A descriptor with O_PATH cannot list the folder.
    opened = os.open(".", os.O_RDONLY | _FOLDER_FLAGS, dir_fd=folder)
    try:
        return sorted(os.listdir(opened))  # noqa: PTH208 - of an open folder
    finally:
        os.close(opened)


def set_aside(
    path: Path, prefix: str, kept: str, owner: Owner | None
) -> Path:
    """Moves the entries of a folder into a new subfolder; returns its path.

    The subfolder's name is ``prefix`` and a number. Entries whose names begin
    with ``prefix``, such as the subfolders of earlier calls, stay in the
    folder, and so does the entry named ``kept``. Raises OSError.
    """
    with opened_folder(path) as folder:
        names = names_in(folder)
        number = 1
        while f"{prefix}{number}" in names:
            number += 1
        aside_name = f"{prefix}{number}"
        # Addressed by its descriptor, since the owner may replace the folder
        # of this name by another one.
        aside = make_folder(folder, aside_name, owner)
        try:
            for name in names:
                if name != kept and not name.startswith(prefix):
                    os.rename(
                        name, name, src_dir_fd=folder, dst_dir_fd=aside
                    )
        finally:
            os.close(aside)
    return path / aside_name


def files_in(path: Path) -> list[str]:
    """Paths of the regular files below a folder, relative to it, sorted."""
    names = []
    with opened_folder(path) as top:
        for relative, _, files, opened in os.fwalk(".", dir_fd=top):
            for name in files:
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                if stat.S_ISREG(status.st_mode):
                    names.append(os.path.normpath(f"{relative}/{name}"))
    return sorted(names)


def make_folders(path: Path, owner: Owner | None) -> None:
    """Makes a folder and its missing parents, as ``mkdir -p`` does.

    The owner gets the folders that are made. Raises OSError.
    """
    with opened_folder(path, owner, make=True):
        pass


def give_all(folder: Path, owner: Owner) -> None:
    """Gives the owner all of root's files, folders and links below a folder.

    Links are not followed. A file with a second hard link stays root's, since
    that link may be outside the folder. Raises OSError.
    """
    with opened_folder(folder) as top:
        for _, folders, files, opened in os.fwalk(".", dir_fd=top):
            for name in (*folders, *files):
                status = os.stat(name, dir_fd=opened, follow_symlinks=False)
                is_folder = stat.S_ISDIR(status.st_mode)
                has_one_name = is_folder or status.st_nlink == 1
                if status.st_uid == 0 and has_one_name:
                    os.chown(
                        name,
                        owner.uid,
                        owner.gid,
                        dir_fd=opened,
                        follow_symlinks=False,
                    )


@contextmanager
def held_folder(path: Path) -> Iterator[Path]:
    """A path that stays valid in the block even if the folder is renamed.

    Other processes of this user can use it too. A missing folder is made.
    Raises OSError.
    """
    with opened_folder(path, make=True) as folder:
        yield Path(f"/proc/{os.getpid()}/fd/{folder}")
