"""Several pcap streams as one pcapng file, which names where a packet was taken.

Formats: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-03.html and
https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-02.html. All numbers
are in this machine's byte order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from testbed.errors import RunFailed

# pcap. A file's header: magic number, two of the version, time zone, accuracy,
# longest packet, link type.
_FILE_HEADER = struct.Struct("=IHHiIII")
# A packet's header: seconds, microseconds, bytes that follow, bytes of the
# packet.
_RECORD_HEADER = struct.Struct("=IIII")
_PCAP_MICROSECONDS = 0xA1B2C3D4
# pcapng: types of blocks, and values in them.
_SECTION = 0x0A0D0D0A
_INTERFACE = 1
_PACKET = 6
_BYTE_ORDER = 0x1A2B3C4D
_ANY_LENGTH = -1
_NAME_OPTION = 2
_END_OF_OPTIONS = bytes(4)
# The longest that tcpdump writes (MAXIMUM_SNAPLEN).
LONGEST_PACKET_BYTES = 262_144


class MergedPackets:
    """Packets of all streams, in the order in which they come.

    ``names``: where each stream's packets are taken. ``write`` is called with
    whole blocks.
    """

    def __init__(
        self, names: Sequence[str], write: Callable[[bytes], object]
    ) -> None:
        self._names = names
        self._write = write
        # Bytes of each stream that are not a whole header or packet yet.
        self._rest = [b""] * len(names)
        # Numbers of interfaces in the file, by stream, in the order in which
        # the streams began.
        self._interfaces: dict[int, int] = {}

    def take(self, stream: int, data: bytes) -> None:
        """Takes more bytes of a stream. Raises RunFailed if they are no pcap."""
        # What is read from a pipe ends anywhere, within a header too.
        rest = self._rest[stream] + data
        if stream not in self._interfaces:
            if len(rest) < _FILE_HEADER.size:
                self._rest[stream] = rest
                return
            self._begin(stream, rest[: _FILE_HEADER.size])
            rest = rest[_FILE_HEADER.size :]
        while (size := _record_size(rest)) <= len(rest):
            self._write(_packet(self._interfaces[stream], rest[:size]))
            rest = rest[size:]
        self._rest[stream] = rest

    def _begin(self, stream: int, header: bytes) -> None:
        magic, _, _, _, _, longest, link_type = _FILE_HEADER.unpack(header)
        # Other magic numbers stand for another byte order, or nanoseconds.
        if magic != _PCAP_MICROSECONDS:
            raise RunFailed("tcpdump writes no pcap of this machine's")
        # Not before a stream begins: the file stays empty where no tcpdump
        # can capture.
        if not self._interfaces:
            # Of version 1.0.
            section = struct.pack("=IHHq", _BYTE_ORDER, 1, 0, _ANY_LENGTH)
            self._write(_block(_SECTION, section))
        name = self._names[stream].encode()
        body = struct.pack("=HHI", link_type, 0, longest)
        body += struct.pack("=HH", _NAME_OPTION, len(name))
        body += _padded(name)
        body += _END_OF_OPTIONS
        self._write(_block(_INTERFACE, body))
        self._interfaces[stream] = len(self._interfaces)


def _record_size(data: bytes) -> int:
    """Bytes of the first packet and its header; of the header alone while that
    is not whole.
    """
    if len(data) < _RECORD_HEADER.size:
        return _RECORD_HEADER.size
    n_bytes = _RECORD_HEADER.unpack_from(data)[2]
    # A greater number is not a packet's: so many bytes would never come.
    if n_bytes > LONGEST_PACKET_BYTES:
        raise RunFailed(f"tcpdump writes a packet of {n_bytes} bytes")
    return _RECORD_HEADER.size + int(n_bytes)


def _packet(interface: int, record: bytes) -> bytes:
    """An enhanced packet block, whose times are microseconds."""
    header = _RECORD_HEADER.unpack_from(record)
    seconds, microseconds, captured, length = header
    time_us = seconds * 1_000_000 + microseconds
    high = time_us >> 32
    low = time_us & 0xFFFFFFFF
    body = struct.pack("=IIIII", interface, high, low, captured, length)
    body += _padded(record[_RECORD_HEADER.size :])
    return _block(_PACKET, body)


def _block(kind: int, body: bytes) -> bytes:
    # A block is its type, its length, its body, and its length again.
    size = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + size + body + size


def _padded(data: bytes) -> bytes:
    # To a multiple of four bytes.
    return data + bytes(-len(data) % 4)
