"""Connections among a job's VMs, made before its start.

Handshakes thus do not count as transfer. All sockets are opened while the agent
still has the privilege to choose their congestion control: without it the
kernel allows only what the machine's owner allowed for everybody.

Each agent listens, and connects to the peers to which it will send. On each
connection the sender states its index, its peer's, and the volume to come; the
receiver replies with one byte if it expects that. An agent is ready when all its
receivers have replied and all its senders have called.
"""

from __future__ import annotations

import errno
import os
import selectors
import socket
import struct
import time
from contextlib import suppress
from dataclasses import dataclass, field

from jobs.live.agent import AgentFailure, Channel
from jobs.live.transfer_plan import Incoming, Outgoing, TransferPlan

# Magic, sender, receiver, payload bytes to come.
_HELLO = struct.Struct("!8sIIQ")
_MAGIC = b"hosenet1"
_WELCOME = b"\1"

# Errors of a peer that is still starting: calls are repeated, at first soon,
# as the agents of a job start within milliseconds.
_RETRY_NS = 4_000_000
_LAST_RETRY_NS = 20_000_000
_NOT_YET = {
    errno.ECONNREFUSED,
    errno.ECONNABORTED,
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ETIMEDOUT,
    errno.EAGAIN,
}


@dataclass
class Sending:
    """A connection on which this agent sends payload.

    ``watched``: the selector events for which it is registered.
    """

    order: Outgoing
    sock: socket.socket
    sent_bytes: int = 0
    answer: bytes = b""
    acknowledged_bytes: int = 0
    acknowledged_ns: int | None = None
    retransmits: int = 0
    watched: int = 0

    @property
    def left_bytes(self) -> int:
        return self.order.size_bytes - self.sent_bytes

    def failure(self, reason: str | None) -> AgentFailure:
        """The agent's failure where this connection is lost."""
        return AgentFailure(
            f"connection to {self.order} lost after {self.sent_bytes}"
            f" of {self.order.size_bytes} bytes: {reason}"
        )


@dataclass
class Receiving:
    """A connection on which this agent receives payload.

    ``wake_bytes``: the agent is woken when so much waits to be read.
    """

    order: Incoming
    sock: socket.socket
    received_bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    wake_bytes: int = 1

    @property
    def left_bytes(self) -> int:
        return self.order.size_bytes - self.received_bytes

    def failure(self, reason: str | None) -> AgentFailure:
        """The agent's failure where this connection is lost."""
        return AgentFailure(
            f"connection from {self.order} lost after {self.received_bytes}"
            f" of {self.order.size_bytes} bytes: {reason}"
        )

    def wake_for(self, size_bytes: int) -> None:
        """Wakes the agent when ``size_bytes``, at least 1, wait to be read."""
        self.wake_bytes = max(1, size_bytes)
        self.sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVLOWAT, self.wake_bytes
        )


@dataclass
class _Attempt:
    """A connection to a receiver that is not established yet."""

    order: Outgoing
    sock: socket.socket
    calling: bool = False
    retry_at_ns: int = 0
    pause_ns: int = _RETRY_NS
    reason: str = "no answer"


