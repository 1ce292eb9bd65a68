"""Bounds on what others can cause: requests a second, lines in the log, connections held."""

from __future__ import annotations

import logging
import socket
import threading
import time
from collections.abc import Callable
from contextlib import suppress

LINES_MAX, LINE_LENGTH_MAX, PAUSE_S = 20, 300, 60.0


class TokenBucket:
    """Admits ``rate_per_s`` requests a second in the long run, and at most ``burst`` at once.

    Threads may share it. ``clock`` is in seconds and never runs backwards.
    """

    def __init__(
        self, rate_per_s: float, burst: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._rate_per_s = rate_per_s
        self._burst = burst
        self._clock = clock
        self._tokens = float(burst)
        self._at_s = clock()
        self._lock = threading.Lock()

    def take(self) -> float:
        """Take a token. 0.0, or the time in seconds until there is one: then none was taken."""
        with self._lock:
            now_s = self._clock()
            gained = (now_s - self._at_s) * self._rate_per_s
            self._tokens, self._at_s = min(self._burst, self._tokens + gained), now_s
            if self._tokens < 1.0:
                return (1.0 - self._tokens) / self._rate_per_s
            self._tokens -= 1.0
            return 0.0


class SparseLog:
    """Warnings that anybody can cause as often as he likes: LINES_MAX in a row, then one whenever
    their number doubles. A minute without one ends the row. ``clock`` as above.
    """

    def __init__(self, log: logging.Logger, clock: Callable[[], float] = time.monotonic) -> None:
        self._log = log
        self._clock = clock
        self._count, self._last_s = 0, clock()
        self._lock = threading.Lock()

    def warning(self, text: str) -> None:
        """Write a line, or count it."""
        with self._lock:
            now_s = self._clock()
            count = self._count + 1 if now_s - self._last_s < PAUSE_S else 1
            self._count, self._last_s = count, now_s
        if count <= LINES_MAX:
            self._log.warning("%s", text[:LINE_LENGTH_MAX])
        elif not count & (count - 1):
            self._log.warning("%s (%d such lines, most left out)", text[:LINE_LENGTH_MAX], count)


class Places:
    """At most `most` connections, each from `enter` to `leave`: the longest there makes room."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._held: dict[socket.socket, None] = {}
        self._lock = threading.Lock()

    def enter(self, connection: socket.socket) -> None:
        """Hold a connection; shuts down the one that has been held longest if there is no room."""
        with self._lock:
            self._held[connection] = None
            if len(self._held) > self._most:
                longest = next(iter(self._held))
                del self._held[longest]
                shut_down(longest)

    def leave(self, connection: socket.socket) -> bool:
        """Hold it no longer. False if it was not held, as it had to make room."""
        with self._lock:
            return self._held.pop(connection, connection) is None


def shut_down(connection: socket.socket) -> None:
    """Shut both directions down, which wakes whoever is blocked in reading or writing."""
    with suppress(OSError):
        connection.shutdown(socket.SHUT_RDWR)
