"""System calls that Python 3.11 does not have: setns, unshare, clone, mount,
prctl, and any other by its number.
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
_KERNEL_FILES = _MS_NOSUID | _MS_NODEV | _MS_NOEXEC
"""Flags of mounts, for file systems whose files are the kernel's."""
_PR_SET_PDEATHSIG = 1
_PR_CAPBSET_DROP = 24
_PR_SET_NO_NEW_PRIVS = 38
CAP_SETGID = 6
CAP_SETUID = 7
CAP_NET_RAW = 13
QUEUES = "/dev/mqueue"
C_COMPILERS = ("tcc", "cc")
"""Names of programs, the fastest compiler first."""
_LAST_CAPABILITY = Path("/proc/sys/kernel/cap_last_cap")

_STACK_BYTES = 1 << 16
_STACK_ALIGNMENT = 64
SETPRIV = "/usr/bin/setpriv"
"""Of util-linux, which every Debian has."""

# ctypes keeps a copy of errno. Calls that Python makes after a system call
# would overwrite the C library's errno before it is read.
_libc = ctypes.CDLL(None, use_errno=True)


def _enter(
    path: str,
    kind: int,
    name: str,
) -> None:
    """Moves this process to the namespace at ``path``. ``name``: that of its
    kind. Raises OSError.
    """
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
    # Each thread has a namespace; /proc/self has that of the first thread.
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
    # A new namespace begins as a peer of the old one, to which mounts would
    # spread (systemd shares all mounts).
    _mount(
        "none",
        "/",
        flags=_MS_REC | _MS_SLAVE,
        failure="cannot keep mounts to this process",
    )


def enter_mount_namespace(path: str) -> None:
    """Moves this process, which has no threads, to the mount namespace at
    ``path``, whose root becomes its working directory. Raises OSError.
    """
    _enter(path, _CLONE_NEWNS, "mount")


@contextmanager
def process_in_user_namespace(life_s: int) -> Iterator[int]:
    """The number of a process in a user namespace that maps no ids yet, while
    the block lasts. Raises OSError.

    The process sleeps: for ``life_s`` seconds, should the caller be killed. It
    shares the caller's memory. A copy for a process that does nothing would
    take as long as all the rest of an agent's start.
    """
    # This frame keeps the stack for as long as the process sleeps on it.
    stack = ctypes.create_string_buffer(_STACK_BYTES)
    # A stack is used from its end, which has to be aligned.
    end = (ctypes.addressof(stack) + _STACK_BYTES) & ~(_STACK_ALIGNMENT - 1)
    # A function of the C library: Python code would change what both
    # processes have in memory.
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
    """Gives this process, and its children to come, a host name."""
    _unshare(_CLONE_NEWUTS, "cannot have an own host name")
    text = name.encode()
    _check(_libc.sethostname(text, len(text)), "cannot set the host name")


def own_process_numbers() -> None:
    """Puts the next children of this process into a new PID namespace, of which
    the next one is the first process.
    """
    # The caller stays in its PID namespace: its number cannot change.
    _unshare(_CLONE_NEWPID, "cannot have an own PID namespace")


def enter_shared_memory(path: str) -> None:
    """Moves this process to the IPC namespace at ``path``. Raises OSError."""
    _enter(path, _CLONE_NEWIPC, "IPC")


def bind(
    source: str,
    target: str,
) -> None:
    """Mounts a file or folder at a second place, for a process with mounts of
    its own. Raises OSError.
    """
    failure = f"cannot mount {source} at {target}"
    _mount(source, target, flags=_MS_BIND, failure=failure)


def mount_tmpfs(
    path: str,
    size_bytes: int,
    mode: int,
) -> None:
    """Mounts an empty file system in memory, of at most so many bytes."""
    _mount(
        "tmpfs",
        path,
        kind=b"tmpfs",
        flags=_MS_NOSUID | _MS_NODEV,
        options=f"size={size_bytes},mode={mode:o}".encode(),
        failure=f"cannot mount a tmpfs at {path}",
    )


def hides_processes() -> bool:
    """True from Linux 5.8 on. An older kernel has one setting for all mounts of
    a machine's /proc: it would hide processes from all programs.
    """
    numbers = os.uname().release.split(".")
    return (int(numbers[0]), int(numbers[1].partition("-")[0])) >= (5, 8)


