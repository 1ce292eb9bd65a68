"""Carries the connections of switches to a controller that a user has started.

Switches in namespaces of their own cannot reach that controller. Switches on
the machine connect to the testbed's address as always. The messages are passed
on unread.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from collections.abc import Sequence
from typing import NoReturn

LOG = logging.getLogger(__name__)
CONNECT_TIMEOUT_S = 5.0
CHUNK_BYTES = 65_536


def parsed(address: str) -> tuple[str, int]:
    """Host and port of ``tcp:HOST:PORT``, as Open vSwitch writes it.

    Raises ValueError.
    """
    host, _, text = address.removeprefix("tcp:").rpartition(":")
    port = int(text)
    if not 0 < port <= 65535:
        raise ValueError(f"{port} is no port")
    return host.strip("[]"), port


def require_listener(host: str, port: int) -> None:
    """Raises OSError where nobody listens at the address."""
    try:
        socket.create_connection((host, port), CONNECT_TIMEOUT_S).close()
    except UnicodeError as error:
        # A part of the name is longer than 63 characters, for example.
        raise OSError(f"{host!r} is no host's name") from error


def serve(
    listeners: Sequence[socket.socket],
    host: str,
    port: int,
) -> NoReturn:
    """Carries all connections of `listeners` to the address."""
    asyncio.run(_serve(listeners, host, port))
    raise AssertionError("it serves for ever")


async def _serve(
    listeners: Sequence[socket.socket],
    host: str,
    port: int,
) -> None:
    async def carry(
        from_switch: asyncio.StreamReader, to_switch: asyncio.StreamWriter
    ) -> None:
        try:
            connecting = asyncio.open_connection(host, port)
            far = await asyncio.wait_for(connecting, CONNECT_TIMEOUT_S)
        except OSError as error:
            # The switch tries again, a second later at most.
            LOG.warning("nobody listens at %s:%d: %s", host, port, error)
            to_switch.close()
            return
        from_controller, to_controller = far
        await asyncio.gather(
            _copy(from_switch, to_controller),
            _copy(from_controller, to_switch),
        )

    for listener in listeners:
        await asyncio.start_server(carry, sock=listener)
    await asyncio.Event().wait()


async def _copy(
    source: asyncio.StreamReader, sink: asyncio.StreamWriter
) -> None:
    try:
        while data := await source.read(CHUNK_BYTES):
            sink.write(data)
            # Waits while the other end does not read.
            await sink.drain()
    except OSError as error:
        LOG.debug("a connection broke: %s", error)
    finally:
        # The other direction ends with this one.
        sink.close()
