"""The values of a run's pictures as tables, headings first."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING, Any

from testbed.record.job_lives import Stretch
from testbed.record.server_use import ServerUse

if TYPE_CHECKING:
    from testbed.record.bandwidth_sweep import MeasuredSweep
    from testbed.report.bandwidth_charts import Application
    from testbed.report.link_timelines import Series

Rows = Iterator[Sequence[Any]]


_JOB = ("job_id", "granted_bps", "estimate_s", "measured_s", "ratio")
_of_job = attrgetter(*_JOB)


def scaling_rows(shown: Sequence[Application]) -> Rows:
    """A row per job of the applications."""
    yield ("application", *_JOB)
    for application in shown:
        for row in application.rows:
            yield (application.name, *_of_job(row))


def profile_rows(measured: MeasuredSweep) -> Rows:
    """A row per measured time."""
    yield "application", "bandwidth_bps", "time_s", "model_s"
    for point in measured.points:
        for time_s in point.times_s:
            yield (
                measured.application,
                point.bandwidth_bps,
                time_s,
                point.model_s,
            )


def stretch_rows(stretches: Sequence[Stretch]) -> Rows:
    """A row per phase of a job."""
    yield Stretch._fields
    yield from stretches


def use_rows(uses: Sequence[ServerUse], names: Sequence[str]) -> Rows:
    """A row per job and server, as long as it stays there in one tier."""
    yield (*ServerUse._fields, "name")
    for use in uses:
        is_known = 0 <= use.server < len(names)
        yield (*use, names[use.server] if is_known else "")


def series_rows(series: Sequence[Series]) -> Rows:
    """A row per directed link and time."""
    yield "link", "time_s", "reserved_bps", "sent_bps", "capacity_bps"
    for link in series:
        sent_bps = link.sent_bps or repeat(None)
        for row in zip(
            link.times_s, link.reserved_bps, sent_bps, strict=False
        ):
            yield (link.link, *row, link.capacity_bps)
