"""TCP as the live jobs use it: what is set per namespace, per socket, and what is read back."""

from __future__ import annotations

import socket
import struct

# Set in every VM's namespace before its sockets are made (names below /proc/sys, with dots).
VM_SYSCTLS: tuple[tuple[str, str], ...] = (
    # Full packets whatever the round-trip time. Each packet is answered by an acknowledgement of
    # 66 bytes, which a VM that also sends takes from its own cap: 2.2 % of two segments.
    ("net.ipv4.tcp_tso_rtt_log", "20"),
    # A receiver's window that does not hold a sender back: with the kernel's 128 kB it begins at
    # 42 kB, and stood in the way for 40 ms of the first 300 (60 Mbit/s, round trips of 30 ms):
    # docs/decisions/0235.
    ("net.ipv4.tcp_rmem", "4096 1048576 6291456"),
)

# Data the kernel holds without having sent it: enough to keep a gigabit busy while an agent waits
# for its turn on two cores.
NOTSENT_BYTES = 262_144

# Offsets in struct tcp_info (linux/tcp.h): eight one-byte fields, then 32-bit ones.
_TCP_INFO_BYTES = 104
_TOTAL_RETRANS_OFFSET = 100
_NAME_BYTES = 16  # TCP_CA_NAME_MAX
_MAX_KEEPIDLE_S = 32_767  # MAX_TCP_KEEPIDLE


class CongestionControlError(OSError):
    """The socket does not use the congestion control it was told to use."""


def set_congestion_control(sock: socket.socket, name: str) -> None:
    """Pin ``name`` on the socket and verify it by reading back."""
    try:
        sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, name.encode())
    except OSError as error:
        # Without CAP_NET_ADMIN only what net.ipv4.tcp_allowed_congestion_control names may be
        # chosen, but what the namespace uses anyway is no choice.
        if congestion_control(sock) != name:
            raise CongestionControlError(
                error.errno,
                f"cannot use TCP congestion control {name!r} ({error.strerror}); load its module"
                f" with 'modprobe tcp_{name}'",
            ) from None
    used = congestion_control(sock)
    if used != name:
        raise CongestionControlError(f"TCP congestion control is {used!r} instead of {name!r}")


def congestion_control(sock: socket.socket) -> str:
    """The name of the congestion control that the socket uses."""
    raw = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_CONGESTION, _NAME_BYTES)
    return raw.split(b"\0", 1)[0].decode("ascii")


def set_stall_timeout(sock: socket.socket, stall_timeout_s: float) -> None:
    """Have the kernel break the connection when the peer acknowledges nothing for so long.

    TCP_USER_TIMEOUT covers data on its way, keep-alive probes a silent connection.
    """
    probe_s = min(_MAX_KEEPIDLE_S, max(1, round(stall_timeout_s / 3)))
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, round(stall_timeout_s * 1000))
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, probe_s)
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, probe_s)


def set_notsent_limit(sock: socket.socket, limit_bytes: int) -> None:
    """Bound what the kernel takes ahead of the network, so that progress follows the network."""
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NOTSENT_LOWAT, limit_bytes)


def send_at_once(sock: socket.socket) -> None:
    """Have what an application produces leave as it is produced (TCP_NODELAY).

    By default a chunk's last, short segment waits until the one before has been acknowledged,
    which a receiver may put off for 40 ms.
    """
    sock.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)


def retransmits(sock: socket.socket) -> int:
    """Segments the connection has sent again so far (TCP_INFO)."""
    info = sock.getsockopt(socket.IPPROTO_TCP, socket.TCP_INFO, _TCP_INFO_BYTES)
    if len(info) < _TCP_INFO_BYTES:
        return 0
    return int(struct.unpack_from("=I", info, _TOTAL_RETRANS_OFFSET)[0])