@dataclass
class Connections:
    """The connections of one plan; owns all sockets until :meth:`close`.

    The constructor opens the sockets in the present network namespace. It
    raises OSError if the congestion control is not available. The other methods
    need no privilege.
    """

    plan: TransferPlan
    channel: Channel
    sendings: list[Sending] = field(default_factory=list)
    receivings: list[Receiving] = field(default_factory=list)

    def __post_init__(self) -> None:
        self._selector = selectors.DefaultSelector()
        self._attempts = [
            _Attempt(order, self._opened()) for order in self.plan.sends
        ]
        self._expected = {order.peer: order for order in self.plan.receives}
        self._callers: dict[socket.socket, bytes] = {}
        self._listener = self._opened()

    def establish(self) -> None:
        """Makes all connections.

        Raises AgentFailure naming the peers that are missing after the plan's
        timeout.
        """
        end_ns = time.monotonic_ns() + round(
            self.plan.connect_timeout_s * 1e9
        )
        # A caller that ends meanwhile is noticed there.
        self._selector.register(
            self.channel, selectors.EVENT_READ, self.channel.heard
        )
        if self.plan.receives:
            self._listen()
        while self._attempts or self._expected:
            now_ns = time.monotonic_ns()
            if now_ns > end_ns:
                raise AgentFailure(self._missing())
            self._connect_when_due(now_ns)
            for key, _ in self._selector.select(self._patience_s()):
                key.data()
        # Connections were made in any order; turns are those of the plan.
        self.sendings.sort(
            key=lambda sending: self.plan.sends.index(sending.order)
        )
        self.receivings.sort(key=lambda receiving: receiving.order.peer)
        self._selector.close()

    def close(self) -> None:
        """Closes all sockets in order, so that unsent data still leaves."""
        sockets = [attempt.sock for attempt in self._attempts]
        sockets += [flow.sock for flow in self.sendings]
        sockets += [flow.sock for flow in self.receivings]
        for sock in (*sockets, *self._callers, self._listener):
            _close_in_order(sock)
        self._selector.close()

    def _patience_s(self) -> float:
        """Time in s until the next call is due."""
        due_ns = time.monotonic_ns() + _LAST_RETRY_NS
        for attempt in self._attempts:
            if not attempt.calling:
                due_ns = min(due_ns, attempt.retry_at_ns)
        return max(0.0, (due_ns - time.monotonic_ns()) / 1e9)

    def _opened(self) -> socket.socket:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.settimeout(0)
        set_congestion_control(sock, self.plan.congestion_control)
        sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, STALL_TIMEOUT_MS
        )
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)
        return sock

    def _listen(self) -> None:
        self._listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            self._listener.bind((self.plan.ip, self.plan.port))
        except OSError as error:
            raise AgentFailure(
                f"cannot listen at {self.plan.ip}:{self.plan.port}: {error.strerror}"
            ) from None
        # Room for all: a handshake beyond a full backlog is dropped, and
        # TCP repeats it after a second.
        self._listener.listen(max(16, len(self.plan.receives)))
        self._selector.register(
            self._listener, selectors.EVENT_READ, self._accept
        )

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except OSError:
            # The caller is gone; a peer that still needs it calls again.
            return
        # Other options are inherited from the listener.
        sock.settimeout(0)
        self._callers[sock] = b""
        self._selector.register(
            sock, selectors.EVENT_READ, lambda: self._greeting(sock)
        )

    def _greeting(self, sock: socket.socket) -> None:
        """Reads a peer's hello; closes the connection if it is unexpected."""
        try:
            data = sock.recv(_HELLO.size - len(self._callers[sock]))
        except BlockingIOError:
            return
        except OSError:
            data = b""
        hello = self._callers[sock] + data
        self._callers[sock] = hello
        if data and len(hello) < _HELLO.size:
            return
        del self._callers[sock]
        self._selector.unregister(sock)
        order = self._expected_from(hello) if data else None
        if order is None:
            sock.close()
            return
        del self._expected[order.peer]
        self.receivings.append(Receiving(order, sock))
        # One byte on a connection that has sent nothing: its buffer has
        # room.
        sock.send(_WELCOME)

    def _expected_from(self, hello: bytes) -> Incoming | None:
        magic, sender, receiver, size_bytes = _HELLO.unpack(hello)
        order = self._expected.get(sender)
        if magic != _MAGIC or receiver != self.plan.index or order is None:
            return None
        if size_bytes != order.size_bytes:
            raise AgentFailure(
                f"VM {sender} announces {size_bytes} bytes, {order.size_bytes} are expected"
            )
        return order

    def _connect_when_due(self, now_ns: int) -> None:
        for attempt in self._attempts:
            if not attempt.calling and attempt.retry_at_ns <= now_ns:
                self._connect(attempt)

    def _connect(self, attempt: _Attempt) -> None:
        """Begins to connect to a receiver; :meth:`_connected` continues."""
        sock = attempt.sock
        place = (attempt.order.ip, attempt.order.port)
        code = sock.connect_ex(place)
        if code == errno.ECONNABORTED:
            # Linux's answer to the first new attempt on a socket that was
            # refused, which is usable only now.
            code = sock.connect_ex(place)
        if code not in (0, errno.EINPROGRESS):
            self._retry(attempt, code)
            return
        attempt.calling = True
        self._selector.register(
            sock, selectors.EVENT_WRITE, lambda: self._connected(attempt)
        )

    def _connected(self, attempt: _Attempt) -> None:
        """Sends the hello on a new connection; :meth:`_welcomed` continues."""
        sock = attempt.sock
        code = sock.getsockopt(socket.SOL_SOCKET, socket.SO_ERROR)
        if code:
            self._retry(attempt, code)
            return
        order = attempt.order
        sock.send(
            _HELLO.pack(
                _MAGIC, self.plan.index, order.peer, order.size_bytes
            )
        )
        self._selector.modify(
            sock, selectors.EVENT_READ, lambda: self._welcomed(attempt)
        )

    def _welcomed(self, attempt: _Attempt) -> None:
        sock = attempt.sock
        try:
            answer = sock.recv(1)
        except BlockingIOError:
            return
        except OSError as error:
            self._retry(attempt, error.errno or errno.ECONNRESET)
            return
        if answer != _WELCOME:
            raise AgentFailure(
                f"{attempt.order} turned the connection away"
            )
        self._selector.unregister(sock)
        self._attempts.remove(attempt)
        self.sendings.append(Sending(attempt.order, sock))

    def _retry(
        self,
        attempt: _Attempt,
        code: int,
    ) -> None:
        """Plan the next call on the same socket.

        Raises AgentFailure for an error that does not pass.
        """
        if attempt.calling:
            self._selector.unregister(attempt.sock)
        attempt.calling = False
        if code not in _NOT_YET:
            raise AgentFailure(
                f"cannot connect to {attempt.order}: {os.strerror(code)}"
            )
        attempt.reason = os.strerror(code)
        attempt.retry_at_ns = time.monotonic_ns() + attempt.pause_ns
        attempt.pause_ns = min(2 * attempt.pause_ns, _LAST_RETRY_NS)

    def _missing(self) -> str:
        waited = f"within {self.plan.connect_timeout_s:g} s"
        parts = []
        if self._attempts:
            unreached = ", ".join(
                f"{attempt.order} ({attempt.reason})"
                for attempt in self._attempts
            )
            parts.append(f"no connection {waited} to {unreached}")
        if self._expected:
            silent = ", ".join(
                f"VM {peer}" for peer in sorted(self._expected)
            )
            parts.append(f"no call {waited} from {silent}")
        return "; ".join(parts)


