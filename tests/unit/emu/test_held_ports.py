"""The controller's ports belong to the network's root process, whoever listens for them."""

from __future__ import annotations

import os
import pwd
import re
import socket

import pytest

from testbed.backends.emu.held_ports import held_ports
from testbed.errors import MachineCannot


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
