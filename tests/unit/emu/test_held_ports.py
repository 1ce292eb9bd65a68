"""The controller's ports belong to the network's root process, whoever listens for them."""

from __future__ import annotations

import os
import pwd
import re
import socket
import subprocess
from collections.abc import Iterable
from contextlib import ExitStack, suppress
from itertools import product
from typing import Any, NamedTuple

import psutil
import pytest

from testbed.backends.emu.held_ports import held_ports, port_user
from testbed.errors import BadInput, MachineCannot
from tests.support.own_addresses import free_port

NOBODY = 65534
ADDRESSES = ("127.0.0.1", "", "::1", "::", "::ffff:127.0.0.1")
SHARED = (
    (),
    (socket.SO_REUSEADDR,),
    (socket.SO_REUSEPORT,),
    (socket.SO_REUSEADDR, socket.SO_REUSEPORT),
)
SWITCHES = 4


class Stranger(NamedTuple):
    """A user's socket on a port, whose network is not up yet."""

    address: str
    options: Iterable[int]
    listens: bool


STRANGERS = [
    Stranger(*kind) for kind in product(ADDRESSES, SHARED, (True, False))
]


def strange_socket(stranger: Stranger, port: int) -> socket.socket:
    """Raises OSError."""
    family = socket.AF_INET6 if ":" in stranger.address else socket.AF_INET
    made = socket.socket(family)
    with ExitStack() as on_failure:
        on_failure.enter_context(made)
        if family == socket.AF_INET6:
            made.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 0)
        for option in stranger.options:
            made.setsockopt(socket.SOL_SOCKET, option, 1)
        made.bind((stranger.address, port))
        made.settimeout(0)
        on_failure.pop_all()
    return made


def switches_of(stranger: Stranger, *, held: bool) -> int:
    """Switches that a stranger gets, who was there before the network.

    ``held``: the network's process holds the port, or none comes up at all
    because the port is taken; otherwise switches look for whoever listens.
    """
    port = free_port()
    asked, asks = os.pipe()
    told, tells = os.pipe()
    child = os.fork()
    if child == 0:
        os._exit(_strange(stranger, port, asked, tells))
    try:
        if os.read(told, 1) != b"b":
            # This machine has no such addresses.
            return 0
        with ExitStack() as stack:
            if held:
                try:
                    stack.enter_context(held_ports(port, None))
                except MachineCannot:
                    # Nothing comes up, and no switch looks for a controller.
                    return 0
            os.write(asks, b"l")
            assert os.read(told, 1) == b"l"
            for _ in range(SWITCHES):
                with suppress(OSError):
                    stack.enter_context(
                        socket.create_connection(("127.0.0.1", port), 5)
                    )
            os.write(asks, b"a")
            return os.read(told, 1)[0]
    finally:
        for descriptor in (asked, asks, told, tells):
            os.close(descriptor)
        os.kill(child, 9)
        os.waitpid(child, 0)


def _strange(stranger: Stranger, port: int, asked: int, tells: int) -> int:
    """Binds, and says so; then listens again and again when asked, then says who came."""
    if os.geteuid() == 0:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
    try:
        wanted = strange_socket(stranger, port)
        if stranger.listens:
            wanted.listen()
    except OSError:
        os.write(tells, b"-")
        return 1
    with wanted:
        os.write(tells, b"b")
        os.read(asked, 1)
        with suppress(OSError):
            wanted.listen()
        os.write(tells, b"l")
        os.read(asked, 1)
        came = 0
        with suppress(OSError):
            while True:
                wanted.accept()
                came += 1
        os.write(tells, bytes([came]))
        os.read(asked, 1)
    return 0


@pytest.mark.parametrize("stranger", STRANGERS, ids=str)
def test_who_was_there_before_the_network_gets_no_switch(
    stranger: Stranger,
) -> None:
    assert switches_of(stranger, held=True) == 0


def test_a_taken_port_is_told_with_its_process_and_user() -> None:
    user = pwd.getpwuid(os.getuid()).pw_name
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        why = f"port {port} is taken by .*(process {os.getpid()}, user {user})"
        with (
            pytest.raises(
                MachineCannot, match=re.escape(why).replace(r"\.\*", ".*")
            ) as raised,
            held_ports(0, port),
        ):
            pass
    assert "--api-port" in str(raised.value.hint)


def test_one_port_for_both_is_refused_with_both_options() -> None:
    port = free_port()
    with pytest.raises(BadInput) as raised, held_ports(port, port):
        pass
    for part in ("--openflow-port", "--api-port", str(port)):
        assert part in raised.value.message


def test_whoever_has_only_a_connection_of_a_port_does_not_listen_there(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = psutil.net_connections

    def connected_first(kind: str) -> list[Any]:
        return sorted(listed(kind), key=lambda entry: entry.status)

    monkeypatch.setattr(psutil, "net_connections", connected_first)
    with (
        socket.create_server(("127.0.0.1", 0)) as listener,
        socket.create_connection(listener.getsockname()),
    ):
        connection, _ = listener.accept()
        with (
            connection,
            subprocess.Popen(
                ["cat"],
                stdin=subprocess.PIPE,
                pass_fds=[connection.fileno()],
            ) as worker,
        ):
            connection.close()
            user = port_user(listener.getsockname()[1])
            assert f"process {os.getpid()}," in user
            worker.kill()


@pytest.mark.parametrize("address", [*ADDRESSES, "127.0.0.2"])
def test_who_listens_is_named_if_that_takes_the_port(address: str) -> None:
    port = free_port()
    try:
        listener = strange_socket(Stranger(address, (), listens=True), port)
    except OSError:
        pytest.skip(f"this machine has no {address}")
    with listener:
        listener.listen()
        taken = False
        try:
            socket.create_server(("127.0.0.1", port)).close()
        except OSError:
            taken = True
        named = f"process {os.getpid()}," in port_user(port)
        assert named == taken


def test_who_listens_at_another_address_is_not_named_for_it(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listed = psutil.net_connections

    def other_address_first(kind: str) -> list[Any]:
        return sorted(
            listed(kind), key=lambda entry: entry.laddr[0] != "127.0.0.2"
        )

    monkeypatch.setattr(psutil, "net_connections", other_address_first)
    with ExitStack() as stack:
        port = free_port()
        other = stack.enter_context(
            socket.create_server(("127.0.0.2", port))
        )
        worker = stack.enter_context(
            subprocess.Popen(
                ["cat"], stdin=subprocess.PIPE, pass_fds=[other.fileno()]
            )
        )
        other.close()
        stack.enter_context(socket.create_server(("127.0.0.1", port)))
        assert f"process {os.getpid()}," in port_user(port)
        worker.kill()


def test_nobody_else_listens_there_until_the_network_ends() -> None:
    with held_ports(0, 0) as held:
        assert sorted(held) == ["--api-fd", "--listen-fd"]
        ports = []
        for descriptor in held.values():
            with socket.socket(fileno=os.dup(descriptor)) as listener:
                ports.append(listener.getsockname()[1])
            assert not os.get_inheritable(descriptor)
        for port in ports:
            for address in ("127.0.0.1", ""):
                with pytest.raises(OSError, match="in use"):
                    socket.create_server((address, port))
    for port in ports:
        socket.create_server(("127.0.0.1", port)).close()


def test_without_an_api_one_port_is_held() -> None:
    with held_ports(0, None) as held:
        assert list(held) == ["--listen-fd"]
