"""Tables for a terminal: a run's verdicts, several policies, a job profile."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from rich.cells import cell_len
from rich.table import Table
from rich.text import Text

from testbed.record.bandwidth_sweep import MeasuredSweep, SweepPoint
from testbed.record.conclusion import Results
from testbed.record.metrics import Summary
from testbed.record.verdicts import Verdict
from testbed.report.labels import (
    bandwidth_text,
    or_dash,
    ratio_text,
    seconds_text,
)
from testbed.units import human_duration, human_share, number_of

MAX_ROWS = 60
_STYLES = {"ok": "green", "held": "green", "open": "dim"}


def verdict_table(results: Results) -> Table:
    """A line for each job: application, b', estimate, measured, ratio, verdict.

    Of more than ``MAX_ROWS`` jobs the bad ones come first, and the caption
    counts those left out.
    """
    rows = in_order(results.verdicts.rows, MAX_ROWS)
    summary = results.summary
    run = f"{summary.name}, {summary.policy}, {summary.backend}"
    table = Table(
        title=Text(f"{run}, seed {summary.seed}"),
        title_justify="left",
        caption_justify="left",
    )
    table.add_column("application")
    for heading in ("b'", "estimate", "measured", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for row in rows[:MAX_ROWS]:
        table.add_row(*_cells(row))
    n_left = len(rows) - MAX_ROWS
    if n_left > 0:
        table.caption = Text(
            f"and {number_of(n_left, 'more job')}: see jobs.csv"
        )
    return table


def in_order(rows: Sequence[Verdict], max_rows: int) -> list[Verdict]:
    """Verdicts by application, in order of submission; of more than ``max_rows``
    the bad ones first.
    """
    if len(rows) > max_rows:
        # Stable: within the bad ones, and within the others, jobs stay in
        # order of submission.
        return sorted(rows, key=lambda row: not row.bad)
    names = list(dict.fromkeys(row.application for row in rows))
    return sorted(rows, key=lambda row: names.index(row.application))


def _cells(row: Verdict) -> list[Text]:
    """A line's texts; as rich's Text no name in a file is taken for markup."""
    word: str = row.verdict
    if row.bad:
        word = word.upper()
    elif word == "open":
        word = "–"
    verdict = Text(word, _STYLES.get(row.verdict, "bold red"))
    if row.verdict not in ("ok", "held"):
        verdict.append(f"  {row.why}", style="default")
    return [
        Text(row.application),
        Text(bandwidth_text(row.granted_bps)),
        Text(seconds_text(row.estimate_s)),
        Text(seconds_text(row.measured_s)),
        Text(ratio_text(row.ratio)),
        verdict,
    ]


# -- policies beside each other


_COLUMNS: dict[str, tuple[str, Callable[[Any], str]]] = {
    "policy": ("policy", str),
    "jobs": ("jobs", "{:,}".format),
    "finished": ("finished", "{:,}".format),
    "rejected": ("rejected", "{:,}".format),
    "killed": ("killed", "{:,}".format),
    "success": ("success_rate", human_share),
    "VM use": ("vm_utilisation", human_share),
    "reserved": ("link_utilisation", human_share),
    "revenue": ("revenue", "{:,.2f} $".format),
    "mean wait": ("wait_mean_s", human_duration),
    "took": ("wall_s", human_duration),
}
"""By heading, the key of a summary and the form of its value."""


def comparison_rows(
    summaries: Iterable[Mapping[str, Any]],
) -> list[Sequence[str]]:
    """The headings, and a line of texts for each summary."""
    rows: list[Sequence[str]] = [list(_COLUMNS)]
    for summary in summaries:
        rows.append(
            [
                or_dash(text)(summary.get(key))
                for key, text in _COLUMNS.values()
            ]
        )
    return rows


def comparison_table(summaries: Sequence[Summary], width: int) -> Table:
    """Outcomes of each policy's jobs, its use of the data centre, its revenue.

    A line for each policy; where that is wider than ``width`` characters, a
    column for each.
    """
    rows = comparison_rows(map(vars, summaries))
    if _width(rows) > width:
        rows = list(zip(*rows, strict=True))
    title = "no policies"
    if summaries:
        first = summaries[0]
        title = f"{first.name}, {first.backend}, seed {first.seed}"
    table = Table(title=Text(title), title_justify="left")
    table.add_column(Text(rows[0][0]), justify="left", no_wrap=True)
    for heading in rows[0][1:]:
        table.add_column(Text(heading), justify="right", no_wrap=True)
    for row in rows[1:]:
        table.add_row(*map(Text, row))
    return table


def _width(rows: Sequence[Sequence[str]]) -> int:
    """Characters that a table of these rows takes."""
    # Three go to a column's border and padding.
    columns = zip(*rows, strict=True)
    return 1 + sum(3 + max(map(cell_len, column)) for column in columns)


def profile_table(measured: MeasuredSweep) -> Table:
    """A line for each bandwidth: median, spread, the model's time, and the time
    over that at the threshold.
    """
    title = Text(f"profile of {measured.application}")
    table = Table(title=title, title_justify="left")
    modelled = measured.model_threshold_bps is not None
    headings = ["bandwidth", "time (median)", "spread", "elongation"]
    if modelled:
        headings.insert(3, "model")
    for heading in headings:
        table.add_column(heading, justify="right")
    table.add_column("in the profile")
    for point in measured.points:
        cells = _profile_cells(measured, point)
        if modelled:
            cells.insert(3, f"{point.model_s:.3f} s")
        table.add_row(*map(Text, cells))
    return table


def _profile_cells(measured: MeasuredSweep, point: SweepPoint) -> list[str]:
    # One measurement has no spread.
    spread = "–"
    if len(point.times_s) > 1:
        spread = f"{100 * point.spread:.2f} %"
    return [
        bandwidth_text(point.bandwidth_bps),
        f"{point.median_s:.3f} s",
        spread,
        f"{measured.elongation(point):.3f}",
        _in_profile(measured, point.bandwidth_bps),
    ]


def _in_profile(measured: MeasuredSweep, bandwidth_bps: int) -> str:
    if bandwidth_bps == measured.threshold_bps:
        if measured.threshold_found:
            return "threshold"
        return "yes, the highest tried"
    if any(bandwidth_bps == bps for bps, _ in measured.profile.options):
        return "yes"
    if bandwidth_bps > measured.threshold_bps:
        return "no: gains nothing"
    return "no: not faster than less bandwidth"
