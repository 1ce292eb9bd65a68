"""The controller's ports, held for the network's whole life by its root process.

Each controller process inherits the listening sockets. Between the end of one
and the start of the next no other program can listen there: switches would take
it for the controller.
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
    """Opens listening sockets for the block; their descriptors by the option
    that tells the controller of each.

    ``openflow``, ``api``: ports, 0 for any free one; ``api`` is None for a
    controller without an API. Raises BadInput if both are the same, and
    MachineCannot if one is taken.
    """
    if openflow and openflow == api:
        raise BadInput(
            f"--openflow-port and --api-port are both {api}",
            "give one of them another port",
        )
    with ExitStack() as stack:
        switches = stack.enter_context(
            _listening(openflow, "--openflow-port")
        )
        descriptors = {"--listen-fd": switches.fileno()}
        if api is not None:
            requests = stack.enter_context(_listening(api, "--api-port"))
            descriptors["--api-fd"] = requests.fileno()
        yield descriptors


def _listening(port: int, option: str) -> socket.socket:
    """A listening socket. ``option``: of the command line, for another port."""
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
    """The process that listens on a port, and its user, as a message says it.

    Only root sees other users' processes.
    """
    with suppress(psutil.Error):
        for connection in psutil.net_connections("tcp"):
            # A connection that was accepted there has the same port.
            if connection.status != psutil.CONN_LISTEN:
                continue
            address = connection.laddr
            if address and address.port == port and connection.pid:
                process = psutil.Process(connection.pid)
                user = process.username()
                return (
                    f"{process.name()} (process {process.pid}, user {user})"
                )
    return "another process"
