"""Bounds on what others can cause: requests, lines in the log, connections."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LINES_MAX = 20
LINE_LENGTH_MAX = 300
PAUSE_S = 60.0


class TokenBucket:
    """Admits ``rate_per_s`` requests a second in the long run.

    At most ``burst`` are admitted at once. Threads may share it. ``clock`` is
    in seconds and never runs backwards.
    """

    def __init__(
        self,
        rate_per_s: float,
        burst: int,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._at_s = clock()
        self._lock = threading.Lock()

    def take(self) -> float:
        """Takes a token, and returns 0.0.

        Without one it takes none, and returns the time until there is, in s.
        """
        with self._lock:
            now_s = self._clock()
            # No timer adds tokens: those gained since the last call are added
            # here.
            gained = (now_s - self._at_s) * self._rate_per_s
            self._tokens = min(self._burst, self._tokens + gained)
            self._at_s = now_s
            if self._tokens < 1.0:
                return (1.0 - self._tokens) / self._rate_per_s
            self._tokens -= 1.0
            return 0.0


class SparseLog:
    """Log of warnings that others can cause as often as they like.

    It writes the first LINES_MAX warnings of a row, then each whose number in
    the row is a power of two. PAUSE_S without a warning ends the row. ``clock``
    is as in :class:`TokenBucket`.
    """

    def __init__(
        self,
        log: logging.Logger,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._log = log
        self._clock = clock
        self._count = 0
        self._last_s = clock()
        self._lock = threading.Lock()

    def warning(self, text: str) -> None:
        """Writes a line, or counts it."""
        # Written outside of the lock: nobody waits for another's line.
        with self._lock:
            now_s = self._clock()
            if now_s - self._last_s >= PAUSE_S:
                self._count = 0
            self._count += 1
            self._last_s = now_s
            count = self._count
        line = text[:LINE_LENGTH_MAX]
        if count <= LINES_MAX:
            self._log.warning("%s", line)
        elif count & (count - 1) == 0:  # a power of two
            self._log.warning(
                "%s (%d such lines, most left out)", line, count
            )


class Places:
    """At most `most` connections, each from `enter` to `leave`.

    One more shuts down the one that entered first.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        # In the order in which they entered, as dicts keep it.
        self._held: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def enter(self, connection: socket.socket) -> None:
        """Holds a connection; shuts down the first one if there is no room."""
        with self._lock:
            self._held[connection] = None
            if len(self._held) > self._most:
                first = next(iter(self._held))
                del self._held[first]
                shut_down(first)

    def leave(self, connection: socket.socket) -> bool:
        """Gives up a connection's place.

        Returns False if it had none: it was shut down to make room.
        """
        with self._lock:
            was_held = connection in self._held
            self._held.pop(connection, None)
            return was_held


def shut_down(connection: socket.socket) -> None:
    """Shuts both directions down; wakes threads that read or write."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
