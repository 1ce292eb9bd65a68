"""Folders of a VM's own in place of the machine's /tmp, /var/tmp, /run and
/dev/shm.

They are in one tmpfs, which bounds their size. It is mounted in the mount
namespace of the network's fork server: all programs of the VM see it, nobody
else does, and it ends with that process. Removing the empty folder that it is
mounted on ends it earlier.
"""

from __future__ import annotations

import fcntl
import os
import stat
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress

from jobs import linux

# Where they are found, in the order of mounting, and their names in the tmpfs:
# /run comes last, as the tmpfs itself is mounted below it.
PLACES = {
    "/tmp": "tmp",  # noqa: S108 - in the VM
    "/var/tmp": "var",  # noqa: S108 - in the VM
    "/dev/shm": "shm",  # noqa: S108 - in the VM
    "/run": "run",
}
SHARED_MEMORY = "ipc"
"""The name in the tmpfs at which the VM's IPC namespace is mounted."""
EVERYBODYS = 0o1777
OWN_MOUNTS = "/proc/self/ns/mnt"
"""Of an agent, which begins with the fork server's."""


def enter_mounts(
    folder: str,
    size_bytes: int,
    mounts: str,
) -> None:
    """Gives this process mounts of its own, the VM's tmpfs among them, and the
    shared memory and message queues of the VM.

    The process has to be root's, and without threads. ``folder``: where the
    tmpfs is mounted. ``mounts``: the fork server's mount namespace. Raises
    OSError.
    """
    # Namespaces are compared by number: entering one's own succeeds without a
    # change.
    before = _mounts_of_this()
    with suppress(FileNotFoundError):
        linux.enter_mount_namespace(mounts)
    if _mounts_of_this() == before and mounts != OWN_MOUNTS:
        # The server has ended, or has the machine's mounts: then the folders
        # are this process's alone.
        linux.own_mounts()
    _mount_once(folder, size_bytes)
    # Beside the fork server's, where the tmpfs stays for programs to come:
    # what a program's own process mounts over /tmp is not for the server.
    linux.own_mounts()


def replace_machines(
    folder: str,
    shown: Iterable[str],
) -> None:
    """Puts the VM's folders in the place of the machine's. Raises OSError.

    ``shown``: files and folders of the machine that are still to be found where
    they are.
    """
    with ExitStack() as stack:
        # Opened before they are hidden.
        kept = []
        # By their shortest names: ``/tmp/`` is the VM's own, and
        # ``/home/../tmp/x`` is below it.
        normal = map(os.path.normpath, shown)
        for path in dict.fromkeys(filter(_is_hidden, normal)):
            with suppress(OSError):
                kept.append(_Shown(path, stack))
        for place, name in PLACES.items():
            if os.path.isdir(place):  # noqa: PTH112 - at each start of a program
                linux.bind(f"{folder}/{name}", place)
        # Below /dev: it is not hidden by these, and shows the machine's.
        linux.show_own_queues()
        for of_machine in kept:
            # Programs of the VM may have put something in its way.
            with suppress(OSError):
                of_machine.show()


def _mounts_of_this() -> str:
    return os.readlink(OWN_MOUNTS)  # noqa: PTH115 - at each start of a program


