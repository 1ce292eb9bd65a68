"""Connections of the page, of which those without the token are bounded.

Any local user can connect, as often as he likes. A connection without the token
makes room for a newer one where there are too many, so that the owner gets in
whoever else holds connections.
"""

from __future__ import annotations

import asyncio
import errno
from socket import socket
from typing import cast

from tornado.http1connection import HTTP1Connection
from tornado.httpserver import HTTPServer
from tornado.httputil import HTTPServerRequest
from tornado.iostream import IOStream

STRANGERS_MAX = 256
"""Below the 1,024 descriptors that a process mostly has."""
ACCEPT_PAUSE_S = 0.1


class Strangers:
    """Open connections that have not sent the token, the first one first."""

    def __init__(self, most: int) -> None:
        self._most = most
        # In the order in which they entered, as dicts keep it.
        self._streams: dict[IOStream, None] = {}

    def enter(self, stream: IOStream) -> None:
        """Holds a connection; closes the first one if there is no room."""
        # Nobody reports the end of a connection that has become a WebSocket:
        # the closed ones are looked for here.
        for held in list(self._streams):
            if held.closed():
                del self._streams[held]
        if len(self._streams) >= self._most:
            self.close_first()
        self._streams[stream] = None

    def leave(self, stream: IOStream) -> None:
        """Gives up the place of a connection that has sent the token."""
        self._streams.pop(stream, None)

    def close_first(self) -> bool:
        """Closes the connection that entered first; False where none is open."""
        while self._streams:
            first = next(iter(self._streams))
            del self._streams[first]
            if not first.closed():
                first.close()
                return True
        return False


def stream_of(request: HTTPServerRequest) -> IOStream:
    """The connection of a request, which has not become a WebSocket yet."""
    return cast(HTTP1Connection, request.connection).stream


async def accept_all(
    listening: socket, server: HTTPServer, strangers: Strangers
) -> None:
    """Hands connections to the server until this task is cancelled.

    Tornado's own way fails where descriptors are short, at once again each
    time: its loop spins.
    """
    while True:
        # One in each round of the loop: a connection that is there is read
        # before many that come could close it.
        await _readable(listening)
        try:
            connection, address = listening.accept()
        except OSError as error:
            short = error.errno == errno.EMFILE
            # A stranger's descriptor is the next connection's.
            if not short or not strangers.close_first():
                await asyncio.sleep(ACCEPT_PAUSE_S)
            continue
        stream = IOStream(connection)
        strangers.enter(stream)
        server.handle_stream(stream, address)


async def _readable(listening: socket) -> None:
    """Waits until a connection can be accepted.

    Where descriptors are short the kernel fails an ``accept`` that nobody waits
    for too, and no stranger need make room.
    """
    loop = asyncio.get_running_loop()
    waiting = asyncio.Event()
    loop.add_reader(listening, waiting.set)
    try:
        await waiting.wait()
    finally:
        loop.remove_reader(listening)
