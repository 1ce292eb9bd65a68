"""Quantities: what is read, what is refused and with which words, and that writing reads back."""

from __future__ import annotations

from contextlib import suppress
from decimal import Decimal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from testbed import units
from testbed.units import UnitError


@pytest.mark.parametrize(
    ("text", "bps"),
    [
        ("500 Mbit/s", 500_000_000),
        ("500Mbit/s", 500_000_000),
        ("1 Gbit/s", 10**9),
        ("0.1 Gbit/s", 100_000_000),
        ("1.2 Gbit/s", 1_200_000_000),
        ("0.3 kbit/s", 300),
        ("800 kbit/s", 800_000),
        ("7 bit/s", 7),
        ("0 bit/s", 0),
        ("1000 Tbit/s", 10**15),
        ("0.000000001 Gbit/s", 1),
    ],
)
def test_bandwidths_are_exact(text: str, bps: int) -> None:
    assert units.parse_bandwidth(text) == bps


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("6 s", 6.0),
        ("250 ms", 0.25),
        ("3 us", 3e-6),
        ("1 h", 3600.0),
        ("30 min", 1800.0),
        ("2 d", 172800.0),
        ("0 s", 0.0),
        ("1.5 h", 5400.0),
    ],
)
def test_durations(text: str, seconds: float) -> None:
    assert units.parse_duration(text) == seconds


@pytest.mark.parametrize(
    ("text", "size"),
    [
        ("64 MB", 64_000_000),
        ("64 MiB", 67_108_864),
        ("1 B", 1),
        ("1.5 kB", 1500),
    ],
)
def test_sizes(text: str, size: int) -> None:
    assert units.parse_size(text) == size


@pytest.mark.parametrize(
    ("value", "share"),
    [
        ("12 %", 0.12),
        ("12%", 0.12),
        (0.12, 0.12),
        (1, 1.0),
        ("0.5 %", 0.005),
        ("250 %", 2.5),
    ],
)
def test_shares(value: object, share: float) -> None:
    assert units.parse_share(value) == share


