"""A caller's folders in a VM, whose user owns there what the caller owns here.

An id-mapped mount (Linux 5.12; ext4, xfs, btrfs, tmpfs) of the uppermost folder
of the caller's on a path: files keep their owner on the disk.
"""

from __future__ import annotations

import ctypes
import os
from collections.abc import Iterable
from contextlib import suppress

from jobs import linux

OPEN_TREE, MOVE_MOUNT, MOUNT_SETATTR = 428, 429, 442
"""Numbers of system calls, the same on all machines."""
_CLONE_TREE = 1
_WITH_MOUNTS_BELOW = 0x8000
_BY_DESCRIPTOR = 0x1000
_FROM_DESCRIPTOR_TO_DESCRIPTOR = 0x04 | 0x40
_MAPPED_IDS = 0x100000
_WALKED = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_END_OF_IDS = (1 << 32) - 1
_LIFE_S = 5
"""Of the process by which a user namespace is made, if this one is killed."""


class _MountAttributes(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64)
        for name in ("set", "clear", "propagation", "user_namespace")
    )


def give_callers_folders(
    paths: Iterable[str],
    caller: int,
    user: int,
) -> None:
    """Has this process, with mounts of its own, find the caller's folders on
    these paths as ``user``'s. Both are user ids.

    A file system or kernel that cannot leaves them as they are.
    """
    namespace = None
    try:
        for path in dict.fromkeys(paths):
            folder = callers_folder(path, caller)
            if folder is None:
                continue
            try:
                # One for all folders, and none where there is no folder: it
                # takes a process.
                if namespace is None:
                    namespace = _user_namespace(user_map(caller, user))
                with suppress(OSError):
                    _mount_mapped(folder, namespace)
            finally:
                os.close(folder)
    except OSError:
        # No user namespaces here.
        return
    finally:
        if namespace is not None:
            os.close(namespace)


def callers_folder(
    path: str,
    caller: int,
) -> int | None:
    """A descriptor of the uppermost folder of the caller's on a path.

    Folders above it are not his, so that he cannot exchange it meanwhile; a
    link in its place is not followed.
    """
    # Folder by folder from the root, each opened in the one before: no name
    # is looked up twice, so none can be exchanged in between.
    folder = os.open("/", _WALKED)
    for name in os.path.realpath(path).split("/")[1:]:
        above = folder
        try:
            folder = os.open(name, _WALKED | os.O_DIRECTORY, dir_fd=above)
        except OSError:
            return None
        finally:
            os.close(above)
        if os.fstat(folder).st_uid == caller:
            return folder
    os.close(folder)
    return None


def user_map(
    caller: int,
    user: int,
) -> str:
    """Text for ``uid_map``: the caller's files are the user's, all others
    whose they are. What is the user's own is nobody's there.
    """
    lines = [f"{caller} {user} 1"]
    first = 0
    # The kernel refuses a map in which two lines overlap: all other ids in
    # the gaps around these two.
    for end in (*sorted((caller, user)), _END_OF_IDS):
        if end > first:
            lines.append(f"{first} {first} {end - first}")
        first = end + 1
    return "\n".join(lines)


def _user_namespace(users: str) -> int:
    """A descriptor of a user namespace with that map, in which nobody is."""
    with linux.process_in_user_namespace(_LIFE_S) as process:
        _write_map(process, "uid_map", users)
        # Groups stay as they are; without a map the mount would have none.
        _write_map(process, "gid_map", f"0 0 {_END_OF_IDS}")
        # The namespace stays as long as the descriptor does.
        return os.open(
            f"/proc/{process}/ns/user", os.O_RDONLY | os.O_CLOEXEC
        )


def _write_map(
    process: int,
    name: str,
    text: str,
) -> None:
    """Writes ``uid_map`` or ``gid_map`` in one piece, as the kernel wants it."""
    descriptor = os.open(f"/proc/{process}/{name}", os.O_WRONLY)
    try:
        os.write(descriptor, text.encode())
    finally:
        os.close(descriptor)


def _mount_mapped(
    folder: int,
    namespace: int,
) -> None:
    """Mounts a folder over itself, with other owners."""
    # A copy that is mounted nowhere: the kernel maps ids of no other mount.
    flags = _CLONE_TREE | _BY_DESCRIPTOR | _WITH_MOUNTS_BELOW | os.O_CLOEXEC
    tree = linux.system_call(OPEN_TREE, folder, b"", flags)
    try:
        attributes = _MountAttributes(set=_MAPPED_IDS)
        attributes.user_namespace = namespace
        linux.system_call(
            MOUNT_SETATTR,
            tree,
            b"",
            _BY_DESCRIPTOR,
            ctypes.byref(attributes),
            ctypes.sizeof(attributes),
        )
        linux.system_call(
            MOVE_MOUNT,
            tree,
            b"",
            folder,
            b"",
            _FROM_DESCRIPTOR_TO_DESCRIPTOR,
        )
    finally:
        os.close(tree)
