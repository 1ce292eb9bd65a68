"""The results of a run as a table for a terminal."""

from __future__ import annotations

from collections.abc import Sequence

from rich.table import Table
from rich.text import Text

from testbed.report.words import bandwidth_text, ratio_text, seconds_text
from testbed.results.conclude import Results
from testbed.results.expectations import Verdict

MAX_ROWS = 60
_STYLES = {"ok": "green", "outside": "bold red", "open": "dim"}
_WORDS = {"ok": "ok", "outside": "OUTSIDE", "open": "–"}


def verdict_table(results: Results, max_rows: int = MAX_ROWS) -> Table:
    """Application, b', estimate, measured, ratio, verdict: one line a job.

    Of more than ``max_rows`` jobs those outside come first, and the caption counts the rest.
    """
    rows = in_order(results.verdicts.rows, max_rows)
    table = Table(title=Text(_title(results)), title_justify="left", caption_justify="left")
    table.add_column("application")
    for heading in ("b'", "estimate", "measured", "ratio"):
        table.add_column(heading, justify="right")
    table.add_column("verdict")
    for row in rows[:max_rows]:
        table.add_row(*_cells(row))
    if len(rows) > max_rows:
        table.caption = Text(f"and {len(rows) - max_rows:,} more jobs: see jobs.csv")
    return table


def in_order(rows: Sequence[Verdict], max_rows: int) -> list[Verdict]:
    """By application, in order of submission; where not all will fit, those outside first."""
    if len(rows) > max_rows:
        return sorted(rows, key=lambda row: row.verdict != "outside")
    first = {name: place for place, name in enumerate(dict.fromkeys(r.application for r in rows))}
    return sorted(rows, key=lambda row: first[row.application])


def _title(results: Results) -> str:
    summary = results.summary
    return f"{summary.name}, {summary.policy}, {summary.backend}, seed {summary.seed}"


def _cells(row: Verdict) -> list[Text]:
    """Texts, so that no name in a file is taken for markup."""
    verdict = Text(_WORDS[row.verdict], style=_STYLES[row.verdict])
    if row.verdict == "outside" or row.ratio is None:
        verdict.append(f"  {row.why}", style="default")
    return [
        Text(row.application),
        Text(bandwidth_text(row.granted_bps)),
        Text(seconds_text(row.estimate_s)),
        Text(seconds_text(row.measured_s)),
        Text(ratio_text(row.ratio)),
        verdict,
    ]