@pytest.mark.parametrize(
    ("value", "per_hour"),
    [("160 /h", 160.0), (160, 160.0), ("2 /min", 120.0), ("1 /s", 3600.0)],
)
def test_rates_per_hour(value: object, per_hour: float) -> None:
    assert units.parse_per_hour(value) == per_hour


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            500,
            "500 is a bare number: write 500 Mbit/s (or bit/s, kbit/s, Gbit/s, Tbit/s)",
        ),
        (
            0.5,
            "0.5 is a bare number: write 0.5 Mbit/s (or bit/s, kbit/s, Gbit/s, Tbit/s)",
        ),
        (1e-7, "0.0000001 is a bare number: write 0.0000001 Mbit/s"),
        ("500", "500 is a bare number: write 500 Mbit/s"),
        (-5, "-5 is negative, and has no unit"),
        (True, "a bandwidth such as 5 Mbit/s is wanted, not true"),
        ([1], "a bandwidth such as 5 Mbit/s is wanted, not a list"),
        (float("nan"), "a bandwidth is finite, not nan"),
        (
            "500 Mbps",
            "unknown unit 'Mbps' of bandwidth (did you mean 500 Mbit/s?)",
        ),
        (
            "500 mbit/s",
            "unknown unit 'mbit/s' of bandwidth (did you mean 500 Mbit/s?)",
        ),
        ("1 G", "unknown unit 'G' of bandwidth (did you mean 1 Gbit/s?)"),
        (
            "8 MB/s",
            "'8 MB/s' counts bytes: bandwidths are in bits, write 64 Mbit/s",
        ),
        (
            "0.75 kB/s",
            "'0.75 kB/s' counts bytes: bandwidths are in bits, write 6 kbit/s",
        ),
        (
            "3 GBps",
            "'3 GBps' counts bytes: bandwidths are in bits, write 24 Gbit/s",
        ),
        (
            "2 MiB/s",
            "'2 MiB/s' counts bytes: bandwidths are in bits, write 16777216 bit/s",
        ),
        *(
            (
                f"12.5 {unit}",
                f"'12.5 {unit}' counts bytes: bandwidths are in bits, write 100 Mbit/s",
            )
            for unit in ("MB", "mB/s", "Mbyte/s", "MB/sec", "MBytes")
        ),
        (
            "3 Mibit/s",
            "unknown unit 'Mibit/s' of bandwidth (write 3145728 bit/s)",
        ),
        (
            "7 Mbti/s",
            "unknown unit 'Mbti/s' of bandwidth (did you mean 7 Mbit/s?)",
        ),
        (
            "8 furlongs",
            "unknown unit 'furlongs' of bandwidth (write one of bit/s, kbit/s, Mbit/s,",
        ),
        ("-5 Mbit/s", "-5 Mbit/s is negative"),
        (
            "1,000 Mbit/s",
            "'1,000 Mbit/s' is not a bandwidth: write the number without separators",
        ),
        (
            "1 000 Mbit/s",
            "'1 000 Mbit/s' is not a bandwidth: write the number without separators",
        ),
        (
            "1e3 Mbit/s",
            "'1e3 Mbit/s' is not a bandwidth: write the number without an exponent",
        ),
        (
            "0,5 Gbit/s",
            "'0,5 Gbit/s' is not a bandwidth: write a point in place of the comma, 0.5 Gbit/s",
        ),
        ("1 Gb", "unknown unit 'Gb' of bandwidth (did you mean 1 Gbit/s?)"),
        (
            "Mbit/s",
            "'Mbit/s' is not a bandwidth: write a number and a unit, as 5 Mbit/s",
        ),
        ("", "'' is not a bandwidth"),
        (" 5 Mbit/s", "' 5 Mbit/s' is not a bandwidth"),
        ("5  Mbit/s", "'5  Mbit/s' has too many blanks: write 5 Mbit/s"),
        (
            "5 Mbit/s\n",
            "unknown unit 'Mbit/s\\n' of bandwidth (did you mean 5 Mbit/s?)",
        ),
        ("0.5 bit/s", "0.5 bit/s is not a whole number of bit/s"),
        (
            "1001 Tbit/s",
            "1001 Tbit/s is more than any bandwidth here (at most 1000 Tbit/s)",
        ),
        (
            "9" * 50 + " bit/s",
            "'99999999999999999999...' is too long for a quantity",
        ),
        ("٣ Mbit/s", "'٣ Mbit/s' is not a bandwidth"),
    ],
)
def test_a_refused_bandwidth_comes_with_a_hint(
    value: object, message: str
) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_bandwidth(value)
    assert str(caught.value).startswith(message)


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ("6 sec", "unknown unit 'sec' of time (did you mean 6 s?)"),
        ("5 m", "unknown unit 'm' of time (did you mean 5 min?)"),
        ("5 H", "unknown unit 'H' of time (did you mean 5 h?)"),
        ("5 ns", "unknown unit 'ns' of time (write 0.005 us)"),
        ("3 weeks", "unknown unit 'weeks' of time (write 21 d)"),
        ("5 µs", "unknown unit 'µs' of time (did you mean 5 us?)"),
        ("1h30", "'1h30' is not a time: write one number and one unit"),
        (
            "1 h 30 min",
            "'1 h 30 min' is not a time: write one number and one unit",
        ),
        (
            "200000 d",
            "200000 d is more than any time here (at most 36500 d)",
        ),
        (6, "6 is a bare number: write 6 s (or us, ms, min, h, d)"),
    ],
)
def test_a_refused_duration_comes_with_a_hint(
    value: object, message: str
) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_duration(value)
    assert str(caught.value) == message


@pytest.mark.parametrize(
    ("value", "message"),
    [
        (
            "12 percent",
            "'12 percent' is not a share: write it as 12 % or as 0.12",
        ),
        ("0.12", "'0.12' is a text: remove the quotes, or write 12 %"),
        ("-1 %", "-1 % is negative"),
        (-0.5, "-0.5 is negative"),
        (float("inf"), "a share is a finite number, not inf"),
        ({}, "a share such as 12 % or 0.12 is wanted, not a mapping"),
    ],
)
def test_a_refused_share_comes_with_a_hint(
    value: object, message: str
) -> None:
    with pytest.raises(UnitError) as caught:
        units.parse_share(value)
    assert str(caught.value) == message


def test_a_fractional_byte_is_refused() -> None:
    with pytest.raises(UnitError, match="not a whole number of bytes"):
        units.parse_size("0.5 B")


