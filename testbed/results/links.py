"""``links.csv``: what was reserved and sent on every directed link over time.

A live run is sampled while it runs (``link_sample``). A simulated run sends nothing; there the
run is cut into equal intervals and each row holds the mean reservation over one of them.
"""

from __future__ import annotations

import csv
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, fields
from typing import IO, Any

from testbed import events

MAX_SIMULATED_ROWS = 200_000
MAX_INTERVALS = 200


@dataclass(frozen=True)
class LinkRow:
    """One line of ``links.csv``. ``sent_bps`` None: nobody measured."""

    time_s: float
    link: str
    directed_link: int
    sent_bps: float | None
    reserved_bps: float
    capacity_bps: int


COLUMNS = tuple(f.name for f in fields(LinkRow))


def link_name(topology: dict[str, Any], directed_link: int) -> str:
    """A directed link as people read it: ``rack 3 -> aggregation 1``."""
    link, downward = divmod(directed_link, 2)
    ends = topology["links"]["lower"][link], topology["links"]["upper"][link]
    names = [topology["names"][node] for node in (reversed(ends) if downward else ends)]
    return " -> ".join(names)


def capacity_bps(topology: dict[str, Any], directed_link: int) -> int:
    """Each direction has the link's full capacity."""
    return int(topology["links"]["capacity_bps"][directed_link // 2])


def known_links(topology: dict[str, Any]) -> frozenset[int]:
    """The directed links that the arrays describe. Of another one, in a damaged folder, there is
    nothing to show; the audit names it.
    """
    links, nodes = topology["links"], range(len(topology["names"]))
    ends = zip(links["lower"], links["upper"], links["capacity_bps"], strict=False)
    there = [n for n, (lower, upper, _) in enumerate(ends) if lower in nodes and upper in nodes]
    return frozenset(2 * n + way for n in there for way in (0, 1))


def sampled_rows(stream: Iterable[events.Event]) -> Iterator[LinkRow]:
    """The samples of a live run, in order."""
    topology: dict[str, Any] = {}
    known: frozenset[int] = frozenset()
    for event in stream:
        if isinstance(event, events.RunStarted):
            topology, known = event.topology, known_links(event.topology)
        elif isinstance(event, events.LinkSample):
            for directed, sent, reserved in event.links:
                link = int(directed)
                if link not in known:
                    continue
                name, capacity = link_name(topology, link), capacity_bps(topology, link)
                yield LinkRow(event.t, name, link, sent, reserved, capacity)


@dataclass(frozen=True)
class Reservation:
    """``bps`` reserved on a directed link from ``start_s`` to ``end_s`` while a job ran."""

    directed_link: int
    start_s: float
    end_s: float
    bps: int


def reservations(stream: Iterable[events.Event]) -> Iterator[Reservation]:
    """What running jobs held on each link, in order of release; what is left ends with the run."""
    links: dict[str, Sequence[Sequence[int]]] = {}
    since: dict[str, float] = {}
    now_s = 0.0

    def release(job_id: str) -> Iterator[Reservation]:
        start_s = since.pop(job_id, None)
        if start_s is not None and now_s > start_s:
            # One that was never reserved, in a damaged folder, held nothing.
            for link, bps in links.get(job_id, ()):
                yield Reservation(link, start_s, now_s, bps)

    for event in stream:
        now_s = event.t
        match event:
            case events.JobReserved():
                links[event.job_id] = event.links
            case events.JobStarted() | events.JobResumed():
                since[event.job_id] = now_s
            case events.JobRescaled() | events.JobMigrated():
                yield from release(event.job_id)
                links[event.job_id] = event.links
                since[event.job_id] = now_s
            case events.JobPreempted() | events.JobEnded():
                yield from release(event.job_id)
            case _:
                pass
    for job_id in list(since):
        yield from release(job_id)


def simulated_rows(
    topology: dict[str, Any], held: Sequence[Reservation], span_s: float
) -> Iterator[LinkRow]:
    """Means over equal intervals for every link that was ever used, by time, then by link.

    At most MAX_INTERVALS intervals, fewer where many links would make over MAX_SIMULATED_ROWS rows.
    """
    known = known_links(topology)
    held = [r for r in held if r.directed_link in known]
    used = sorted({r.directed_link for r in held})
    if not used or span_s <= 0:
        return
    n = max(1, min(MAX_INTERVALS, MAX_SIMULATED_ROWS // len(used)))
    step_s = span_s / n
    bits: dict[int, list[float]] = {link: [0.0] * n for link in used}
    for r in held:
        row = bits[r.directed_link]
        first, last = int(r.start_s / step_s), min(n - 1, int(r.end_s / step_s))
        for i in range(first, last + 1):
            inside_s = min(r.end_s, (i + 1) * step_s) - max(r.start_s, i * step_s)
            row[i] += max(0.0, inside_s) * r.bps
    names = {link: link_name(topology, link) for link in used}
    for i in range(n):
        for link in used:
            mean_bps, capacity = bits[link][i] / step_s, capacity_bps(topology, link)
            yield LinkRow((i + 1) * step_s, names[link], link, None, mean_bps, capacity)


def link_rows(history: Sequence[events.Event]) -> Iterator[LinkRow]:
    """Samples where there are any, means of the reservations otherwise."""
    if any(isinstance(event, events.LinkSample) for event in history):
        return sampled_rows(history)
    started = next((e for e in history if isinstance(e, events.RunStarted)), None)
    if started is None:
        return iter(())
    return simulated_rows(started.topology, list(reservations(history)), history[-1].t)


def write_links_csv(rows: Iterable[LinkRow], file: IO[str]) -> None:
    """``links.csv``: a header, then a line per link and time; ``sent_bps`` empty: not measured."""
    writer = csv.writer(file, lineterminator="\n")
    writer.writerow(COLUMNS)
    for row in rows:
        sent = "" if row.sent_bps is None else round(row.sent_bps)
        writer.writerow(
            [
                repr(row.time_s),
                row.link,
                row.directed_link,
                sent,
                round(row.reserved_bps),
                row.capacity_bps,
            ]
        )