def hide_processes() -> None:
    """Hides from this process, which has mounts of its own, the processes in
    /proc that it may not trace. Raises OSError.
    """
    _mount(
        "proc",
        "/proc",
        kind=b"proc",
        flags=_KERNEL_FILES,
        options=b"hidepid=2",
        failure="cannot mount /proc",
    )


def signal_name(number: int) -> str:
    """A signal's name, as SIGKILL; most real-time signals have a number alone."""
    if number in set(signal.Signals):
        return signal.Signals(number).name
    return f"signal {number}"


def set_parent_death_signal(signum: int) -> None:
    """Has the kernel send this process ``signum`` when its parent ends.

    To be called after a change of user, which takes it back.
    """
    failure = "cannot set the parent-death signal"
    _prctl(_PR_SET_PDEATHSIG, signum, failure)


def ended_with_parent(
    words: Sequence[str],
    signum: signal.Signals,
) -> list[str]:
    """A command's words, so that it is sent ``signum`` when its parent ends.

    setpriv asks the kernel for the signal and becomes the command. Python code
    between fork and exec could ask too, in a copy of the parent's memory. That
    takes several times as long, and is not safe beside the parent's threads.
    """
    return [SETPRIV, "--pdeathsig", signum.name, "--", *words]


def end_when_closed(pipe: int) -> None:
    """Has the kernel end this process when a pipe's last other end is closed,
    from now on.

    Unlike a parent's death signal this outlasts a change of user or program.
    """
    fcntl.fcntl(pipe, fcntl.F_SETOWN, os.getpid())
    # The default signal is SIGIO, which a program may ignore.
    fcntl.fcntl(pipe, fcntl.F_SETSIG, signal.SIGKILL)
    flags = fcntl.fcntl(pipe, fcntl.F_GETFL)
    # The kernel now signals whatever happens to the descriptor. As nobody
    # writes to it, that is the hang-up alone.
    fcntl.fcntl(pipe, fcntl.F_SETFL, flags | os.O_ASYNC)


def set_no_new_privileges() -> None:
    """Has no exec of this process, or of a descendant, gain privileges."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1, "cannot set no_new_privs")


def keep_capabilities(kept: Collection[int]) -> None:
    """Leaves programs that this process executes as root these capabilities
    alone.
    """
    # The kernel's own last one: later kernels have more capabilities.
    last = int(_LAST_CAPABILITY.read_text("ascii"))
    for capability in range(last + 1):
        if capability not in kept:
            failure = f"cannot give up capability {capability}"
            _prctl(_PR_CAPBSET_DROP, capability, failure)


def own_shared_memory(size_bytes: int = 0) -> None:
    """Gives a process with mounts of its own shared memory and message queues
    that no other process has, System V's and POSIX's.

    ``size_bytes``: that of its own /dev/shm; 0 leaves /dev/shm as it is.
    """
    _unshare(_CLONE_NEWIPC, "cannot have shared memory of its own")
    # The namespace has no part in POSIX's shared memory, which is files.
    if size_bytes and os.path.isdir("/dev/shm"):  # noqa: PTH112, S108 - at each start of a program
        mount_tmpfs("/dev/shm", size_bytes, 0o1777)  # noqa: S108


def show_own_queues() -> None:
    """Shows a process with mounts and message queues of its own only those,
    where the machine shows queues as files. Raises OSError.
    """
    # A mount shows the queues of the IPC namespace in which it was made.
    if os.path.ismount(QUEUES):
        _mount(
            "mqueue",
            QUEUES,
            kind=b"mqueue",
            flags=_KERNEL_FILES,
            failure=f"cannot mount {QUEUES}",
        )


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
    failure: str,
) -> None:
    _check(_libc.unshare(kind), failure)


def _prctl(
    option: int,
    value: int,
    failure: str,
) -> None:
    _check(_libc.prctl(option, value, 0, 0, 0), failure)


def _mount(
    source: str,
    target: str,
    *,
    kind: bytes | None = None,
    flags: int,
    options: bytes | None = None,
    failure: str,
) -> None:
    """Mounts by the system call. Raises OSError that begins with ``failure``."""
    mounted = _libc.mount(
        os.fsencode(source),
        os.fsencode(target),
        kind,
        # mount takes an unsigned long; ctypes would pass an int.
        ctypes.c_ulong(flags),
        options,
    )
    _check(mounted, failure)


def _check(
    result: int,
    failure: str,
) -> None:
    """Raises OSError that begins with ``failure``, unless ``result`` is 0."""
    if result != 0:
        code = ctypes.get_errno()
        raise OSError(code, f"{failure}: {os.strerror(code)}")
