"""The few system calls that Python 3.11 does not have: setns, prctl, unshare,
mount, seccomp.
"""

from __future__ import annotations

import ctypes
import fcntl
import os
import signal
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

CLONE_NEWNET = 0x40000000
_CLONE_VM = 0x00000100
_CLONE_NEWNS = 0x00020000
_CLONE_NEWUTS = 0x04000000
_CLONE_NEWIPC = 0x08000000
_CLONE_NEWUSER = 0x10000000
_CLONE_NEWPID = 0x20000000
_MS_NOSUID = 2
_MS_NOEXEC = 8
_MS_NODEV = 4
_MS_BIND = 0x1000
_MS_REC = 0x4000
_MS_SLAVE = 1 << 19
_KERNELS_OWN = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
"""Flags for file systems whose files are the kernel's."""
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
CAP_SETGID = 6
CAP_SETUID = 7
CAP_NET_RAW = 13
QUEUES = "/dev/mqueue"
C_COMPILERS = ("tcc", "cc")
"""The fastest first."""
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")

_STACK_BYTES = 1 << 16
_STACK_ALIGNMENT = 64
SETPRIV = "/usr/bin/setpriv"
"""Of util-linux, which every Debian has."""

# With a copy of errno of its own: calls of Python's between this one and
# the question would overwrite the C library's.
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(
    path: str,
    kind: int,
    name: str,
) -> None:
    """Moves this process to the namespace of a kind at ``path``. Raises OSError."""
    namespace = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        _check(
            _libc.setns(namespace, kind),
            f"cannot enter {name} namespace {path}",
        )
    finally:
        os.close(namespace)


def enter_network_namespace(path: str) -> None:
    """Moves this process to the network namespace at ``path`` (/run/netns/...,
    /proc/PID/ns/net).
    """
    _enter(path, CLONE_NEWNET, "network")


@contextmanager
def inside_network_namespace(path: Path) -> Iterator[None]:
    """This thread in another network namespace, and back in its own afterwards."""
    # A namespace is a thread's: /proc/self has that of the first one.
    home = os.open("/proc/thread-self/ns/net", os.O_RDONLY | os.O_CLOEXEC)
    try:
        enter_network_namespace(str(path))
        try:
            yield
        finally:
            _check(
                _libc.setns(home, CLONE_NEWNET),
                "cannot return to the own network namespace",
            )
    finally:
        os.close(home)


def own_mounts() -> None:
    """Gives this process, and its children to come, a mount namespace: nobody
    else sees what they mount, and it ends with the last of them.
    """
    _unshare(_CLONE_NEWNS, "cannot have an own mount namespace")
    # A new namespace begins as the old one's peer: without this, what is
    # mounted here would be mounted there too (systemd shares all mounts).
    what = "cannot keep mounts to this process"
    _mount("none", "/", None, _MS_REC | _MS_SLAVE, what=what)


def enter_mount_namespace(path: str) -> None:
    """Moves this process, which has no threads, to the mount namespace at
    ``path``, whose root becomes its working directory. Raises OSError.
    """
    _enter(path, _CLONE_NEWNS, "mount")


@contextmanager
def process_in_user_namespace(life_s: int) -> Iterator[int]:
    """The number of a process in a user namespace that maps no ids yet, while
    the block lasts. It does nothing, and ends after so many seconds if this one
    is killed. Raises OSError.

    It is in this process's memory: to copy that for a process that does
    nothing takes as long as all the rest of an agent's start.
    """
    # Kept by this frame for as long as the process sleeps on it.
    stack = ctypes.create_string_buffer(_STACK_BYTES)
    # Used from its end, which the instruction set wants to be aligned.
    end = (ctypes.addressof(stack) + _STACK_BYTES) & ~(_STACK_ALIGNMENT - 1)
    # The C library's own function, so that no Python runs in memory that is
    # not the process's alone.
    child = _libc.clone(
        _libc.sleep,
        ctypes.c_void_p(end),
        _CLONE_VM | _CLONE_NEWUSER | signal.SIGCHLD,
        ctypes.c_void_p(life_s),
    )
    if child < 0:
        _check(child, "cannot have an own user namespace")
    try:
        yield child
    finally:
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)


def own_host_name(name: str) -> None:
    """Gives this process, and its children to come, a host name of their own."""
    _unshare(_CLONE_NEWUTS, "cannot have an own host name")
    text = name.encode()
    _check(_libc.sethostname(text, len(text)), "cannot set the host name")


def own_process_numbers() -> None:
    """Puts the next children of this process into a new PID namespace, of which
    the next one is the first process.
    """
    # The caller itself stays where it is: its number cannot change.
    _unshare(_CLONE_NEWPID, "cannot have an own PID namespace")


def enter_shared_memory(path: str) -> None:
    """Moves this process to the IPC namespace at ``path``. Raises OSError."""
    _enter(path, _CLONE_NEWIPC, "IPC")


