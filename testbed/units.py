"""Quantities as people write them, and back: ``500 Mbit/s``, ``6 s``, ``64
MiB``, ``12 %``.

Strings with units exist only in files and on screens; everything else carries
plain numbers whose names say the unit. Arithmetic is decimal, so ``0.1 Gbit/s``
is exactly 100,000,000 bit/s.

``parse_*`` accept exactly what their pattern says; :class:`UnitError` says what
to write in place of the rest. ``format_*`` write a quantity that parses back to
the same value. ``human_*`` round for screens.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from decimal import Decimal
from difflib import get_close_matches
from itertools import product
from typing import Final, TypeGuard

MAX_BANDWIDTH_BPS: Final = 10**15
MAX_DURATION_S: Final = 100 * 365 * 86400
MAX_SIZE_BYTES: Final = 10**18

_NUMBER = r"[0-9]+(?:\.[0-9]+)?"
_LONGEST = 30
"""Characters of a quantity: none needs more."""


class UnitError(ValueError):
    """A quantity that cannot be read; the message says what is accepted."""


@dataclass(frozen=True)
class Dimension:
    """A kind of quantity. ``units``: their sizes in the base unit.

    ``foreign``: units that are not accepted, and that a message converts.
    """

    name: str
    units: Mapping[str, Decimal]
    example_unit: str
    synonyms: Mapping[str, str]
    maximum: int
    foreign: Mapping[str, Decimal]

    @property
    def pattern(self) -> str:
        """The regular expression of everything that is accepted."""
        units = "|".join(map(re.escape, self.units))
        return rf"^{_NUMBER} ?(?:{units})$"


def number_of(count: int, noun: str, several: str = "") -> str:
    """``1 link``, ``2 links``; ``several``: the plural, where it adds no ``s``."""
    if count == 1:
        return f"{count:,} {noun}"
    return f"{count:,} {several or noun + 's'}"


def _powers(base: int, *names: str, first: int = 0) -> dict[str, Decimal]:
    """Powers of a base by the names of units, from exponent ``first`` on."""
    return {
        name: Decimal(base) ** exponent
        for exponent, name in enumerate(names, first)
    }


def _bytes_per_s() -> Mapping[str, Decimal]:
    """Spellings of bytes per second, in bit/s. The time may be left out."""
    known = {}
    spellings = product(
        enumerate(("", *"kmgt")),
        ("B", "byte", "bytes", "Byte", "Bytes"),
        ("/s", "ps", "/sec", ""),
    )
    for (exponent, letter), noun, per in spellings:
        for prefix in (letter, letter.upper()):
            known[f"{prefix}{noun}{per}"] = Decimal(8 * 1000**exponent)
            if letter:
                binary = Decimal(8 * 1024**exponent)
                known[f"{prefix}i{noun}{per}"] = binary
    return known


def _binary_bits(*tails: str) -> Mapping[str, Decimal]:
    """Bits counted in powers of 1024, in bits."""
    powers = _powers(1024, "Ki", "Mi", "Gi", "Ti", first=1)
    return {
        f"{prefix}{tail}": factor
        for prefix, factor in powers.items()
        for tail in tails
    }


BANDWIDTH: Final = Dimension(
    name="bandwidth",
    units=_powers(1000, "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "Tbit/s"),
    example_unit="Mbit/s",
    synonyms={
        **{p.lower(): f"{p}bit/s" for p in "kMGT"},
        **{
            f"{p.lower()}{tail}": f"{p}bit/s"
            for p in ("", *"kMGT")
            for tail in ("bps", "b/s", "bits/s", "bit", "b")
        },
    },
    maximum=MAX_BANDWIDTH_BPS,
    foreign={
        **_bytes_per_s(),
        **_binary_bits("bit/s", "bps", "b/s"),
        "Pbit/s": Decimal(10) ** 15,
    },
)

DURATION: Final = Dimension(
    name="time",
    units={
        "us": Decimal("0.000001"),
        "ms": Decimal("0.001"),
        "s": Decimal(1),
        "min": Decimal(60),
        "h": Decimal(3600),
        "d": Decimal(86400),
    },
    example_unit="s",
    synonyms={
        **dict.fromkeys(("sec", "secs", "second", "seconds"), "s"),
        **dict.fromkeys(("m", "mins", "minute", "minutes"), "min"),
        **dict.fromkeys(("hr", "hrs", "hour", "hours"), "h"),
        **dict.fromkeys(("day", "days"), "d"),
        **dict.fromkeys(("msec", "millis", "milliseconds"), "ms"),
        **dict.fromkeys(("µs", "μs", "usec"), "us"),
    },
    maximum=MAX_DURATION_S,
    foreign={
        "ns": Decimal("1e-9"),
        **dict.fromkeys(("w", "week", "weeks"), Decimal(7 * 86400)),
        **dict.fromkeys(("y", "year", "years"), Decimal(365 * 86400)),
    },
)

SIZE: Final = Dimension(
    name="size",
    units={
        **_powers(1000, "B", "kB", "MB", "GB", "TB"),
        **_powers(1024, "KiB", "MiB", "GiB", "TiB", first=1),
    },
    example_unit="MB",
    synonyms={
        **dict.fromkeys(("byte", "bytes"), "B"),
        **{p.lower(): f"{p}B" for p in "kMGT"},
        **{f"{p.lower()}b": f"{p}B" for p in "kMGT"},
        **{f"{p.lower()}ib": f"{p.upper()}iB" for p in "kMGT"},
    },
    maximum=MAX_SIZE_BYTES,
    foreign={
        **{
            f"{prefix}{tail}": factor / 8
            for prefix, factor in _powers(1000, "", *"kMGT").items()
            for tail in ("bit", "bits")
        },
        # In lower case, kb and mb, they are likelier a wrong kB and MB.
        "Mb": Decimal(10) ** 6 / 8,
        "Gb": Decimal(10) ** 9 / 8,
        "PB": Decimal(10) ** 15,
        "PiB": Decimal(1024) ** 5,
    },
)

PER_HOUR: Final = Dimension(
    name="rate",
    units={
        "/h": Decimal(1),
        "/min": Decimal(60),
        "/s": Decimal(3600),
        "/d": 1 / Decimal(24),
    },
    example_unit="/h",
    synonyms={
        **dict.fromkeys(("per hour", "per h", "/hour", "/hr"), "/h"),
        **dict.fromkeys(("per minute", "per min", "/minute"), "/min"),
        **dict.fromkeys(("per second", "per s", "/second"), "/s"),
        **dict.fromkeys(("per day", "per d", "/day"), "/d"),
    },
    maximum=10**9,
    foreign={},
)

SHARE_PATTERN: Final = rf"^{_NUMBER} ?%$"


def parse_bandwidth(value: object) -> int:
    """Bit/s from ``500 Mbit/s``; a whole number of bit/s, exactly."""
    return _whole(_parse(BANDWIDTH, value), value, "bit/s")


def parse_duration(value: object) -> float:
    """Seconds from ``6 s``, ``250 ms``, ``30 min``, ``1 h`` or ``2 d``."""
    return float(_parse(DURATION, value))


def parse_size(value: object) -> int:
    """Bytes from ``64 MB`` (1000s) or ``64 MiB`` (1024s)."""
    return _whole(_parse(SIZE, value), value, "bytes")


def parse_per_hour(value: object) -> float:
    """Events per hour from ``160 /h`` or ``2 /min``; a bare number already
    counts per hour.
    """
    if _is_number(value):
        return _plain(value, "a rate per hour")
    return float(_parse(PER_HOUR, value))


def parse_share(value: object) -> float:
    """A ratio from ``12 %`` or from the bare number 0.12; it may exceed 1."""
    if _is_number(value):
        return _plain(value, "a share")
    if not isinstance(value, str):
        raise UnitError(
            f"a share such as 12 % or 0.12 is wanted, not {_shown(value)}"
        )
    text = _short(value)
    if re.fullmatch(SHARE_PATTERN, text):
        return float(Decimal(text.removesuffix("%").rstrip()) / 100)
    _refuse_negative(text)
    if re.fullmatch(_NUMBER, text):
        percent = (Decimal(text) * 100).normalize()
        raise UnitError(
            f"{text!r} is a text: remove the quotes, or write {percent:f} %"
        )
    raise UnitError(f"{text!r} is not a share: write it as 12 % or as 0.12")


def quantity(text: str) -> tuple[str, str, float] | None:
    """A quantity's kind, its unit and its amount in the base unit of its kind
    (s for times, 1 for shares); None for another text.

    Raises UnitError for one that is too large or too long.
    """
    if re.fullmatch(SHARE_PATTERN, text):
        return "share", "%", parse_share(text)
    for dimension in (BANDWIDTH, DURATION, SIZE, PER_HOUR):
        if re.fullmatch(dimension.pattern, text):
            unit = text.lstrip("0123456789.").strip()
            return dimension.name, unit, float(_parse(dimension, text))
    return None


def _is_number(value: object) -> TypeGuard[int | float]:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _whole(amount: Decimal, value: object, noun: str) -> int:
    if amount != amount.to_integral_value():
        raise UnitError(f"{value} is not a whole number of {noun}")
    return int(amount)


def _plain(value: float, noun: str) -> float:
    if not math.isfinite(value):
        raise UnitError(f"{noun} is a finite number, not {value}")
    if value < 0:
        raise UnitError(f"{value} is negative")
    return float(value)


def _parse(dimension: Dimension, value: object) -> Decimal:
    """The value in the dimension's base unit."""
    if _is_number(value):
        if isinstance(value, float) and not math.isfinite(value):
            raise UnitError(f"a {dimension.name} is finite, not {value}")
        raise _bare(dimension, _number_text(Decimal(repr(value))))
    if not isinstance(value, str):
        raise UnitError(
            f"a {dimension.name} such as 5 {dimension.example_unit} is wanted, not {_shown(value)}"
        )
    text = _short(value)
    _refuse_negative(text)
    match = re.fullmatch(rf"({_NUMBER})( *)(.*)", text, re.DOTALL)
    if match is None:
        raise _unreadable(dimension, text)
    number, blanks, unit = match.groups()
    if unit == "":
        raise _bare(dimension, number)
    if unit not in dimension.units:
        raise _unknown_unit(dimension, text, number, unit)
    if len(blanks) > 1:
        raise UnitError(
            f"{text!r} has too many blanks: write {number} {unit}"
        )
    amount = Decimal(number) * dimension.units[unit]
    if amount > dimension.maximum:
        raise UnitError(
            f"{text} is more than any {dimension.name} here ({_limit(dimension)})"
        )
    return amount


