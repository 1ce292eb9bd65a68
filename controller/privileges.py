"""Giving up root for good, and not outliving a parent.

The controller needs no privilege at all: it listens on two high ports of loopback. Started by
root, it becomes the user who called sudo, or `nobody`, before it opens a socket.
"""

from __future__ import annotations

import ctypes
import os
import pwd
import signal
from collections.abc import Mapping
from dataclasses import dataclass

_PR_SET_PDEATHSIG = 1
_PR_SET_NO_NEW_PRIVS = 38


@dataclass(frozen=True)
class User:
    """An unprivileged user."""

    name: str
    uid: int
    gid: int


class NoUnprivilegedUser(RuntimeError):
    """There is nobody to become."""


def unprivileged_user(environment: Mapping[str, str]) -> User:
    """The user who called sudo; `nobody` if that was root, or if there was no sudo."""
    try:
        uid, gid = int(environment.get("SUDO_UID", "0")), int(environment.get("SUDO_GID", "0"))
    except ValueError:
        uid = gid = 0
    if uid > 0 and gid > 0:
        try:
            return User(pwd.getpwuid(uid).pw_name, uid, gid)
        except KeyError:
            return User(str(uid), uid, gid)
    try:
        entry = pwd.getpwnam("nobody")
    except KeyError:
        raise NoUnprivilegedUser(
            "there is no user 'nobody' to run the controller as; start it as a user other than root"
        ) from None
    return User(entry.pw_name, entry.pw_uid, entry.pw_gid)


def become(user: User) -> None:
    """Turn this process, which is root's, into `user`'s: all ids, no other groups, no way back."""
    os.setgroups([])
    os.setresgid(user.gid, user.gid, user.gid)
    os.setresuid(user.uid, user.uid, user.uid)
    if os.getresuid() != (user.uid,) * 3 or os.getresgid() != (user.gid,) * 3:
        raise PermissionError(f"could not become {user.name}")


def forbid_new_privileges() -> None:
    """From now on no set-uid program gives this process anything."""
    _prctl(_PR_SET_NO_NEW_PRIVS, 1)


def end_with_parent(parent_pid: int) -> None:
    """Have the kernel send SIGTERM when the parent ends; at once if it has ended already.

    To be called after `become`, as the kernel forgets the request when the user changes. "Parent"
    is to the kernel the *thread* that started this process: start it from one that stays.
    """
    _prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
    if os.getppid() != parent_pid:
        os.kill(os.getpid(), signal.SIGTERM)


def _prctl(option: int, value: int) -> None:
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(option, ctypes.c_ulong(value), 0, 0, 0) != 0:
        number = ctypes.get_errno()
        raise OSError(number, f"prctl({option}): {os.strerror(number)}")
