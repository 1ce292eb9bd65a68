"""TLS between Dask's processes on this machine: a connection that fails breaks
no other one.

OpenSSL has one queue of errors per thread. Python's releases since 2025, with
OpenSSL since 3.2, leave a failed system call there, and the next read of any
other connection in that thread raises it
(https://github.com/python/cpython/issues/148594; seen with 3.13.5 and OpenSSL
3.5).
"""

from __future__ import annotations

import ssl
from collections.abc import Callable
from typing import Any

from distributed.security import Security


def _cleaned(call: Callable[..., Any]) -> Callable[..., Any]:
    def method(self: ssl.SSLSocket, *args: Any, **named: Any) -> Any:
        try:
            return call(self, *args, **named)
        except OSError as error:
            if not isinstance(error, ssl.SSLError):
                # The first thing that a new TLS object does is to empty the
                # queue.
                self.context.wrap_bio(
                    ssl.MemoryBIO(), ssl.MemoryBIO(), self.server_side
                )
            raise

    return method


class CleanSocket(ssl.SSLSocket):
    """A socket that leaves nothing in OpenSSL's queue of errors."""

    do_handshake = _cleaned(ssl.SSLSocket.do_handshake)
    read = _cleaned(ssl.SSLSocket.read)
    send = _cleaned(ssl.SSLSocket.send)


class LocalSecurity(Security):
    """Dask's settings of TLS, with such sockets; ``temporary()`` makes keys for
    one cluster.
    """

    def get_connection_args(self, role: str) -> Any:
        return _clean(super().get_connection_args(role))  # type: ignore[no-untyped-call]

    def get_listen_args(self, role: str) -> Any:
        return _clean(super().get_listen_args(role))  # type: ignore[no-untyped-call]


def _clean(args: dict[str, Any]) -> dict[str, Any]:
    args["ssl_context"].sslsocket_class = CleanSocket
    return args
