"""Reproduced figures as JSON and as Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reproductions.claim_checks import JudgedClaim
from reproductions.claim_ledger import named
from reproductions.claim_power import LAST_SOUGHT, seeds_to_decide
from reproductions.published_figure import Panel, Reproduced
from testbed.sweeps.intervals import Estimate
from testbed.units import number_of

FORMAT = 3
MOST_COLUMNS = 6
MARKS = {
    "reproduced": "reproduced",
    "not reproduced": "**not reproduced**",
    "inconclusive": "inconclusive",
}


def to_json(
    done: Reproduced, command: list[str], where: Mapping[str, Any]
) -> dict[str, Any]:
    """``results.json``: every point with its interval and its values by seed,
    every verdict.

    Of ``where`` (provenance) the commit and the machine are taken.
    """
    figure = done.figure
    return {
        "format": FORMAT,
        "name": figure.name,
        "title": figure.title,
        "source": figure.source,
        "command": command,
        "code": where["code"],
        "ledger": named(figure),
        "played": figure.played_digest(quick=done.quick),
        "machine": {
            k: where["machine"][k]
            for k in ("cpu_model", "cpus", "memory_bytes")
        },
        "size": "quick" if done.quick else "full",
        "simulated": figure.quick_size if done.quick else figure.size,
        "seeds": done.seeds,
        "first_seed": figure.first_seed,
        "stages": list(done.stages),
        "cpu_s": round(done.cpu_s, 1),
        "x": figure.x_label,
        "measures": [_panel(done, panel) for panel in figure.tables],
        "claims": [_claim(judged) for judged in done.judged],
    }


def _panel(done: Reproduced, panel: Panel) -> dict[str, Any]:
    measure = panel.measure
    return {
        "name": measure.name,
        "label": measure.label,
        "unit": measure.unit,
        "points": [
            {
                "series": series,
                "x": x,
                **_estimate(done.estimate(measure, series, x)),
                "by_seed": [
                    _finite(v) for v in done.grid.values(measure, series, x)
                ],
                "published": panel.published.get((series, x)),
            }
            for series, x in done.figure.points
        ],
    }


def _claim(judged: JudgedClaim) -> dict[str, Any]:
    return {
        "claim": judged.claim.text,
        "published": judged.claim.published,
        "status": judged.claim.status,
        "ours": judged.ours,
        "verdict": judged.verdict,
        "rule": judged.claim.rule,
        "interpretation": judged.claim.interpretation,
        "cause": judged.claim.cause,
        "quote": judged.claim.quote,
        "where": judged.claim.where,
        "seeds": judged.seeds,
        "checks": [
            {
                "quantity": str(check.check.quantity),
                "unit": check.check.quantity.unit.strip(),
                "band": str(check.check.band),
                **_estimate(check.found),
                "verdict": check.verdict,
            }
            for check in judged.checks
        ],
    }


def _estimate(found: Estimate) -> dict[str, Any]:
    half = None if found.half_width is None else _finite(found.half_width)
    return {"mean": _finite(found.mean), "half_width": half}


def _finite(value: float) -> float | None:
    """Nine digits of a value; JSON has no infinity."""
    return float(f"{value:.9g}") if math.isfinite(value) else None


def to_markdown(done: Reproduced) -> str:
    """Claims with their verdicts, then a table of points for each measure."""
    figure = done.figure
    seeds = (
        "nothing random"
        if figure.exact
        else f"{done.seeds} seed{'s' * (done.seeds > 1)}"
    )
    size = figure.quick_size if done.quick else figure.size
    parts = [
        f"# {figure.name}: {figure.title}",
        f"{figure.source}. {size}; {seeds}.",
    ]
    if done.reduced:
        parts.append(withheld_text(done))
    parts.append(claims_table(done))
    parts += [
        f"## {p.measure.label}\n\n{points_table(done, p)}"
        for p in figure.tables
    ]
    return "\n\n".join(parts) + "\n"


def withheld_text(done: Reproduced) -> str:
    """Sentences on what a size that is not the figure's own decides."""
    return (
        "At this size directions are judged, not numbers: "
        f"{done.withheld} of {number_of(len(done.judged), 'claim')} "
        "have a limit other than 0 and are withheld."
    )


