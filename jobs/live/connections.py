"""Connecting the VMs of a job before its start, so that no handshake counts as
transfer.

All sockets are made at once, while the agent still has the privilege to choose
their congestion control: the kernel lets others use only what the machine's
owner allowed for everybody.

Every agent listens, connects to the peers it sends to, and sends on each
connection its name, its peer's and the volume to come. The receiver answers one
byte when that is what it expects. An agent is ready when all its receivers have
answered and all its senders have called.
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

_HELLO = struct.Struct(
    "!8sIIQ"
)  # magic, sender, receiver, payload bytes to come
_MAGIC = b"hosenet1"
_WELCOME = b"\1"

# A peer that is only just being started refuses or is unreachable for a moment.
_RETRY_S = 0.02
_NOT_YET = {
    errno.ECONNREFUSED,
    errno.ECONNABORTED,  # how Linux answers the first new attempt on a socket that was refused
    errno.ECONNRESET,
    errno.EHOSTUNREACH,
    errno.ENETUNREACH,
    errno.ETIMEDOUT,
    errno.EAGAIN,
}


@dataclass
class Sending:
    """One connection on which payload goes out."""

    order: Outgoing
    sock: socket.socket
    sent_bytes: int = 0
    answer: bytes = b""
    acknowledged_bytes: int = 0
    acknowledged_ns: int | None = None
    retransmits: int = 0
    watched: int = 0  # the selector events it is registered for

    @property
    def left_bytes(self) -> int:
        return self.order.size_bytes - self.sent_bytes


@dataclass
class Receiving:
    """One connection on which payload comes in."""

    order: Incoming
    sock: socket.socket
    received_bytes: int = 0
    first_ns: int | None = None
    last_ns: int | None = None
    wake_bytes: int = 1

    @property
    def left_bytes(self) -> int:
        return self.order.size_bytes - self.received_bytes

    def wake_for(self, size_bytes: int) -> None:
        """Be woken when so much more has arrived, one byte at least."""
        self.wake_bytes = max(1, size_bytes)
        self.sock.setsockopt(
            socket.SOL_SOCKET, socket.SO_RCVLOWAT, self.wake_bytes
        )


@dataclass
class _Attempt:
    """A connection to a receiver that does not stand yet."""

    order: Outgoing
    sock: socket.socket
    calling: bool = False
    retry_at_ns: int = 0
    reason: str = "no answer"


@dataclass
class Connections:
    """Establishes the connections of one plan; owns every socket until
    :meth:`close`.

    Making one opens the sockets in the present network namespace and raises
    OSError where the congestion control cannot be had; :meth:`establish` needs
    no privilege.
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
        """Connect everything; raises AgentFailure naming the peers that are
        missing.
        """
        end_ns = time.monotonic_ns() + round(
            self.plan.connect_timeout_s * 1e9
        )
        self._selector.register(
            self.channel, selectors.EVENT_READ, self.channel.heard
        )
        if self.plan.receives:
            self._listen()
        while self._attempts or self._expected:
            now_ns = time.monotonic_ns()
            if now_ns > end_ns:
                raise AgentFailure(self._missing())
            for attempt in self._attempts:
                if not attempt.calling and attempt.retry_at_ns <= now_ns:
                    self._connect(attempt)
            for key, _ in self._selector.select(_RETRY_S):
                key.data()
        self.sendings.sort(
            key=lambda sending: self.plan.sends.index(sending.order)
        )
        self.receivings.sort(key=lambda receiving: receiving.order.peer)
        self._selector.close()

    def close(self) -> None:
        """Close every socket; data already acknowledged is not affected."""
        attempts = [attempt.sock for attempt in self._attempts]
        sending = [flow.sock for flow in self.sendings]
        receiving = [flow.sock for flow in self.receivings]
        for sock in [
            *attempts,
            *sending,
            *receiving,
            *self._callers,
            self._listener,
        ]:
            _in_order(sock)
            sock.close()
        self._selector.close()

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
        self._listener.listen(max(16, len(self.plan.receives)))
        self._selector.register(
            self._listener, selectors.EVENT_READ, self._accept
        )

    def _accept(self) -> None:
        try:
            sock, _ = self._listener.accept()
        except (
            OSError
        ):  # the caller is gone again; a peer that matters calls once more
            return
        sock.settimeout(0)  # the rest is the listener's
        self._callers[sock] = b""
        self._selector.register(
            sock, selectors.EVENT_READ, lambda: self._greeting(sock)
        )

    def _greeting(self, sock: socket.socket) -> None:
        """Read a peer's hello; unexpected connections are closed."""
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

    def _connect(self, attempt: _Attempt) -> None:
        """Call a receiver; :meth:`_connected` continues."""
        sock = attempt.sock
        code = sock.connect_ex((attempt.order.ip, attempt.order.port))
        if code not in (0, errno.EINPROGRESS):
            self._retry(attempt, code)
            return
        attempt.calling = True
        self._selector.register(
            sock, selectors.EVENT_WRITE, lambda: self._connected(attempt)
        )

    def _connected(self, attempt: _Attempt) -> None:
        """Say hello; :meth:`_welcomed` continues."""
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
                f"{_name(attempt.order)} turned the connection away"
            )
        self._selector.unregister(sock)
        self._attempts.remove(attempt)
        self.sendings.append(Sending(attempt.order, sock))

    def _retry(self, attempt: _Attempt, code: int) -> None:
        """Plan the next call on the same socket, unless the reason is one that
        stays.
        """
        if attempt.calling:
            self._selector.unregister(attempt.sock)
        attempt.calling = False
        if code not in _NOT_YET:
            raise AgentFailure(
                f"cannot connect to {_name(attempt.order)}: {os.strerror(code)}"
            )
        if code == errno.ECONNABORTED:
            return
        attempt.reason = os.strerror(code)
        attempt.retry_at_ns = time.monotonic_ns() + round(_RETRY_S * 1e9)

    def _missing(self) -> str:
        waited = f"within {self.plan.connect_timeout_s:g} s"
        unreached = [
            f"{_name(a.order)} ({a.reason})" for a in self._attempts
        ]
        silent = [f"VM {peer}" for peer in sorted(self._expected)]
        parts = []
        if unreached:
            parts.append(
                f"no connection {waited} to {', '.join(unreached)}"
            )
        if silent:
            parts.append(f"no call {waited} from {', '.join(silent)}")
        return "; ".join(parts)


