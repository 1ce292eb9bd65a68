"""Payload and wire: the derivation in numbers; conversions never err upward."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jobs import wire


def wire_bytes(size_bytes: int) -> int:
    """Bytes on the wire of ``size_bytes`` of payload sent in full segments and one last one."""
    segments = -(-size_bytes // wire.SEGMENT_BYTES)
    return size_bytes + segments * wire.FRAME_HEADER_BYTES


def test_a_full_frame_is_1514_bytes_of_which_1448_are_payload() -> None:
    assert (
        wire.FRAME_BYTES,
        wire.SEGMENT_BYTES,
        wire.FRAME_HEADER_BYTES,
    ) == (
        1514,
        1448,
        66,
    )


def test_one_byte_more_than_a_segment_costs_a_second_header() -> None:
    assert wire_bytes(0) == 0
    assert wire_bytes(1) == 67
    assert wire_bytes(1448) == 1514
    assert wire_bytes(1449) == 1514 + 67


def test_a_second_at_100_mbit_per_s() -> None:
    assert (
        wire.payload_bytes(100_000_000) == 11_955_085
    )  # 12.5 MB * 1448/1514, rounded down
    assert wire.payload_rate_bps(100_000_000) == 95_640_686
    assert wire.ideal_transfer_s(1448 * 1000, 1514 * 8 * 1000) == 1.0


@settings(deadline=None)
@given(st.integers(0, 10**16))
def test_the_payload_of_a_volume_fits_it_and_one_segment_more_does_not(
    wire_bits: int,
) -> None:
    size_bytes = wire.payload_bytes(wire_bits)
    whole_segments = size_bytes // wire.SEGMENT_BYTES * wire.SEGMENT_BYTES
    assert 8 * wire_bytes(whole_segments) <= wire_bits
    assert 8 * wire_bytes(size_bytes + wire.SEGMENT_BYTES) > wire_bits


@settings(deadline=None)
@given(st.integers(1, 10**13), st.integers(1000, 10**12))
def test_the_ideal_time_is_volume_over_rate(
    size_bytes: int, wire_rate_bps: int
) -> None:
    ideal_s = wire.ideal_transfer_s(size_bytes, wire_rate_bps)
    assert ideal_s * wire_rate_bps * 1448 / 1514 == pytest.approx(
        8 * size_bytes
    )


@pytest.mark.parametrize(
    "call",
    [
        lambda: wire.payload_bytes(-1),
        lambda: wire.payload_rate_bps(-1),
        lambda: wire.ideal_transfer_s(1, 0),
    ],
)
def test_what_is_impossible_is_refused(call: object) -> None:
    assert callable(call)
    with pytest.raises(ValueError, match=r"-1|0"):
        call()


@settings(deadline=None)
@given(st.integers(1, 10**12), st.integers(1, 10**5))
def test_what_is_left_beside_acknowledgements_makes_the_whole_with_them(
    size_bytes: int, packet_bytes: int
) -> None:
    left = wire.beside_acknowledgements(size_bytes, packet_bytes)
    whole = left * wire.with_acknowledgements(packet_bytes)
    assert size_bytes - 2 <= whole <= size_bytes + 1e-6 * size_bytes
