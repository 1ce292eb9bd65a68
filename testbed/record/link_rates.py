"""``links.csv``: bandwidth reserved and sent on each directed link over time.

A live run's links are sampled while it runs (``link_sample``). A simulated run
sends nothing; there the run is cut into equal intervals and each row holds the
mean reservation over one of them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import IO, Any

from testbed import events
from testbed.foreign_text import csv_text
from testbed.record.job_lives import HeldLinks
from testbed.record.metrics import Tally

MAX_SIMULATED_ROWS = 200_000
MAX_INTERVALS = 200


@dataclass(frozen=True)
class LinkRow:
    """One line of ``links.csv``. ``sent_bps`` None: not measured."""

    time_s: float
    link: str
    directed_link: int
    sent_bps: float | None
    reserved_bps: float
    capacity_bps: int


LINK_COLUMNS = tuple(f.name for f in fields(LinkRow))


def described_links(topology: dict[str, Any]) -> dict[int, tuple[str, int]]:
    """Name (``rack 3 -> aggregation 1``) and capacity of each directed link.

    A damaged folder's links between unknown nodes are left out.
    """
    names = topology["names"]
    links = topology["links"]
    # Not strict: a damaged folder may have lists of unequal lengths.
    columns = zip(
        links["lower"],
        links["upper"],
        links["capacity_bps"],
        links.get("capacity_down_bps", links["capacity_bps"]),
        strict=False,
    )
    described = {}
    for link, (lower, upper, up_bps, down_bps) in enumerate(columns):
        if 0 <= lower < len(names) and 0 <= upper < len(names):
            upward = f"{names[lower]} -> {names[upper]}"
            downward = f"{names[upper]} -> {names[lower]}"
            described[2 * link] = (upward, int(up_bps))
            described[2 * link + 1] = (downward, int(down_bps))
    return described


def sampled_rows(
    topology: dict[str, Any], samples: Iterable[events.LinkSample]
) -> Iterator[LinkRow]:
    """The samples of a live run, in order."""
    known = described_links(topology)
    for event in samples:
        for number, sent, reserved in event.links:
            link = int(number)
            if link in known:
                name, capacity_bps = known[link]
                yield LinkRow(
                    time_s=event.t,
                    link=name,
                    directed_link=link,
                    sent_bps=sent,
                    reserved_bps=reserved,
                    capacity_bps=capacity_bps,
                )


def seconds_in_intervals(
    start_s: float, end_s: float, step_s: float, n: int
) -> Iterator[tuple[int, float]]:
    """Each of ``n`` intervals of ``step_s`` that a stretch of time touches, with
    the seconds of the stretch in it.
    """
    # The end of the run itself would be in one more interval.
    last = min(n - 1, int(end_s / step_s))
    for i in range(int(start_s / step_s), last + 1):
        begin_s = max(start_s, i * step_s)
        yield i, max(0.0, min(end_s, (i + 1) * step_s) - begin_s)


def simulated_rows(
    topology: dict[str, Any], held: Iterable[HeldLinks], span_s: float
) -> Iterator[LinkRow]:
    """Means over equal intervals of every link that was ever used.

    Ordered by time, then by link. At most MAX_INTERVALS intervals, fewer where
    many links would make over MAX_SIMULATED_ROWS rows.
    """
    known = described_links(topology)
    holds = list(held)
    used = {link for hold in holds for link, _ in hold.links}
    links = sorted(used & known.keys())
    if not links or span_s <= 0:
        return
    n = max(1, min(MAX_INTERVALS, MAX_SIMULATED_ROWS // len(links)))
    step_s = span_s / n
    bits = _bits_in_intervals(holds, links, step_s, n)
    for i in range(n):
        for link in links:
            name, capacity_bps = known[link]
            yield LinkRow(
                # The end of its interval, as a sample's time is.
                time_s=(i + 1) * step_s,
                link=name,
                directed_link=link,
                sent_bps=None,
                reserved_bps=bits[link][i] / step_s,
                capacity_bps=capacity_bps,
            )


def _bits_in_intervals(
    holds: Iterable[HeldLinks], links: Iterable[int], step_s: float, n: int
) -> dict[int, list[float]]:
    """Bits that were reserved on each link, by interval."""
    bits = {link: [0.0] * n for link in links}
    for hold in holds:
        # Once for all of a hold's links, which may be hundreds.
        intervals = list(
            seconds_in_intervals(hold.start_s, hold.end_s, step_s, n)
        )
        for link, bps in hold.links:
            sums = bits.get(link)
            if sums is not None:
                for i, inside_s in intervals:
                    sums[i] += inside_s * bps
    return bits


def link_rows(tally: Tally) -> Iterator[LinkRow]:
    """Samples where there are any, means of the reservations otherwise.

    ``tally``: of a whole run, made with ``recording``.
    """
    topology = tally.started.topology
    if tally.samples:
        return sampled_rows(topology, tally.samples)
    lives = tally.lives
    return simulated_rows(topology, lives.held(), lives.now_s)


def write_links_csv(rows: Iterable[LinkRow], file: IO[str]) -> None:
    """A header, then a line per link and time; ``sent_bps`` empty: not measured."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(LINK_COLUMNS)
    for row in rows:
        sent_bps = None if row.sent_bps is None else round(row.sent_bps)
        writer.writerow(
            (
                row.time_s,
                csv_text(row.link),
                row.directed_link,
                sent_bps,
                round(row.reserved_bps),
                row.capacity_bps,
            )
        )
