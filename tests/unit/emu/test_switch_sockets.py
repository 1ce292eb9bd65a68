"""Files between switches and controller, which no other user takes."""

from __future__ import annotations

import os
import socket
from collections.abc import Callable
from contextlib import closing, suppress
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from testbed.backends.emu import switch_sockets

NOBODY = 65534
NAME = "hosenet-0.sock"


def connect(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as wanted:
        wanted.connect(str(path))


def bind(path: Path) -> None:
    with socket.socket(socket.AF_UNIX) as wanted:
        wanted.bind(str(path))


def replace(path: Path) -> None:
    path.unlink()
    bind(path)


def move(path: Path) -> None:
    path.rename(path.with_name("moved"))
    bind(path)


def move_over(path: Path) -> None:
    mine = path.with_name("mine")
    bind(mine)
    mine.rename(path)


def link_before(path: Path) -> None:
    """The next network's socket, whose name can be guessed."""
    path.with_name("hosenet-1.sock").symlink_to("/etc/passwd")


def bind_before(path: Path) -> None:
    bind(path.with_name("hosenet-2.sock"))


def link(path: Path) -> None:
    os.link(path, path.with_name("linked"))


def open_up(path: Path) -> None:
    path.chmod(0o777)


def exchange_the_folder(path: Path) -> None:
    path.parent.rename(path.parent.with_name("exchanged"))


ATTEMPTS: tuple[Callable[[Path], None], ...] = (
    connect,
    link_before,
    bind_before,
    link,
    open_up,
    exchange_the_folder,
    move_over,
    move,
    replace,
)


def tried_on_a_socket(folder: Path) -> tuple[int, int]:
    """Tries as another user, and those that did something.

    ``folder``: the switch's run folder.
    """
    path = folder / NAME
    listener = switch_sockets._listening(path)
    with closing(listener):
        child = os.fork()
        if child == 0:
            os._exit(_done_as_nobody(path))
        status = os.waitpid(child, 0)[1]
        return len(ATTEMPTS), os.waitstatus_to_exitcode(status)


def _done_as_nobody(path: Path) -> int:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    done = 0
    for attempt in ATTEMPTS:
        with suppress(OSError):
            attempt(path)
            done += 1
    return done


@pytest.mark.needs("root")
def test_no_other_user_takes_the_place_of_a_socket() -> None:
    # Not in pytest's folders, which no other user enters.
    with TemporaryDirectory(dir="/var/lib") as folder:
        Path(folder).chmod(0o755)
        assert tried_on_a_socket(Path(folder)) == (len(ATTEMPTS), 0)
