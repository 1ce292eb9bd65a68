"""Connections of switches: whose they are, and unix sockets for both OpenFlow
libraries.

A switch is the machine's own Open vSwitch, which is root's, or a process of the
controller's own user. Anybody else who connects would be taken for a switch by
its number, and the true one would get no rules.
"""

from __future__ import annotations

import logging
import socket
import struct
from collections.abc import Container, Iterator
from typing import Any

from controller.api import connections
from controller.rate_limit import SparseLog

LOG = SparseLog(logging.getLogger(__name__))
# linux/sock_diag.h and inet_diag.h: asks for a socket by both of its ends.
SOCK_DIAG = 4
BY_FAMILY = 20
REQUEST = 1
ESTABLISHED = 1
ANY = 0xFFFFFFFF
PORTS_AND_HOSTS = struct.Struct("!HH4s12x4s12x")
# A message's header, then family, protocol, extensions and states, the ends,
# and the device and the cookie, which may be any.
QUESTION = struct.Struct("=IHHII BBBxI 36s III")
# The header, the state, and after ends and queues the user.
ANSWER = struct.Struct("=IHHII xBxx 48x 12x I")
ANSWER_BYTES = 4096
# struct ucred: process, user, group.
CREDENTIALS = struct.Struct("3i")

Address = tuple[str, int]


class LocalConnection:
    """A connection by a unix socket, which has no options of TCP.

    Both OpenFlow libraries set such an option on every connection, and would
    fail.
    """

    def __init__(self, connection: socket.socket) -> None:
        self._connection = connection

    def setsockopt(
        self,
        level: int,
        option: int,
        value: int,
    ) -> None:
        """Sets an option; ignores one of TCP."""
        if level != socket.IPPROTO_TCP:
            self._connection.setsockopt(level, option, value)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._connection, name)


def switch_connections(
    listener: socket.socket, uids: Container[int]
) -> Iterator[tuple[Any, Address]]:
    """Connections of these users, each with its address: host and port, or
    ``unix`` and the peer's process.

    Connections of other users are closed. Ends with an error of the listener.
    """
    domain = listener.getsockopt(socket.SOL_SOCKET, socket.SO_DOMAIN)
    is_local = domain == socket.AF_UNIX
    for accepted, peer in connections(listener):
        connection: Any = accepted
        address = peer
        uid: int | None
        if is_local:
            pid, uid = _local_peer(accepted)
            connection = LocalConnection(accepted)
            address = ("unix", pid)
        else:
            try:
                uid = tcp_peer_uid(accepted, peer)
            except OSError as error:
                # Where resources are short this connection is lost, and
                # the listener stays.
                LOG.warning(f"OpenFlow connection not checked: {error}")
                accepted.close()
                continue
        if uid in uids:
            yield connection, address
            continue
        whose = "nobody who is there" if uid is None else f"user {uid}"
        LOG.warning(f"OpenFlow connection of {whose} refused")
        accepted.close()


def _local_peer(connection: socket.socket) -> tuple[int, int]:
    """The process that has connected a unix socket, and its user then."""
    data = connection.getsockopt(
        socket.SOL_SOCKET, socket.SO_PEERCRED, CREDENTIALS.size
    )
    pid, uid, _ = CREDENTIALS.unpack(data)
    return pid, uid


def tcp_peer_uid(connection: socket.socket, peer: Address) -> int | None:
    """The user whose socket is a TCP connection's other end in this network
    namespace. None if it is closed already, or elsewhere.
    """
    host, port = connection.getsockname()
    # The peer's socket is looked up, so that the peer's end comes first.
    ends = PORTS_AND_HOSTS.pack(
        peer[1], port, socket.inet_aton(peer[0]), socket.inet_aton(host)
    )
    request = QUESTION.pack(
        QUESTION.size, BY_FAMILY, REQUEST, 0, 0,
        socket.AF_INET, socket.IPPROTO_TCP, 0, ANY, ends, 0, ANY, ANY,
    )  # fmt: skip
    with socket.socket(
        socket.AF_NETLINK, socket.SOCK_RAW, SOCK_DIAG
    ) as kernel:
        kernel.send(request)
        answer = kernel.recv(ANSWER_BYTES)
    # The answer of an error is shorter; its kind tells it apart.
    padded = answer.ljust(ANSWER.size, b"\0")
    _, kind, *_, state, uid = ANSWER.unpack_from(padded)
    # The kernel shows a closed socket with user 0: it must not count as
    # root's.
    if kind != BY_FAMILY or state != ESTABLISHED:
        return None
    return int(uid)
