"""TLS between Dask's processes here, over real sockets in one thread."""

from __future__ import annotations

import pickle
import select
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import ExitStack, suppress
from typing import Any

import pytest

from testbed.sweeps.local_tls import CleanSocket, LocalSecurity
from tests.support.scripted_tasks import wait_until

Pair = tuple[ssl.SSLSocket, ssl.SSLSocket]


@pytest.fixture(scope="module")
def security() -> LocalSecurity:
    return LocalSecurity.temporary()


@pytest.fixture
def pair(security: LocalSecurity) -> Iterator[Callable[[], Pair]]:
    """Makes both ends of a connection, the server's as a scheduler has it, before the handshake."""
    with ExitStack() as stack:

        def made() -> Pair:
            with socket.create_server(("127.0.0.1", 0)) as listening:
                ends = (
                    socket.create_connection(listening.getsockname()),
                    listening.accept()[0],
                )
            for end in ends:
                end.settimeout(0)
                end.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            connects = security.get_connection_args("worker")["ssl_context"]
            listens = security.get_listen_args("scheduler")["ssl_context"]
            client = connects.wrap_socket(
                ends[0], do_handshake_on_connect=False
            )
            server = listens.wrap_socket(
                ends[1], server_side=True, do_handshake_on_connect=False
            )
            stack.callback(client.close)
            stack.callback(server.close)
            return client, server

        yield made


def advance(end: ssl.SSLSocket) -> bool:
    try:
        end.do_handshake()
    except ssl.SSLWantReadError:
        return False
    return True


def connected(client: ssl.SSLSocket, server: ssl.SSLSocket) -> None:
    wait_until(lambda: advance(client) & advance(server), "a handshake")


def left(client: ssl.SSLSocket, server: ssl.SSLSocket) -> None:
    """The client has its handshake, and goes before the server has."""
    wait_until(
        lambda: advance(client) or advance(server), "the client's handshake"
    )
    client.close()


def read(end: ssl.SSLSocket) -> bytes:
    return end.recv(10)


def write(end: ssl.SSLSocket) -> None:
    for _ in range(5):
        end.send(b"x" * 50)


@pytest.mark.parametrize("fails", [read, write])
def test_a_connection_that_fails_breaks_no_other_one(
    pair: Callable[[], Pair], fails: Callable[[ssl.SSLSocket], Any]
) -> None:
    client, server = pair()
    connected(client, server)
    gone, waiting = pair()
    left(gone, waiting)
    wait_until(lambda: advance(waiting), "the server's handshake")
    with suppress(
        OSError
    ):  # its kind differs between releases; a read may find the end
        fails(waiting)
    for end in (server, client):
        with pytest.raises(ssl.SSLWantReadError):
            read(end)
    client.send(b"still here")
    wait_until(
        lambda: bool(select.select([server], [], [], 0)[0]), "what was sent"
    )
    assert read(server) == b"still here"


def test_a_worker_s_process_gets_it_whole(security: LocalSecurity) -> None:
    copy = pickle.loads(pickle.dumps(security))  # noqa: S301 - made on the line itself
    assert type(copy) is LocalSecurity
    for args in (
        copy.get_connection_args("worker"),
        copy.get_listen_args("worker"),
    ):
        assert args["ssl_context"].sslsocket_class is CleanSocket
        assert args["ssl_context"].verify_mode is ssl.CERT_REQUIRED
        assert args["require_encryption"]
