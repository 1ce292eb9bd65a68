"""Several pcap streams as one pcapng file, which names where a packet passed.

Formats: https://www.ietf.org/archive/id/draft-ietf-opsawg-pcap-03.html and
https://www.ietf.org/archive/id/draft-ietf-opsawg-pcapng-02.html. All numbers
are in this machine's byte order.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence

from testbed.errors import RunFailed

_FILE = struct.Struct("=IHHiIII")
_RECORD = struct.Struct("=IIII")
_PCAP_MICROSECONDS = 0xA1B2C3D4
_SECTION = 0x0A0D0D0A
_INTERFACE = 1
_PACKET = 6
_BYTE_ORDER = 0x1A2B3C4D
_ANY_LENGTH = -1
_NAME_OPTION = 2
_END_OF_OPTIONS = bytes(4)
# tcpdump's own most (MAXIMUM_SNAPLEN).
LONGEST_PACKET_BYTES = 262_144


class MergedPackets:
    """Packets of streams in the order in which they come.

    ``names``: of the streams' points. ``write`` is called with whole blocks.
    """

    def __init__(
        self, names: Sequence[str], write: Callable[[bytes], object]
    ) -> None:
        self._names = names
        self._write = write
        self._rest = [b""] * len(names)
        # Numbers in the file, by streams: in the order of their first bytes.
        self._interfaces: dict[int, int] = {}

    def take(self, stream: int, data: bytes) -> None:
        """Takes more bytes of a stream. Raises RunFailed for what is no pcap."""
        # A pipe's pieces end anywhere, within a header too.
        rest = self._rest[stream] + data
        if stream not in self._interfaces:
            if len(rest) < _FILE.size:
                self._rest[stream] = rest
                return
            self._begin(stream, rest[: _FILE.size])
            rest = rest[_FILE.size :]
        while (size := _record_size(rest)) <= len(rest):
            self._write(_packet(self._interfaces[stream], rest[:size]))
            rest = rest[size:]
        self._rest[stream] = rest

    def _begin(self, stream: int, header: bytes) -> None:
        # Another magic number is another byte order's, or has nanoseconds.
        magic, _, _, _, _, longest, link_type = _FILE.unpack(header)
        if magic != _PCAP_MICROSECONDS:
            raise RunFailed("tcpdump writes no pcap of this machine's")
        # With the first packet to come, so that without any the file is empty.
        if not self._interfaces:
            section = struct.pack("=IHHq", _BYTE_ORDER, 1, 0, _ANY_LENGTH)
            self._write(_block(_SECTION, section))
        name = self._names[stream].encode()
        body = struct.pack("=HHI", link_type, 0, longest)
        body += struct.pack("=HH", _NAME_OPTION, len(name)) + _padded(name)
        self._write(_block(_INTERFACE, body + _END_OF_OPTIONS))
        self._interfaces[stream] = len(self._interfaces)


def _record_size(data: bytes) -> int:
    """Bytes of the first record with its header, as far as that is there."""
    if len(data) < _RECORD.size:
        return _RECORD.size
    n_bytes = _RECORD.unpack_from(data)[2]
    # More, and the stream is out of step: it would be waited for in vain.
    if n_bytes > LONGEST_PACKET_BYTES:
        raise RunFailed(f"tcpdump writes a packet of {n_bytes} bytes")
    return _RECORD.size + int(n_bytes)


def _packet(interface: int, record: bytes) -> bytes:
    """An enhanced packet block, whose times are microseconds."""
    seconds, microseconds, captured, length = _RECORD.unpack_from(record)
    at = seconds * 1_000_000 + microseconds
    body = struct.pack(
        "=IIIII", interface, at >> 32, at & 0xFFFFFFFF, captured, length
    )
    return _block(_PACKET, body + _padded(record[_RECORD.size :]))


def _block(kind: int, body: bytes) -> bytes:
    # Its length stands before and after it.
    size = struct.pack("=I", len(body) + 12)
    return struct.pack("=I", kind) + size + body + size


def _padded(data: bytes) -> bytes:
    return data + bytes(-len(data) % 4)