def _limit(dimension: Dimension) -> str:
    unit, factor = max(dimension.units.items(), key=lambda item: item[1])
    return f"at most {_number_text(Decimal(dimension.maximum) / factor)} {unit}"


def _short(text: str) -> str:
    if len(text) > _LONGEST:
        raise UnitError(f"{text[:20] + '...'!r} is too long for a quantity")
    return text


def _refuse_negative(text: str) -> None:
    if re.match(r"[-−]\s*[0-9.]", text):
        raise UnitError(f"{text} is negative")


def _bare(dimension: Dimension, number: str) -> UnitError:
    if number.startswith("-"):
        return UnitError(f"{number} is negative, and has no unit")
    return UnitError(
        f"{number} is a bare number: write {number} {dimension.example_unit}"
        f" (or {', '.join(u for u in dimension.units if u != dimension.example_unit)})"
    )


def _unreadable(dimension: Dimension, text: str) -> UnitError:
    hint = f"write a number and a unit, as 5 {dimension.example_unit}"
    if re.match(r"[0-9][0-9,_' ]*[,_' ][0-9]", text):
        hint = _without_comma(text) or "write the number without separators"
    return UnitError(f"{text!r} is not a {dimension.name}: {hint}")


def _without_comma(text: str) -> str:
    """A hint for a decimal comma; empty where it may separate thousands."""
    decimal = re.fullmatch(r"([0-9]+),([0-9]+)( ?\D*)", text)
    if decimal is None or len(decimal[2]) == 3:
        return ""
    number = f"{decimal[1]}.{decimal[2]}{decimal[3]}"
    return f"write a point in place of the comma, {number}"


