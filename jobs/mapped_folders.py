"""Folders of the caller (who called sudo) in a VM, where the VM's user owns them.

The uppermost folder of the caller's on a path is mounted over itself, with its
ids mapped (Linux 5.12; ext4, xfs, btrfs, tmpfs). On the disk, files keep their
owner.
"""

from __future__ import annotations

import os
import struct
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from io import FileIO

from jobs import linux

# Numbers of system calls, the same on all machines.
OPEN_TREE = 428
MOVE_MOUNT = 429
MOUNT_SETATTR = 442
_CLONE_TREE = 1
_WITH_MOUNTS_BELOW = 0x8000
_BY_DESCRIPTOR = 0x1000
_FROM_DESCRIPTOR_TO_DESCRIPTOR = 0x04 | 0x40
_NO_SETUID = 0x02
_MAPPED_IDS = 0x100000
_FOLDER_NO_LINK = os.O_PATH | os.O_NOFOLLOW | os.O_DIRECTORY
_END_OF_IDS = (1 << 32) - 1
_LIFE_S = 5
"""Life of the process that has a new user namespace, should this process be
killed before it ends that one.
"""


def give_callers_folders(
    paths: Iterable[str],
    caller: int,
    user: int,
) -> None:
    """Makes ``user`` the owner of the caller's folders on these paths, as this
    process sees them.

    ``caller`` and ``user`` are user ids. The process has mounts of its own.
    Where the kernel or a folder's file system cannot do so, the folder stays as
    it is.
    """
    # Without user namespaces this ends at the first folder.
    with suppress(OSError), ExitStack() as stack:
        namespace = None
        for path in dict.fromkeys(paths):
            folder = callers_folder(path, caller)
            if folder is None:
                continue
            stack.callback(os.close, folder)
            # Made at the first folder, for all of them: it takes a process.
            if namespace is None:
                namespace = _user_namespace(user_map(caller, user))
                stack.callback(os.close, namespace)
            with suppress(OSError):
                _mount_mapped(folder, namespace)


def callers_folder(
    path: str,
    caller: int,
) -> int | None:
    """A descriptor of the uppermost folder on a path that is the caller's, None
    where there is none.

    Its owner is read by the descriptor: whatever is renamed meanwhile, the
    folder is the caller's.
    """
    # Folder by folder from the root, each opened in the folder above it: no
    # name is looked up twice, so none can be exchanged in between. Nor is a
    # link followed that has come after realpath.
    folder = os.open("/", _FOLDER_NO_LINK)
    for name in os.path.realpath(path).split("/")[1:]:
        above = folder
        try:
            folder = os.open(name, _FOLDER_NO_LINK, dir_fd=above)
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
    """Text for ``uid_map``: the caller's files become the user's, and all others
    keep their owners, but the user's own become nobody's.

    A line has the first id on the disk, the first id shown, and their number.
    """
    lines = [f"{caller} {user} 1"]
    first = 0
    # The kernel refuses a map in which two lines overlap: all other ids are
    # in the gaps before, between and after these two.
    for end in sorted((caller, user, _END_OF_IDS)):
        if end > first:
            lines.append(f"{first} {first} {end - first}")
        first = end + 1
    return "\n".join(lines)


def _user_namespace(users: str) -> int:
    """A descriptor of a user namespace without processes. ``users``: its
    ``uid_map``.
    """
    with linux.process_in_user_namespace(_LIFE_S) as process:
        _write_map(process, "uid_map", users)
        # Groups stay as they are; without a map the mount would have none.
        _write_map(process, "gid_map", f"0 0 {_END_OF_IDS}")
        # The namespace stays as long as the descriptor does.
        return os.open(f"/proc/{process}/ns/user", os.O_RDONLY)


def _write_map(
    process: int,
    name: str,
    text: str,
) -> None:
    """Writes ``uid_map`` or ``gid_map`` by one call, as the kernel demands."""
    with FileIO(f"/proc/{process}/{name}", "w") as file:
        file.write(text.encode())


def _mount_mapped(
    folder: int,
    namespace: int,
) -> None:
    """Mounts a folder over itself, with owners by the map of ``namespace``. Both
    are descriptors.
    """
    # The kernel maps the ids only of a mount that has no place yet: a copy of
    # the folder's.
    flags = _CLONE_TREE | _BY_DESCRIPTOR | _WITH_MOUNTS_BELOW | os.O_CLOEXEC
    tree = linux.system_call(OPEN_TREE, folder, b"", flags)
    try:
        # Flags to set and to clear, propagation, user namespace.
        # A setuid file that a program leaves there has no effect in a VM.
        set_flags = _MAPPED_IDS | _NO_SETUID
        attributes = struct.pack("4Q", set_flags, 0, 0, namespace)
        linux.system_call(
            MOUNT_SETATTR,
            tree,
            b"",
            _BY_DESCRIPTOR,
            attributes,
            len(attributes),
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
