"""From bytes of payload to bits on the wire, and back: the one place where they
are converted.

Reservations and limits count what ``tc`` counts on an Ethernet interface: the
frame with its 14-byte header, without preamble, checksum and gap. A full TCP
segment at MTU 1500 is then

    14 Ethernet + 20 IPv4 + 20 TCP + 12 timestamp option + 1448 payload = 1514
    bytes,

so a rate of B on the wire carries B * 1448/1514 of payload. Job volumes are
payload. Frames that the kernel hands over in one piece (segmentation offload)
are counted by ``tc`` as the segments they will become. Acknowledgements are not
in the fraction: a VM that receives as much as it sends has them in its own cap,
one frame without payload for each packet (:func:`beside_acknowledgements`).
"""

from __future__ import annotations

MTU_BYTES = 1500
ETHERNET_HEADER_BYTES = 14
IPV4_HEADER_BYTES = 20
# With the timestamp option, padded to a multiple of four.
TCP_HEADER_BYTES = 20 + 12

FRAME_BYTES = MTU_BYTES + ETHERNET_HEADER_BYTES
FRAME_HEADER_BYTES = (
    ETHERNET_HEADER_BYTES + IPV4_HEADER_BYTES + TCP_HEADER_BYTES
)
SEGMENT_BYTES = FRAME_BYTES - FRAME_HEADER_BYTES
ACKNOWLEDGEMENT_BYTES = FRAME_HEADER_BYTES


def payload_bytes(wire_bits: float) -> int:
    """Whole bytes of payload that ``wire_bits`` carry in full segments, rounded
    down.
    """
    if wire_bits < 0:
        raise ValueError(
            f"a volume on the wire cannot be negative: {wire_bits} bits"
        )
    # In whole numbers: of a terabyte a product of floats is off by bytes.
    return int(wire_bits) * SEGMENT_BYTES // (8 * FRAME_BYTES)


def beside_acknowledgements(
    size_bytes: int,
    packet_bytes: int,
) -> int:
    """The part of ``size_bytes`` that a VM sends where its acknowledgements
    count, too.

    It receives as much as it sends, and acknowledges each packet of at most
    ``packet_bytes`` of payload.
    """
    packet_wire_bytes = _packet_wire_bytes(packet_bytes)
    both_bytes = packet_wire_bytes + ACKNOWLEDGEMENT_BYTES
    return size_bytes * packet_wire_bytes // both_bytes


def with_acknowledgements(packet_bytes: int) -> float:
    """Bits on the wire of data and acknowledgements, over those of the data.

    Both directions carry as much data. The inverse of
    :func:`beside_acknowledgements`.
    """
    return 1 + ACKNOWLEDGEMENT_BYTES / _packet_wire_bytes(packet_bytes)


def _packet_wire_bytes(packet_bytes: int) -> int:
    segments = max(1, packet_bytes // SEGMENT_BYTES)
    return segments * FRAME_BYTES


def wire_bits(payload_bytes: float) -> float:
    """Bits on the wire of so much payload in full segments."""
    return 8 * payload_bytes * FRAME_BYTES / SEGMENT_BYTES


def payload_rate_bps(wire_rate_bps: int) -> int:
    """The payload rate, in bit/s rounded down, of ``wire_rate_bps`` on the
    wire.
    """
    if wire_rate_bps < 0:
        raise ValueError(
            f"a rate cannot be negative: {wire_rate_bps} bit/s"
        )
    return wire_rate_bps * SEGMENT_BYTES // FRAME_BYTES


def wire_rate_bps(payload_bps: float) -> float:
    """The rate on the wire, in bit/s, that brings ``payload_bps`` in full
    segments.
    """
    return payload_bps * FRAME_BYTES / SEGMENT_BYTES


def ideal_transfer_s(
    size_bytes: int,
    wire_rate_bps: int,
) -> float:
    """Seconds that ``size_bytes`` of payload take at ``wire_rate_bps`` with
    nothing else there.
    """
    if wire_rate_bps <= 0:
        raise ValueError(
            f"a transfer needs a rate above 0 bit/s, not {wire_rate_bps}"
        )
    return size_bytes * 8 * FRAME_BYTES / (wire_rate_bps * SEGMENT_BYTES)
