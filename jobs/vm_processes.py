"""Process numbers of a launched program: a PID namespace of its own.

When its first process ends, the kernel ends all others in it, whatever they are
children of and whatever they ignore. The first one ends with the agent.
"""

from __future__ import annotations

import os
import signal
import socket

from jobs import linux

_HIGHEST_DESCRIPTOR = os.sysconf("SC_OPEN_MAX")
_READY = b"1"


def own_processes(
    uid: int,
    gid: int,
) -> bool:
    """Puts all later children of this process into a PID namespace, whose
    processes alone they see in ``/proc``.

    This process is root's, with mounts of its own; ``uid`` and ``gid`` are
    those of the namespace's first process. Returns False where a container does
    not allow it: nothing has changed then.
    """
    if not _is_allowed():
        return False
    linux.own_process_numbers()
    # A pair of sockets, whose end the first process notices.
    ours, theirs = socket.socketpair()
    with ours:
        with theirs:
            first = os.fork()
            if first == 0:
                _be_first(theirs.fileno(), uid, gid)
        # It has mounted /proc for all of them.
        if ours.recv(1) != _READY:
            raise OSError("the first process of a VM's program has ended")
        # An answer, which says that this process lived when the first one
        # asked the kernel to end with it.
        ours.send(_READY)
    return True


def _is_allowed() -> bool:
    """Tries it in a process that ends at once: unshare cannot be undone, and a
    process whose later children cannot start is of no use.
    """
    child = os.fork()
    if child == 0:
        code = 1
        try:
            linux.own_process_numbers()
            # A second child: the first stays outside of the namespace that
            # it has made for its children.
            inner = os.fork()
            if inner == 0:
                os._exit(_mount_code())
            code = os.waitstatus_to_exitcode(os.waitpid(inner, 0)[1])
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def _mount_code() -> int:
    """In a process that ends: 0 where /proc can be mounted."""
    try:
        linux.own_mounts()
        linux.hide_processes()
    except OSError:
        return 1
    return 0


def _be_first(
    link: int,
    uid: int,
    gid: int,
) -> None:
    """The first process of the namespace: it waits to be ended. Never returns."""
    try:
        os.dup2(link, 0)
        os.closerange(1, _HIGHEST_DESCRIPTOR)
        # Processes that have lost their parents become its children.
        signal.signal(signal.SIGCHLD, signal.SIG_IGN)
        for signum in (signal.SIGTERM, signal.SIGINT):
            signal.signal(signum, signal.SIG_IGN)
        # By root, and in this namespace: /proc shows that of who mounts it.
        linux.hide_processes()
        os.setgroups([])
        os.setresgid(gid, gid, gid)
        os.setresuid(uid, uid, uid)
        linux.set_no_new_privileges()
        # After the change of user, which clears it.
        linux.set_parent_death_signal(signal.SIGKILL)
        os.write(0, _READY)
        # The agent may have ended before the line above.
        while os.read(0, 1) == _READY:
            os.close(0)
            while True:
                signal.pause()
    finally:
        os._exit(0)