# ----------------------------------------------------------------------------------------- tcp


# Settings of every VM's namespace, made before its sockets: names below
# /proc/sys, with dots.
VM_SYSCTLS: tuple[tuple[str, str], ...] = (
    # Large packets at any round-trip time. The receiver acknowledges each packet
    # by 66 bytes, which it takes from its own cap if it also sends: for packets
    # of two segments that would be 2.2 %.
    ("net.ipv4.tcp_tso_rtt_log", "20"),
    # A receive window that does not limit the sender. With the kernel's default
    # buffer of 128 kB it begins at 42 kB: at 60 Mbit/s and round trips of 30 ms
    # it stopped the sender for 40 of the first 300 ms.
    ("net.ipv4.tcp_rmem", "4096 1048576 6291456"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
)

# Unsent data that the kernel may hold: enough to keep a gigabit link busy while
# an agent waits for one of two processors.
NOTSENT_BYTES = 262_144

# Size and offset in struct tcp_info (linux/tcp.h): eight fields of one byte, then
# those of 32 bits.
_TCP_INFO_BYTES = 104
_TOTAL_RETRANS_OFFSET = 100
# In bytes a second (asm-generic/socket.h); Python's socket module lacks it.
_SO_MAX_PACING_RATE = 47
# TCP_CA_NAME_MAX.
_NAME_BYTES = 16

# Connections of a preempted job stand still for as long as others have its nodes,
# which TCP must not take for a failure. The backend, which knows the preempted
# jobs, looks for those without progress.
STALL_TIMEOUT_MS = 7 * 24 * 3_600_000

# With that timeout the kernel would keep a killed agent's connections, and their
# namespace, for a week. SO_LINGER of 0 s ends them at once; accepted sockets
# inherit it from the listener. A regular close sets it back.
_RESET, _FINISH = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)
LAST_TIMEOUT_MS = 60_000


def _close_in_order(sock: socket.socket) -> None:
    """Closes a socket, whose data the kernel still sends, for LAST_TIMEOUT_MS
    at most.
    """
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _FINISH)
        sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LAST_TIMEOUT_MS
        )
    sock.close()


def set_congestion_control(
    sock: socket.socket,
    name: str,
) -> None:
    """Sets a socket's congestion control, and reads it back. Raises OSError."""
    try:
        sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode()
        )
    except OSError as error:
        # Without CAP_NET_ADMIN only the names in
        # net.ipv4.tcp_allowed_congestion_control may be set. An error does not
        # matter where the namespace uses the wanted one by default.
        if congestion_control(sock) != name:
            raise OSError(
                error.errno,
                f"cannot use TCP congestion control {name!r} ({error.strerror}); load its module"
                f" with 'modprobe tcp_{name}'",
            ) from None
    used = congestion_control(sock)
    if used != name:
        raise OSError(
            f"TCP congestion control is {used!r} instead of {name!r}"
        )


def pace(
    sock: socket.socket,
    rate_bps: float,
) -> None:
    """Limits a connection's payload to a rate, by TCP's own pacing."""
    # In 64 bits: 32 of them end at 34 Gbit/s, and Python's integers at 17.
    rate = struct.pack("=Q", max(1, round(rate_bps / 8)))
    sock.setsockopt(socket.SOL_SOCKET, _SO_MAX_PACING_RATE, rate)


def congestion_control(sock: socket.socket) -> str:
    """Name of the congestion control that a socket uses."""
    raw = sock.getsockopt(
        socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES
    )
    return raw.split(b"\0", 1)[0].decode("ascii")


def retransmits(sock: socket.socket) -> int:
    """Number of segments that a connection has retransmitted (TCP_INFO)."""
    info = sock.getsockopt(
        socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES
    )
    return int(struct.unpack_from("=I", info, _TOTAL_RETRANS_OFFSET)[0])