@given(st.integers(0, units.MAX_BANDWIDTH_BPS))
def test_written_bandwidths_read_back(bps: int) -> None:
    assert units.parse_bandwidth(units.format_bandwidth(bps)) == bps


@given(
    st.floats(0, units.MAX_DURATION_S, allow_subnormal=False).filter(
        lambda s: s == 0 or s > 1e-9
    )
)
def test_written_durations_read_back(seconds: float) -> None:
    assert units.parse_duration(units.format_duration(seconds)) == seconds


@given(st.integers(0, 10**7).map(lambda n: n / 10**7))
def test_written_shares_read_back(share: float) -> None:
    assert units.parse_share(units.format_share(share)) == share


@given(
    st.decimals(0, 1000, places=6, allow_nan=False),
    st.sampled_from(list(units.BANDWIDTH.units.items())),
)
def test_bandwidth_is_the_decimal_product(
    number: Decimal, unit: tuple[str, Decimal]
) -> None:
    name, factor = unit
    exact = number * factor
    if (
        exact == exact.to_integral_value()
        and exact <= units.MAX_BANDWIDTH_BPS
    ):
        assert units.parse_bandwidth(f"{number:f} {name}") == int(exact)
    else:
        with pytest.raises(UnitError):
            units.parse_bandwidth(f"{number:f} {name}")


@given(st.text(max_size=40))
def test_any_text_is_read_or_refused(text: str) -> None:
    for parse in (
        units.parse_bandwidth,
        units.parse_duration,
        units.parse_size,
        units.parse_share,
    ):
        with suppress(UnitError):
            assert parse(text) >= 0


@pytest.mark.parametrize(
    ("shown", "expected"),
    [
        (units.format_bandwidth(750_000_000), "750 Mbit/s"),
        (units.format_bandwidth(1_500_000_000), "1.5 Gbit/s"),
        (units.format_bandwidth(1_234_567), "1234567 bit/s"),
        (units.format_bandwidth(0), "0 bit/s"),
        (units.format_duration(6), "6 s"),
        (units.format_duration(0.0000001), "0.0000001 s"),
        (units.format_share(0.07), "7 %"),
        (units.human_bandwidth(412_345_678), "412 Mbit/s"),
        (units.human_bandwidth(999_600_000), "1.00 Gbit/s"),
        (units.human_bandwidth(1e9), "1 Gbit/s"),
        (units.human_bandwidth(0), "0 bit/s"),
        (units.human_bandwidth(1_234_000), "1.23 Mbit/s"),
        (units.human_duration(0.25), "250 ms"),
        (units.human_duration(0), "0 s"),
        (units.human_duration(0.00012), "0.12 ms"),
        (units.human_duration(0.0094), "9.4 ms"),
        (units.human_duration(0.0096), "10 ms"),
        (units.human_duration(0.9996), "1.00 s"),
        (units.human_duration(6.014), "6.01 s"),
        (units.human_duration(72), "72 s"),
        (units.human_duration(100), "1 min 40 s"),
        (units.human_duration(3599.7), "1 h 00 min"),
        (units.human_duration(7500), "2 h 05 min"),
        (units.human_duration(86399.9), "1 d 00 h"),
        (units.human_duration(-3), "-3.00 s"),
        (units.human_share(0.1234), "12.3 %"),
    ],
)
def test_how_quantities_are_shown(shown: str, expected: str) -> None:
    assert shown == expected


def test_a_size_in_bits_is_converted_not_renamed() -> None:
    for text in ("4 Gbit", "4 Gb"):
        with pytest.raises(
            UnitError, match=f"^'{text}' counts bits: .*write 500 MB"
        ):
            units.parse_size(text)


@given(
    st.sampled_from((units.BANDWIDTH, units.DURATION, units.SIZE)),
    st.data(),
)
def test_a_converted_quantity_is_the_same(
    dimension: units.Dimension, data: st.DataObject
) -> None:
    unit = data.draw(st.sampled_from(sorted(dimension.foreign)))
    with pytest.raises(UnitError) as caught:
        units._parse(dimension, f"1 {unit}")
    meant = str(caught.value).rpartition("write ")[2].rstrip(")")
    assert units._parse(dimension, meant) == dimension.foreign[unit]
