"""The controller's ports, held for the network's whole life by its root process.

Each controller process inherits the listening sockets. Between the end of one
process and the start of the next no other program can listen on these ports:
switches would take it for the controller.
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
def held_ports(
    openflow_port: int, api_port: int | None
) -> Iterator[dict[str, int]]:
    """Holds both ports for the block; yields the sockets' descriptors, by the
    controller's options for them.

    Port 0 is any free port; ``api_port`` is None for a controller without an
    API. Raises BadInput if both ports are the same, and MachineCannot if one is
    taken.
    """
    if openflow_port and openflow_port == api_port:
        raise BadInput(
            f"--openflow-port and --api-port are both {api_port}",
            "give one of them another port",
        )
    with ExitStack() as stack:
        openflow = stack.enter_context(
            _listening(openflow_port, "--openflow-port")
        )
        descriptors = {"--listen-fd": openflow.fileno()}
        if api_port is not None:
            api = stack.enter_context(_listening(api_port, "--api-port"))
            descriptors["--api-fd"] = api.fileno()
        yield descriptors


def _listening(port: int, option: str) -> socket.socket:
    """A listening socket. ``option``: sets another port on the command line."""
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
    """The process that has taken a port of LOOPBACK, and its user, in words.

    Only root sees other users' processes.
    """
    # Listeners at other addresses of the machine leave the port free.
    addresses = (LOOPBACK, f"::ffff:{LOOPBACK}", "0.0.0.0", "::")  # noqa: S104 - only compared
    taking = [(address, port) for address in addresses]
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            # An accepted connection has its listener's address, and may be
            # another process's.
            if connection.status != psutil.CONN_LISTEN:
                continue
            if connection.laddr in taking and connection.pid:
                process = psutil.Process(connection.pid)
                user = process.username()
                return (
                    f"{process.name()} (process {process.pid}, user {user})"
                )
    return "another process"
