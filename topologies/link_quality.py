"""Qualities of links: as Mininet's options, and in sentences."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal
from numbers import Real
from typing import Any

from topologies.datacentre import PLAIN, LinkQuality

MOST_DELAY_S = 10.0
MOST_QUEUE_PACKETS = 10_000
MININET_KEYS = ("delay", "jitter", "loss", "max_queue_size")
"""Options of a link beside its capacity."""
# tc(8), TIMES: a bare number is in microseconds.
_UNIT_S = {
    **dict.fromkeys(("", "us", "usec", "usecs"), Decimal("1e-6")),
    **dict.fromkeys(("ms", "msec", "msecs"), Decimal("1e-3")),
    **dict.fromkeys(("s", "sec", "secs"), Decimal(1)),
    **dict.fromkeys(("ns", "nsec", "nsecs"), Decimal("1e-9")),
}
_TIME = re.compile(r"\s*(\d+(?:\.\d*)?|\.\d+)\s*([a-z]*)\s*")


# -- reading Mininet's options -------------------------------------------------


def is_set(options: Mapping[str, Any], name: str) -> bool:
    """True unless an option is missing, or a usual zero."""
    # To Mininet None is no option, and `delay='0ms'` has no effect.
    return options.get(name) not in (None, "", 0, "0", "0ms")


def quality_of(options: Mapping[str, Any]) -> LinkQuality:
    """The quality that options of one end of a link ask for.

    Raises ValueError with a sentence about the first that cannot be read.
    """
    values: dict[str, Any] = dict.fromkeys(MININET_KEYS, 0)
    for name in MININET_KEYS:
        if is_set(options, name):
            values[name] = options[name]
    return LinkQuality(
        delay_s=_seconds("delay", values["delay"]),
        jitter_s=_seconds("jitter", values["jitter"]),
        loss_share=_share(values["loss"]),
        queue_packets=_packets(values["max_queue_size"]),
    )


def _seconds(name: str, value: Any) -> float:
    """Seconds of a time as tc reads it. Raises ValueError."""
    match = None
    if not isinstance(value, bool):
        match = _TIME.fullmatch(str(value).lower())
    if match is None or match[2] not in _UNIT_S:
        raise ValueError(f"{name}={value!r} is no time: write '5ms'")
    # In decimal, so that equal delays in different units are equal floats.
    duration_s = float(Decimal(match[1]) * _UNIT_S[match[2]])
    if duration_s > MOST_DELAY_S:
        raise ValueError(
            f"{name}={value!r} is more than {MOST_DELAY_S:g} s"
        )
    return duration_s


def _share(value: Any) -> float:
    """Share of a percentage, which is a number or a text. Raises ValueError."""
    percent = value
    if isinstance(value, str):
        try:
            percent = float(value.strip().removesuffix("%"))
        except ValueError:
            percent = None
    is_number = isinstance(percent, Real) and not isinstance(percent, bool)
    if not is_number or not 0 <= float(percent) < 100:
        raise ValueError(
            f"loss={value!r} is no percentage from 0 to below 100: write 1"
        )
    return float(percent) / 100


def _packets(value: Any) -> int:
    text = "" if isinstance(value, bool) else str(value).strip()
    if not text.isdecimal() or int(text) > MOST_QUEUE_PACKETS:
        raise ValueError(
            f"max_queue_size={value!r} is no number of packets from 1 to"
            f" {MOST_QUEUE_PACKETS:,}"
        )
    return int(text)


# -- writing Mininet's options -------------------------------------------------


def mininet_options(quality: LinkQuality) -> dict[str, Any]:
    """Options of the end of a link that sends with this quality."""
    options: dict[str, Any] = {}
    # tc takes a jitter only behind a delay.
    if quality.delay_s or quality.jitter_s:
        options["delay"] = _microseconds(quality.delay_s)
    if quality.jitter_s:
        options["jitter"] = _microseconds(quality.jitter_s)
    if quality.loss_share:
        # Without the last digits, which floats add: 7.000000000000001 %.
        options["loss"] = round(quality.loss_share * 100, 9)
    if quality.queue_packets:
        options["max_queue_size"] = quality.queue_packets
    return options


def _microseconds(duration_s: float) -> str:
    return f"{duration_s * 1e6:.3f}us"


# -- notes ---------------------------------------------------------------------

MOST_NAMED = 3


def quality_notes(qualities: Sequence[LinkQuality]) -> tuple[str, ...]:
    """Sentences about a data centre's links; none if they have no quality.

    ``qualities``: of every directed link.
    """
    # Qualities with the same text are one kind of link.
    counts = Counter(_of_links(qualities))
    counts.pop("", None)
    if not counts:
        return ()
    parts = []
    for text, count in counts.most_common(MOST_NAMED):
        parts.append(f"{count_text(count)} with {text}")
    if len(counts) > MOST_NAMED:
        parts.append(f"other kinds: {len(counts) - MOST_NAMED:,}")
    notes = ["; ".join(parts)]
    if any(quality.needs_netem for quality in qualities):
        notes.append(
            "delay, jitter and loss are the live network's (netem): decisions"
            " and simulated times do not depend on them"
        )
    return tuple(notes)


def _of_links(qualities: Sequence[LinkQuality]) -> Iterable[str]:
    """Each link's quality in words, by direction where the two differ."""
    for up, down in zip(qualities[::2], qualities[1::2], strict=True):
        if up == down:
            yield str(up)
            continue
        ways = []
        for quality, way in ((up, "upward"), (down, "downward")):
            if quality != PLAIN:
                ways.append(f"{quality} {way}")
        yield " and ".join(ways)


def count_text(count: int) -> str:
    """``1 link``, ``2 links``."""
    return f"{count:,} link{'s' if count != 1 else ''}"
