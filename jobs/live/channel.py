"""An agent's line to its caller: JSON lines over a stream socket, never blocking the work."""

from __future__ import annotations

import contextlib
import socket

from jobs.live.protocol import (
    AgentReport,
    Begin,
    Progress,
    Ready,
    decode_message,
    encode,
)

# What may wait for a slow caller; beyond it progress samples are left out.
_PENDING_LIMIT_BYTES = 65536


class CallerGone(ConnectionError):
    """The caller closed the channel: nobody wants this agent's work any more."""

    def __init__(self) -> None:
        super().__init__("the caller closed the channel")


class Channel:
    """The agent's end. ``fileno`` is readable when the caller said something."""

    def __init__(self, sock: socket.socket) -> None:
        sock.settimeout(0)
        self._sock = sock
        self._pending = b""
        self._received = b""

    def fileno(self) -> int:
        return self._sock.fileno()

    def say(self, message: Ready | Progress) -> None:
        """Send without waiting; what does not fit now goes with the next message."""
        if len(self._pending) < _PENDING_LIMIT_BYTES:
            self._pending += encode(message)
        try:
            self._pending = self._pending[self._sock.send(self._pending) :]
        except BlockingIOError:
            return
        except OSError:
            raise CallerGone from None

    def finish_with(self, report: AgentReport, timeout_s: float = 5.0) -> None:
        """Send the report and what still waits, at most ``timeout_s`` for a slow caller; close."""
        self._sock.settimeout(timeout_s)
        with contextlib.suppress(OSError):
            self._sock.sendall(self._pending + encode(report))
        self._sock.close()

    def heard(self) -> list[Begin]:
        """What the caller has said since the last call; raises CallerGone at its end."""
        begins: list[Begin] = []
        try:
            data = self._sock.recv(65536)
        except BlockingIOError:
            return begins
        except OSError:
            raise CallerGone from None
        if not data:
            raise CallerGone
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            message = decode_message(line)
            if isinstance(message, Begin):
                begins.append(message)
        return begins