def bind(
    source: str,
    target: str,
) -> None:
    """Mounts a file or folder at another place too, for a process with mounts of
    its own.
    """
    what = f"cannot mount {source} at {target}"
    _mount(source, target, None, _MS_BIND, what=what)


def mount_tmpfs(
    path: str,
    size_bytes: int,
    mode: int,
) -> None:
    """Mount an empty file system in memory, of at most so many bytes."""
    options = f"size={size_bytes},mode={mode:o}".encode()
    what = f"cannot mount a tmpfs at {path}"
    flags = _MS_NOSUID | _MS_NODEV
    _mount("tmpfs", path, b"tmpfs", flags, options, what=what)


def hides_processes() -> bool:
    """True if this kernel can hide processes of others for some processes only:
    from Linux 5.8 on; before, it is for all.
    """
    numbers = os.uname().release.split(".")
    return (int(numbers[0]), int(numbers[1].partition("-")[0])) >= (5, 8)


def hide_processes() -> None:
    """Hides processes in /proc that this process, which has mounts of its own,
    may not trace. Raises OSError.
    """
    what = "cannot mount /proc"
    _mount("proc", "/proc", b"proc", _KERNELS_OWN, b"hidepid=2", what=what)


def set_parent_death_signal(signum: int) -> None:
    """Be sent ``signum`` when the parent ends. A change of user clears it: call
    this after.
    """
    _check(
        _libc.prctl(_PR_SET_PDEATHSIG, signum, 0, 0, 0),
        "cannot set the parent-death signal",
    )


def ended_with_parent(
    words: Sequence[str],
    signum: signal.Signals,
) -> list[str]:
    """A command's words, so that it is sent ``signum`` when its parent ends.

    setpriv asks the kernel for it and becomes the command. Python code between
    fork and exec would do so too, but in a copy of the parent's memory, which
    takes several times as long as a start, and not where the parent has
    threads.
    """
    return [SETPRIV, "--pdeathsig", signum.name, "--", *words]


def end_when_closed(pipe: int) -> None:
    """Has the kernel end this process once nobody has a pipe's other end.

    Unlike a parent's death signal it outlasts another user and program.
    """
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    # In place of SIGIO, which a program may ignore.
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    # The kernel signals the owner at whatever happens to the descriptor, its
    # hang-up included.
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_ASYNC)


def set_no_new_privileges() -> None:
    """Gives up gaining privileges by exec, for this process and all its
    descendants.
    """
    _check(
        _libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0),
        "cannot set no_new_privs",
    )


def keep_capabilities(kept: Collection[int]) -> None:
    """Bound what a program that this process executes as root may do to these
    capabilities.
    """
    # As many as this kernel has: a later one's new capabilities are bounded
    # too.
    last = int(_LAST_CAPABILITY.read_text("ascii"))
    for capability in range(last + 1):
        if capability not in kept:
            dropped = _libc.prctl(_PR_CAPBSET_DROP, capability, 0, 0, 0)
            _check(dropped, f"cannot give up capability {capability}")


def own_shared_memory(size_bytes: int = 0) -> None:
    """Separates the shared memory and message queues of a process with mounts of
    its own from all others': System V's, POSIX's, and files in /dev/shm, where
    they may have that size (0: the folder is left as it is).
    """
    _unshare(_CLONE_NEWIPC, "cannot have shared memory of its own")
    # The namespace holds System V's and message queues; POSIX's shared memory
    # is files.
    if size_bytes and os.path.isdir("/dev/shm"):  # noqa: PTH112, S108 - at each start of a program
        mount_tmpfs("/dev/shm", size_bytes, 0o1777)  # noqa: S108


def show_own_queues() -> None:
    """Shows a process with mounts and message queues of its own only those,
    where the machine shows queues as files. Raises OSError.
    """
    # A mount shows the queues of the IPC namespace in which it was made.
    if os.path.ismount(QUEUES):
        what = f"cannot mount {QUEUES}"
        _mount("mqueue", QUEUES, b"mqueue", _KERNELS_OWN, what=what)


def system_call(
    number: int,
    *arguments: object,
) -> int:
    """A system call by its number. Raises OSError."""
    result = int(_libc.syscall(number, *arguments))
    if result < 0:
        _check(result, f"system call {number}")
    return result


def _unshare(
    kind: int,
    what: str,
) -> None:
    _check(_libc.unshare(kind), what)


def _mount(
    source: str,
    target: str,
    kind: bytes | None,
    flags: int,
    options: bytes | None = None,
    *,
    what: str,
) -> None:
    """The system call. Raises OSError that begins with ``what``."""
    mounted = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind,
        # An unsigned long, as which ctypes would not pass an int.
        ctypes.c_ulong(flags),
        options,
    )
    _check(mounted, what)


def _check(
    result: int,
    what: str,
) -> None:
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{what}: {os.strerror(code)}")
