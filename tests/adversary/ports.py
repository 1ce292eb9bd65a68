"""Another user who wants the controller's ports, to be taken for it."""

from __future__ import annotations

import os
import socket
from contextlib import suppress
from pathlib import Path
from tempfile import TemporaryDirectory

from testbed.backends.emu.held_ports import held_ports
from tests.adversary.attack import Attack, Tries
from tests.unit.emu.test_held_ports import (
    STRANGERS,
    SWITCHES,
    switches_of,
)
from tests.unit.emu.test_switch_sockets import tried_on_a_socket

NOBODY = 65534
ROUNDS = 500
ADDRESSES = ("127.0.0.1", "")


def attacks() -> list[Attack]:
    return [
        Attack(
            "controller's ports",
            "another user listens where switches look for the controller",
            _held,
            _free,
        ),
        Attack(
            "ports before a network",
            "another user was at the controller's port before it came up",
            lambda: _before(held=True),
            lambda: _before(held=False),
        ),
        Attack(
            "switches' sockets",
            "another user takes the place of a socket between switch and controller",
            lambda: _socket_files(0o755),
            lambda: _socket_files(0o777),
        ),
    ]


def _before(*, held: bool) -> Tries:
    gained = 0
    for stranger in STRANGERS:
        gained += switches_of(stranger, held=held)
    return Tries(SWITCHES * len(STRANGERS), gained)


def _socket_files(mode: int) -> Tries:
    """``mode``: of the folder, which is the switch's run folder."""
    with TemporaryDirectory(dir="/var/lib") as name:
        folder = Path(name)
        folder.chmod(mode)
        return Tries(*tried_on_a_socket(folder))


def _held() -> Tries:
    with held_ports(0, 0) as held:
        ports = []
        for descriptor in held.values():
            with socket.socket(fileno=os.dup(descriptor)) as listener:
                ports.append(listener.getsockname()[1])
        # Nobody listens: the next controller has not started yet.
        return _tries(ports, ADDRESSES)


def _free() -> Tries:
    """Ports of a controller that has ended."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    return _tries([port], ADDRESSES)


def _tries(ports: list[int], addresses: tuple[str, ...]) -> Tries:
    """As nobody, with both of the options by which a port may be shared."""
    attempts = ROUNDS * len(ports) * len(addresses)
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        taken = sum(
            _listens(port, address)
            for _ in range(ROUNDS)
            for port in ports
            for address in addresses
        )
        os.write(writing, str(taken).encode())
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as told:
        taken = int(told.read())
    os.waitpid(child, 0)
    return Tries(attempts, taken)


def _listens(port: int, address: str) -> bool:
    with socket.socket() as wanted, suppress(OSError):
        wanted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        wanted.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        wanted.bind((address, port))
        wanted.listen()
        return True
    return False