DRAWN = "drawn in "
"""Beginning of a quotation where the paper shows a curve and says nothing."""
HEADER = (
    "the paper's sentence",
    "published",
    "ours",
    "verdict",
    "rule",
    "seeds",
    "status",
)


def claims_table(done: Reproduced) -> str:
    """A line for each claim of the paper; this project's own checks apart."""
    papers = [j for j in done.judged if j.claim.status != "own check"]
    own = [j for j in done.judged if j.claim.status == "own check"]
    parts = []
    if papers:
        parts.append(_claims(HEADER, papers, seeds_to_decide(done)))
    if own:
        parts.append(_claims(("own check", *HEADER[1:]), own, {}))
    return "\n\n".join(parts)


def _claims(
    header: Sequence[str],
    rows: Sequence[JudgedClaim],
    to_decide: Mapping[str, float],
) -> str:
    """``to_decide``: seeds that would decide those that are undecided."""
    lines = [_row(header), f"|{'---|' * len(header)}"]
    for judged in rows:
        seeds = to_decide.get(judged.claim.text, math.nan)
        lines.append(_row(_texts(judged, _would_decide(seeds))))
    return "\n".join(lines)


def _would_decide(seeds: float) -> str:
    """An addition to the number of seeds; empty where nothing can be said."""
    if math.isnan(seeds):
        return ""
    if math.isinf(seeds):
        return f" (over {LAST_SOUGHT:,} would decide)"
    return f" (some {seeds:.0f} would decide)"


def _row(texts: Sequence[str]) -> str:
    """A row of a table in Markdown."""
    return f"| {' | '.join(text.replace('|', '∣') for text in texts)} |"


def _texts(judged: JudgedClaim, would_decide: str) -> tuple[str, ...]:
    claim = judged.claim
    text = claim.text
    if claim.quote.startswith(DRAWN):
        text = f"{text} ({claim.quote})"
    elif claim.quote:
        text = f"{text}: “{claim.quote}” ({claim.where})"
    if claim.interpretation:
        text = f"{text}. Here: {claim.interpretation}"
    ours = judged.ours
    if judged.beside is not None:
        ours = (
            f"{ours}. Beside, judged alone: {judged.beside.ours}: "
            f"{judged.beside.verdict}"
        )
    return (
        text,
        claim.published,
        ours,
        MARKS[judged.verdict],
        claim.rule,
        f"{judged.seeds}{would_decide}",
        claim.status,
    )


def corrections_table(done: Reproduced) -> str:
    """Rules of before beside those of now; empty where none was replaced."""
    header = ("sentence", "rule before", "verdict before", "now", "reason")
    rows = [
        (
            judged.claim.text,
            former.rule,
            former.verdict,
            MARKS[judged.verdict],
            former.reason,
        )
        for judged in done.judged
        for former in judged.claim.replaced
    ]
    if not rows:
        return ""
    lines = [_row(header), f"|{'---|' * len(header)}", *map(_row, rows)]
    return "\n".join(lines)


def points_table(done: Reproduced, panel: Panel) -> str:
    """The points in Markdown."""
    header, *rows = points_rows(done, panel)
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def points_rows(done: Reproduced, panel: Panel) -> list[list[str]]:
    """A header and a row per x, a column per series; many series go downwards
    instead.

    The published value stands in brackets.
    """
    figure, measure = done.figure, panel.measure
    unit = f" [{measure.unit}]" if measure.unit else ""
    rows = [
        [
            f"{x:g}",
            *(_shown(done, panel, series, x) for series in figure.series),
        ]
        for x in figure.xs
    ]
    if len(figure.series) <= MOST_COLUMNS:
        return [
            [figure.x_label, *(series + unit for series in figure.series)],
            *rows,
        ]
    turned = [
        list(row) for row in zip(["", *figure.series], *rows, strict=True)
    ]
    turned[0][0] = f"{measure.label}{unit}; {figure.x_label}:"
    return turned


def _shown(done: Reproduced, panel: Panel, series: str, x: float) -> str:
    text = done.estimate(panel.measure, series, x).show(
        panel.measure.digits
    )
    published = panel.published.get((series, x))
    return (
        text if published is None else f"{text} (published {published:g})"
    )