def _name(order: Outgoing) -> str:
    return f"VM {order.peer} at {order.ip}:{order.port}"


# ----------------------------------------------------------------------------------------- tcp


# Set in every VM's namespace before its sockets are made (names below
# /proc/sys, with dots).
VM_SYSCTLS: tuple[tuple[str, str], ...] = (
    # Full packets whatever the round-trip time. Each packet is answered by an
    # acknowledgement of 66 bytes, which a VM that also sends takes from its own
    # cap: 2.2 % of two segments.
    ("net.ipv4.tcp_tso_rtt_log", "20"),
    # A receiver's window that does not hold a sender back: with the kernel's
    # 128 kB it begins at 42 kB, and stood in the way for 40 ms of the first 300
    # (60 Mbit/s, round trips of 30 ms).
    ("net.ipv4.tcp_rmem", "4096 1048576 6291456"),
    ("net.ipv4.tcp_wmem", "4096 16384 4194304"),
)

# Data the kernel holds without having sent it: enough to keep a gigabit busy
# while an agent waits for its turn on two cores.
NOTSENT_BYTES = 262_144

# Offsets in struct tcp_info (linux/tcp.h): eight one-byte fields, then 32-bit
# ones.
_TCP_INFO_BYTES = 104
_TOTAL_RETRANS_OFFSET = 100
_NAME_BYTES = 16  # TCP_CA_NAME_MAX

# A preempted job's connections stand still, for as long as others have its
# nodes: TCP may not take that for a failure. The backend watches for jobs
# without progress, because it knows which jobs are preempted.
STALL_TIMEOUT_MS = 7 * 24 * 3_600_000

# Nor may the kernel keep for so long, with its network namespace, a connection
# that nobody has any more: a killed agent's end at once (SO_LINGER of 0 s;
# accepted ones inherit the listener's).
_RESET, _FINISH = struct.pack("ii", 1, 0), struct.pack("ii", 0, 0)
LAST_TIMEOUT_MS = 60_000


def _in_order(sock: socket.socket) -> None:
    """Lets the kernel send after the end what is left to send, for
    LAST_TIMEOUT_MS at most.
    """
    with suppress(OSError):
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _FINISH)
        sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, LAST_TIMEOUT_MS
        )


def set_congestion_control(sock: socket.socket, name: str) -> None:
    """Pin ``name`` on the socket and verify it by reading back."""
    try:
        sock.setsockopt(
            socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode()
        )
    except OSError as error:
        # Without CAP_NET_ADMIN only what
        # net.ipv4.tcp_allowed_congestion_control names may be chosen, but what
        # the namespace uses anyway is no choice.
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


def congestion_control(sock: socket.socket) -> str:
    """The name of the congestion control that the socket uses."""
    raw = sock.getsockopt(
        socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES
    )
    return raw.split(b"\0", 1)[0].decode("ascii")


def retransmits(sock: socket.socket) -> int:
    """Segments the connection has sent again so far (TCP_INFO)."""
    info = sock.getsockopt(
        socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES
    )
    return int(struct.unpack_from("=I", info, _TOTAL_RETRANS_OFFSET)[0])
