"""``links.csv`` against the samples, or against what running jobs held."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from testbed import events
from testbed.results.audit.findings import Finding
from testbed.results.audit.history import History
from testbed.results.audit.holding import occupied
from testbed.results.audit.world import World
from testbed.results.folder import LINKS

COLUMNS = ["time_s", "link", "directed_link", "sent_bps", "reserved_bps", "capacity_bps"]
MOST_ROWS, MOST_INTERVALS = 200_000, 200
"""How finely the means of a run without samples are cut (docs/run-folder.md)."""


def has_links_csv(history: History) -> str | None:
    return None if (history.folder / LINKS).is_file() else f"the run never wrote {LINKS}"


@dataclass(frozen=True)
class _Row:
    """``sent_bps`` None: nobody measured. Both rates are written as whole numbers."""

    time_s: float
    directed: int
    sent_bps: float | None
    reserved_bps: float


def links_csv(history: History) -> Iterator[Finding]:
    """Row for row what was sampled; without samples the means of what was reserved."""
    sampled = next(history.each(events.LinkSample), None) is not None
    named = _named(history.world)
    due = _sampled(history) if sampled else _means(history)
    try:
        with (history.folder / LINKS).open(encoding="utf-8", newline="") as file:
            reader = csv.reader(file)
            header = next(reader, [])
            if header != COLUMNS:
                yield Finding(LINKS, 1, f"the columns are {header}, not {COLUMNS}")
                return
            for cells, row in zip_longest(reader, due):
                if cells is None or row is None:
                    wrong = "a row is missing" if cells is None else "is a row too many"
                    yield Finding(LINKS, reader.line_num, wrong)
                    return
                if wrong := _wrong(named, cells, row):
                    yield Finding(LINKS, reader.line_num, wrong)
    except (csv.Error, UnicodeDecodeError) as error:
        yield Finding(LINKS, None, f"damaged: {error}")


def _named(world: World) -> list[tuple[str, str, str]]:
    """The cells that tell which directed link it is, and what it carries."""
    return [
        (world.link(directed), str(directed), str(world.capacity_bps[directed // 2]))
        for directed in range(world.n_directed)
    ]


def _wrong(named: Sequence[tuple[str, str, str]], cells: Sequence[str], row: _Row) -> str:
    """What of a line is not as it is due; empty where all is."""
    if not 0 <= row.directed < len(named):
        return f"directed link {row.directed} does not exist"
    if len(cells) != len(COLUMNS):
        return "has not one cell a column"
    time_s, link, directed, sent, reserved, capacity = cells
    measured = sent == "" if row.sent_bps is None else _about(sent, row.sent_bps, 0.5)
    if not measured:
        return f"sent_bps is {sent!r}, by the events {row.sent_bps}"
    if not _about(reserved, row.reserved_bps, 0.5):
        return f"reserved_bps is {reserved!r}, by the events {row.reserved_bps}"
    if not _about(time_s, row.time_s, 0.0):
        return f"time_s is {time_s!r}, by the events {row.time_s}"
    due = named[row.directed]
    given = (link, directed, capacity)
    return "" if given == due else f"is of {given} (link, number, capacity), by the events of {due}"


def _about(cell: str, value: float, rounding: float) -> bool:
    try:
        found = float(cell)
    except ValueError:
        return False
    return math.isfinite(found) and abs(found - value) <= rounding + 1e-9 * max(1.0, abs(value))


def _sampled(history: History) -> Iterator[_Row]:
    for _, sample in history.each(events.LinkSample):
        for directed, sent, reserved in sample.links:
            yield _Row(sample.t, int(directed), sent, reserved)


def _means(history: History) -> Iterator[_Row]:
    """Equal intervals, all links that ever were reserved in each, by number."""
    end_s = history.end_s
    steps = {link: changes for link, changes in sorted(_changes(history).items()) if changes}
    if not steps or end_s <= 0:
        return
    n = max(1, min(MOST_INTERVALS, MOST_ROWS // len(steps)))
    means = {link: _cut(changes, end_s, n) for link, changes in steps.items()}
    for i in range(n):
        for link, own in means.items():
            yield _Row((i + 1) * end_s / n, link, None, own[i])


def _changes(history: History) -> dict[int, list[tuple[float, int]]]:
    """When how much more or less was held on each link; what is held for no time is left out."""
    out: dict[int, list[tuple[float, int]]] = {}
    since: dict[str, float] = {}
    held: dict[str, Sequence[Sequence[int]]] = {}

    def book(start_s: float, end_s: float, links: Sequence[Sequence[int]]) -> None:
        if end_s > start_s:
            for link, bps in links:
                out.setdefault(link, []).extend(((start_s, bps), (end_s, -bps)))

    for change in occupied(history):
        if change.sign > 0:
            since[change.job_id], held[change.job_id] = change.t, change.links
        else:
            book(since.pop(change.job_id), change.t, held.pop(change.job_id))
    for job_id, start_s in since.items():
        book(start_s, history.end_s, held[job_id])
    return out


def _cut(changes: list[tuple[float, int]], end_s: float, n: int) -> list[float]:
    """The mean over each of ``n`` equal parts of the run."""
    step_s = end_s / n
    bits = [0.0] * n
    now_s, bps = 0.0, 0
    for t, more in [*sorted(changes), (end_s, 0)]:
        i = min(n - 1, int(now_s / step_s))
        while bps and now_s < t:
            until_s = t if i == n - 1 else min(t, (i + 1) * step_s)
            bits[i] += bps * max(0.0, until_s - now_s)
            now_s, i = max(now_s, until_s), i + 1
            if i == n:
                break
        now_s, bps = max(now_s, t), bps + more
    return [amount / step_s for amount in bits]