def _unknown_unit(
    dimension: Dimension, text: str, number: str, unit: str
) -> UnitError:
    if re.match(r"[,_'. ]*[0-9]", unit) or unit[0] in ",.'_":
        return _unreadable(dimension, text)
    if re.search("[0-9]", unit):
        hint = "write one number and one unit"
        if re.match(r"[eE][+-]?[0-9]", unit):
            hint = "write the number without an exponent"
        return UnitError(f"{text!r} is not a {dimension.name}: {hint}")
    if unit in dimension.foreign:
        return _converted(dimension, text, Decimal(number), unit)
    lowered = unit.lower()
    by_case = {name.lower(): name for name in dimension.units}
    close = get_close_matches(unit, list(dimension.units), n=1, cutoff=0.6)
    # Another first letter is another power: ns is no misspelt s.
    near = close and close[0][0].lower() == lowered[0]
    guess = (
        by_case.get(lowered)
        or dimension.synonyms.get(lowered)
        or (close[0] if near else None)
    )
    if guess:
        hint = f"did you mean {number} {guess}?"
    else:
        hint = f"write one of {', '.join(dimension.units)}"
    return UnitError(f"unknown unit {unit!r} of {dimension.name} ({hint})")


def _converted(
    dimension: Dimension, text: str, number: Decimal, unit: str
) -> UnitError:
    """A quantity in a unit that is not accepted, with the same in one that is."""
    amount = number * dimension.foreign[unit]
    same = f"write {_shortest(dimension, amount)}"
    if dimension is BANDWIDTH and re.search("B|byte", unit):
        return UnitError(
            f"{text!r} counts bytes: bandwidths are in bits, {same}"
        )
    if dimension is SIZE and "b" in unit:
        return UnitError(
            f"{text!r} counts bits: sizes are in bytes, {same}"
        )
    return UnitError(f"unknown unit {unit!r} of {dimension.name} ({same})")


