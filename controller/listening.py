"""Accepting connections for as long as the process lives."""

from __future__ import annotations

import errno
import logging
import socket
import time
from collections.abc import Iterator

LOG = logging.getLogger(__name__)

_PASSING = (errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED)
"""Errors that say something about this moment or this peer and nothing about the listener."""
_PAUSE_S = 0.1


def connections(listener: socket.socket) -> Iterator[tuple[socket.socket, tuple[str, int]]]:
    """Every connection that comes, with its peer's address. Ends with the listener's own error."""
    while True:
        try:
            connection, address = listener.accept()
        except OSError as error:
            if error.errno not in _PASSING:
                raise
            LOG.warning("a connection could not be accepted: %s", error)
            time.sleep(_PAUSE_S)
            continue
        yield connection, address