def _mount_once(
    folder: str,
    size_bytes: int,
) -> None:
    """Mounts the tmpfs if no program of the VM has done so before."""
    above, _, _ = folder.rpartition("/")
    os.makedirs(folder, mode=0o700, exist_ok=True)  # noqa: PTH103
    lock = os.open(above, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        # Two programs may come at a time.
        fcntl.flock(lock, fcntl.LOCK_EX)
        if not os.path.ismount(folder):
            linux.mount_tmpfs(folder, size_bytes, 0o755)
            _keep_shared_memory(f"{folder}/{SHARED_MEMORY}")
            for name in PLACES.values():
                os.mkdir(f"{folder}/{name}")  # noqa: PTH102
                # The umask takes bits from what mkdir makes.
                os.chmod(f"{folder}/{name}", EVERYBODYS)  # noqa: PTH101
        linux.enter_shared_memory(f"{folder}/{SHARED_MEMORY}")
    finally:
        os.close(lock)


def _keep_shared_memory(path: str) -> None:
    """Makes the VM's IPC namespace, which stays while it is mounted there."""
    os.close(os.open(path, os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600))
    # By this process, which comes to be in it: a namespace is mounted from
    # a process that has it.
    linux.own_shared_memory()
    linux.bind("/proc/self/ns/ipc", path)


def _is_hidden(path: str) -> bool:
    """True for a path below one of the VM's folders."""
    return any(path.startswith(f"{place}/") for place in PLACES)


class _Shown:
    """A file or folder of the machine, held open while it is hidden, and the
    folders on the way to it.
    """

    def __init__(
        self,
        path: str,
        stack: ExitStack,
    ) -> None:
        self._path = path
        self._place = max(
            place for place in PLACES if self._path.startswith(f"{place}/")
        )
        self._source = os.open(self._path, os.O_PATH | os.O_CLOEXEC)
        stack.callback(os.close, self._source)
        self._names = self._path.removeprefix(self._place).split("/")[1:]
        self._above: list[os.stat_result] = []
        folder = self._place
        for name in self._names[:-1]:
            folder = f"{folder}/{name}"
            self._above.append(os.stat(folder))  # noqa: PTH116

    def show(self) -> None:
        """Binds it to its place; folders on the way have the machine's owners
        and modes.
        """
        folder = os.open(self._place, os.O_PATH | os.O_CLOEXEC)
        try:
            for name, status in zip(self._names, self._above, strict=False):
                folder = _inner(folder, name, status)
            target = self._target(folder)
            try:
                # By descriptors: a name could be another thing's by now.
                linux.bind(_by_number(self._source), _by_number(target))
            finally:
                os.close(target)
        finally:
            os.close(folder)

    def _target(self, above: int) -> int:
        """An empty file or folder for it to be bound to."""
        name = self._names[-1]
        with suppress(FileExistsError):
            if stat.S_ISDIR(os.fstat(self._source).st_mode):
                os.mkdir(name, dir_fd=above)
            else:
                flags = os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
                os.close(os.open(name, flags, 0o600, dir_fd=above))
        # Programs of the VM may have put a link there.
        flags = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
        return os.open(name, flags, dir_fd=above)


def _inner(
    above: int,
    name: str,
    status: os.stat_result,
) -> int:
    """Opens a folder in another one, made if it is missing; closes the other."""
    try:
        with suppress(FileExistsError):
            os.mkdir(name, 0o700, dir_fd=above)
            # Opened before owner and mode change: of the folder that was
            # made, whatever its name leads to.
            made = _opened(above, name, os.O_RDONLY)
            os.fchown(made, status.st_uid, status.st_gid)
            os.fchmod(made, stat.S_IMODE(status.st_mode))
            os.close(made)
        return _opened(above, name, os.O_PATH)
    finally:
        os.close(above)


def _opened(
    above: int,
    name: str,
    flags: int,
) -> int:
    flags |= os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC
    return os.open(name, flags, dir_fd=above)


def _by_number(descriptor: int) -> str:
    return f"/proc/self/fd/{descriptor}"


def paths_in(arguments: Sequence[str]) -> list[str]:
    """Folders of the files that a command's arguments name by absolute paths: a
    program may need the files beside them. A file directly in /tmp is shown
    alone.
    """
    paths = []
    for text in filter(os.path.isabs, arguments):
        folder = os.path.dirname(text)  # noqa: PTH120
        paths.append(text if folder in PLACES else folder)
    return paths


def working_directory() -> str:
    """The name of this process's working directory; the root where it has been
    deleted.
    """
    with suppress(FileNotFoundError):
        return os.getcwd()  # noqa: PTH109 - at each start of a program
    return "/"