def _shown(value: object) -> str:
    """The kind of a value that is no quantity."""
    if isinstance(value, bool):
        if value:
            return "true"
        return "false"
    if isinstance(value, list):
        return "a list"
    return "a mapping"


# ------------------------------------------------------------------------- writing them


def _number_text(number: Decimal) -> str:
    """Plain decimal digits, without an exponent and without trailing zeros."""
    text = f"{number:f}"
    if "." in text:
        return text.rstrip("0").rstrip(".")
    return text


def format_bandwidth(bps: int) -> str:
    """``750 Mbit/s``: exact, in the largest unit in which the number stays short."""
    return _shortest(BANDWIDTH, Decimal(bps))


def _shortest(dimension: Dimension, amount: Decimal) -> str:
    """The amount in the largest unit in which its number stays short, exactly."""
    text = ""
    unit = ""
    for name, factor in dimension.units.items():
        scaled = amount / factor
        shown = _number_text(scaled)
        if not unit or (abs(scaled) >= 1 and len(shown) <= len(text)):
            text = shown
            unit = name
    return f"{text} {unit}"


def format_duration(seconds: float) -> str:
    """``6 s``, ``0.25 s``: always in seconds, exactly."""
    return f"{_number_text(Decimal(repr(float(seconds))))} s"


def format_share(share: float) -> str:
    """``12 %``, exactly."""
    return f"{_number_text(Decimal(repr(float(share))) * 100)} %"


def human_bandwidth(bps: float) -> str:
    """``412 Mbit/s``: three or four significant digits."""
    scaled = bps
    unit = "bit/s"
    for name, factor in BANDWIDTH.units.items():
        if abs(scaled) >= 999.5:
            scaled = bps / float(factor)
            unit = name
    if scaled == int(scaled) and abs(scaled) < 1000:
        return f"{int(scaled)} {unit}"
    digits = 2 - math.floor(math.log10(abs(scaled)))
    return f"{scaled:.{min(max(digits, 0), 2)}f} {unit}"


def human_capacity(up_bps: float, down_bps: float) -> str:
    """``50 Mbit/s``, or ``50 Mbit/s up, 100 Mbit/s down``."""
    up_text = human_bandwidth(up_bps)
    if up_bps == down_bps:
        return up_text
    return f"{up_text} up, {human_bandwidth(down_bps)} down"


def human_duration(seconds: float) -> str:
    """``250 ms``, ``6.01 s``, ``1 min 12 s``, ``2 h 05 min``, ``3 d 04 h``."""
    if seconds < 0:
        return f"-{human_duration(-seconds)}"
    if seconds < 0.9995:
        return _milliseconds(seconds)
    if seconds < 99.95:
        return f"{seconds:.3g} s" if seconds >= 10 else f"{seconds:.2f} s"
    whole = round(seconds)
    if whole < 3600:
        return f"{whole // 60} min {whole % 60:02d} s"
    minutes = round(seconds / 60)
    if minutes < 24 * 60:
        return f"{minutes // 60} h {minutes % 60:02d} min"
    hours = round(seconds / 3600)
    return f"{hours // 24} d {hours % 24:02d} h"


def _milliseconds(seconds: float) -> str:
    """``0.12 ms``, ``250 ms``; nothing is ``0 s``."""
    if seconds == 0:
        return "0 s"
    # From here on two digits would be fewer than whole milliseconds have.
    if seconds < 0.0095:
        return f"{seconds * 1000:.2g} ms"
    return f"{seconds * 1000:.0f} ms"


def human_share(share: float) -> str:
    """``12.3 %``."""
    return f"{share * 100:.3g} %"


def with_tolerance_s(at_s: float) -> float:
    """The latest time that counts as ``at_s`` (at least 0), in seconds: sums of
    floats differ in their last digits.
    """
    return at_s + 1e-9 + 1e-14 * at_s
