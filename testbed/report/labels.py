"""Numbers and reasons as people read them."""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

from testbed.units import human_bandwidth, human_duration


def or_dash(text: Callable[[float], str]) -> Callable[[float | None], str]:
    """The function with a dash for None."""
    return lambda value: "–" if value is None else text(value)


ratio_text = or_dash("{:.4f}".format)
bandwidth_text = or_dash(human_bandwidth)


def granted_text(granted_bps: int | None) -> str:
    """A granted bandwidth; a dash where none was reserved."""
    return bandwidth_text(granted_bps or None)


share_text = or_dash(lambda share: f"{share * 100:.1f} %")


@or_dash
def seconds_text(seconds: float) -> str:
    """Seconds with two decimals below 1000 s; hours and minutes above."""
    if seconds == 0:
        return "0 s"
    if abs(seconds) < 1000:
        return f"{seconds:.2f} s"
    return human_duration(seconds)


def capital(text: str) -> str:
    """A text with a capital first letter; the other letters stay."""
    return f"{text[:1].upper()}{text[1:]}"


def listed(names: Sequence[str]) -> str:
    """``a, b and c``; of nothing an empty text."""
    if len(names) < 2:
        return "".join(names)
    return f"{', '.join(names[:-1])} and {names[-1]}"


def reason_text(reason: str) -> str:
    """A policy's reason as a page shows it: ``3 VM slots`` for ``3 slots``."""
    return re.sub(r"(\d|…|not enough) slots\b", r"\1 VM slots", reason)
