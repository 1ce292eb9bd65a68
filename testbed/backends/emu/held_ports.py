"""The controller's ports, held for the network's whole life by its root process.

Each controller inherits the listening sockets. Between the end of one and the
start of the next no other program can listen there, which the switches would
take for the controller.
"""

from __future__ import annotations

import errno
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress

import psutil

from controller.launch import BACKLOG, LOOPBACK
from testbed.errors import BadInput, MachineCannot


@contextmanager
def held_ports(openflow: int, api: int | None) -> Iterator[dict[str, int]]:
    """Descriptors of listening sockets by the controller's options.

    0: any free port. ``api``: None without an API. Raises MachineCannot for a
    port that is taken.
    """
    if openflow and openflow == api:
        raise BadInput(
            f"--openflow-port and --api-port are both {api}",
            "give one of them another port",
        )
    with ExitStack() as stack:
        sockets = {}
        wanted = [("--listen-fd", openflow, "--openflow-port")]
        if api is not None:
            wanted.append(("--api-fd", api, "--api-port"))
        for option, port, name in wanted:
            listener = stack.enter_context(_listening(port, name))
            sockets[option] = listener.fileno()
        yield sockets


def _listening(port: int, option: str) -> socket.socket:
    try:
        return socket.create_server((LOOPBACK, port), backlog=BACKLOG)
    except OSError as error:
        if error.errno != errno.EADDRINUSE:
            raise
        raise MachineCannot(
            f"port {port} is taken by {port_user(port)}",
            f"end that, or use another: {option}",
        ) from None


def port_user(port: int) -> str:
    """The process that listens on a port and its user, where that is visible."""
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            # A connection that was accepted there has the same port.
            if connection.status != psutil.CONN_LISTEN:
                continue
            if connection.laddr.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                user = process.username()
                return (
                    f"{process.name()} (process {process.pid}, user {user})"
                )
    return "another process"
