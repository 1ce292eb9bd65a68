"""The pictures of one run, with their descriptions and their values."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from itertools import chain
from typing import TYPE_CHECKING, Any

from testbed.record.bandwidth_sweep import PROFILE_RECORD, stored_sweep
from testbed.record.failure_times import Outage
from testbed.record.link_rates import link_rows
from testbed.record.reading import RecordedRun
from testbed.record.stored_json import read_json
from testbed.record.verdicts import Verdicts, stored_expectation
from testbed.report import labels
from testbed.report.bandwidth_charts import (
    applications,
    profile_alt,
    profile_figure,
    scaling_alt,
    scaling_figure,
)
from testbed.report.failure_bands import MAX_NAMED, sentences
from testbed.report.gantt import (
    MAX_LANES,
    gantt_alt,
    gantt_figure,
    occupancy_figure,
    occupancy_rows,
)
from testbed.report.link_timelines import (
    MAX_HEAT_LINKS,
    MAX_PANELS,
    alike,
    heat_figure,
    link_series,
    links_alt,
    panels_figure,
)
from testbed.report.picture_tables import (
    profile_rows,
    scaling_rows,
    series_rows,
    stretch_rows,
    use_rows,
)
from testbed.report.plot_style import svg
from testbed.report.server_lanes import servers_alt, servers_figure
from testbed.report.server_rows import MAX_JOBS, server_lanes
from testbed.units import number_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Picture:
    """A picture of a run.

    ``alt``: its description in words. ``rows``: its values as a table, headings
    first. ``facts``: the values that its caption names.
    """

    kind: str
    draw: Callable[[], Figure]
    alt: str
    rows: Callable[[], Iterable[Sequence[Any]]]
    facts: Mapping[str, Any] = field(default_factory=dict)

    @property
    def svg(self) -> str:
        """The picture inline in a page."""
        return svg(self.draw(), self.kind)


def pictures(run: RecordedRun, verdicts: Verdicts) -> list[Picture]:
    """The pictures of a run's page, from top to bottom."""
    out = _profile_pictures(run)
    expect = stored_expectation(run)
    shown = applications(run.rows, verdicts.rows, expect)
    if shown:
        out.append(
            Picture(
                "scaling",
                partial(scaling_figure, shown),
                scaling_alt(shown),
                partial(scaling_rows, shown),
            )
        )
    failed = run.file.failures
    if run.rows:
        out.append(jobs_picture(run, failed))
        out += _server_pictures(run)
    return out + _link_pictures(run, failed)


def _profile_pictures(run: RecordedRun) -> list[Picture]:
    """The bandwidth sweep of a run of `testbed profile`; nothing for other
    runs.
    """
    path = run.path / PROFILE_RECORD
    record = read_json(path)
    if record is None:
        return []
    measured = stored_sweep(record, path)
    return [
        Picture(
            kind="profile",
            draw=partial(profile_figure, measured),
            alt=profile_alt(measured),
            rows=partial(profile_rows, measured),
            facts={
                "sentence": measured.sentence(),
                "model": measured.model_sentence(),
            },
        )
    ]


def jobs_picture(
    run: RecordedRun, failed: Sequence[Outage] = (), span_s: float = 0.0
) -> Picture:
    """The jobs over time: a lane each, or the slots in use where they are many.

    ``span_s``: the time axis is at least so long.
    """
    all_spans = run.file.tally.lives.stretches()
    summary = run.summary
    span_s = max(span_s, summary.span_s)
    facts = {"failures": sentences(failed, MAX_NAMED)}
    if len(run.rows) <= MAX_LANES:
        return Picture(
            kind="gantt",
            draw=partial(
                gantt_figure,
                rows=run.rows,
                all_spans=all_spans,
                span_s=span_s,
                failed=failed,
            ),
            alt=_with_failures(gantt_alt(run.rows, all_spans), failed),
            rows=partial(stretch_rows, all_spans),
            facts=facts,
        )
    slots = sum(run.started.topology["slots"])
    used = labels.share_text(summary.vm_utilisation)
    alt = (
        f"On average {used} of {number_of(slots, 'VM slot')} were in use; "
        f"{number_of(summary.finished, 'job')} finished, {summary.rejected:,} rejected."
    )
    return Picture(
        kind="occupancy",
        draw=partial(
            occupancy_figure,
            rows=run.rows,
            all_spans=all_spans,
            total_slots=slots,
            span_s=span_s,
            failed=failed,
        ),
        alt=_with_failures(alt, failed),
        rows=partial(occupancy_rows, run.rows, all_spans, span_s),
        facts=facts,
    )


def _with_failures(alt: str, failed: Sequence[Outage]) -> str:
    return f"{alt} {sentences(failed)}".rstrip()


def _server_pictures(run: RecordedRun) -> list[Picture]:
    """The busiest servers over time; nothing of a run of many thousand jobs."""
    if len(run.rows) > MAX_JOBS:
        return []
    names = run.started.topology["names"]
    tally = run.file.tally
    shown = server_lanes(tally.uses.until(tally.lives.now_s))
    if not shown.lanes:
        return []
    return [
        Picture(
            kind="servers",
            draw=partial(
                servers_figure,
                shown=shown,
                names=names,
                rows=run.rows,
                span_s=run.summary.span_s,
            ),
            alt=servers_alt(shown, names),
            rows=partial(use_rows, shown.uses, names),
            facts={"shown": len(shown.lanes), "servers": shown.n_used},
        )
    ]


def _link_pictures(
    run: RecordedRun, failed: Sequence[Outage]
) -> list[Picture]:
    """Panels of the busiest links; where those are not all, also the heat map of
    all links.
    """
    series = link_series(link_rows(run.file.tally))
    span_s = run.summary.span_s
    groups = alike(series)
    if not groups:
        return []
    alt = _with_failures(links_alt(groups), failed)
    failures = sentences(failed, MAX_NAMED)
    out = [
        Picture(
            kind="links",
            draw=partial(panels_figure, groups, span_s, failed),
            alt=alt,
            rows=partial(series_rows, list(chain(*groups))),
            facts={
                "shown": min(MAX_PANELS, len(groups)),
                "groups": len(groups),
                "failures": failures,
            },
        )
    ]
    if len(groups) > MAX_PANELS:
        out.append(
            Picture(
                kind="heat",
                draw=partial(heat_figure, series, span_s, failed),
                alt=alt,
                rows=partial(series_rows, series),
                facts={
                    "shown": min(MAX_HEAT_LINKS, len(series)),
                    "links": len(series),
                    "failures": failures,
                },
            )
        )
    return out
