"""Reproduced figures as JSON and as Markdown tables."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from reproductions.claim_checks import (
    Claim,
    Judged,
    JudgedClaim,
    rule_parts,
)
from reproductions.claim_ledger import named
from reproductions.claim_power import LAST_SOUGHT, seeds_to_decide
from reproductions.published_figure import Panel, Reproduced
from testbed.sweeps.intervals import Estimate
from testbed.units import number_of

FORMAT = 3
MACHINE = ("cpu_model", "cpus", "memory_bytes")
"""Parts of the machine's description that results name."""
# More columns do not fit beside each other on a page.
MOST_COLUMNS = 6
NEW_LINE = "<br>"
"""A new line within a field of a table in Markdown."""
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
        "machine": {part: where["machine"][part] for part in MACHINE},
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
    """A measure at every point, with its values by seed."""
    measure = panel.measure
    points = []
    for series, x in done.figure.points:
        by_seed = done.grid.values(measure, series, x)
        point = {
            "series": series,
            "x": x,
            **_estimate(done.estimate(measure, series, x)),
            "by_seed": list(map(_finite, by_seed)),
            "published": panel.published.get((series, x)),
        }
        points.append(point)
    return {
        "name": measure.name,
        "label": measure.label,
        "unit": measure.unit,
        "points": points,
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
        "checks": list(map(_check, judged.checks)),
    }


def _check(judged: Judged) -> dict[str, Any]:
    quantity = judged.check.quantity
    return {
        "quantity": str(quantity),
        "unit": quantity.unit.strip(),
        "band": str(judged.check.band),
        **_estimate(judged.found),
        "verdict": judged.verdict,
    }


def _estimate(interval: Estimate) -> dict[str, Any]:
    """A mean, and half its interval; the latter is null for one seed."""
    half_width = interval.half_width
    if half_width is not None:
        half_width = _finite(half_width)
    return {"mean": _finite(interval.mean), "half_width": half_width}


def _finite(value: float | None) -> float | None:
    """Nine digits of a value; None for infinity, which JSON does not have, and
    for a seed that is left out.
    """
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.9g}")


def to_markdown(done: Reproduced) -> str:
    """Claims with their verdicts, then a table of points for each measure."""
    figure = done.figure
    seeds = number_of(done.seeds, "seed")
    if figure.exact:
        seeds = "nothing random"
    size = figure.quick_size if done.quick else figure.size
    parts = [
        f"# {figure.name}: {figure.title}",
        f"{figure.source}. {size}; {seeds}.",
    ]
    if done.reduced:
        parts.append(withheld_text(done))
    parts.append(claims_table(done))
    for panel in figure.tables:
        parts.append(
            f"## {panel.measure.label}\n\n{points_table(done, panel)}"
        )
    return "\n\n".join(parts) + "\n"


def withheld_text(done: Reproduced) -> str:
    """A sentence on the claims that a size smaller than the figure's own does
    not decide.
    """
    return (
        "At this size directions are judged, not numbers: "
        f"{done.withheld} of {number_of(len(done.judged), 'claim')} "
        "have a limit other than 0 and are withheld."
    )


# A quotation that begins with this is of a curve: the paper has no words on
# it.
DRAWN = "drawn in "
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
    # No seeds would decide an own check: it is about the runs that were
    # made.
    papers: list[JudgedClaim] = []
    own_checks: list[JudgedClaim] = []
    for judged in done.judged:
        group = own_checks if judged.claim.status == "own check" else papers
        group.append(judged)
    parts = []
    if papers:
        parts.append(_claims(HEADER, papers, seeds_to_decide(done)))
    if own_checks:
        parts.append(_claims(("own check", *HEADER[1:]), own_checks, {}))
    return "\n\n".join(parts)


def _claims(
    header: Sequence[str],
    rows: Sequence[JudgedClaim],
    to_decide: Mapping[str, float],
) -> str:
    """``to_decide``: seeds that would decide those that are undecided."""
    lines = _head(header)
    for judged in rows:
        seeds = to_decide.get(judged.claim.text, math.nan)
        lines.append(_row(_texts(judged, _would_decide(seeds))))
    return "\n".join(lines)


def _would_decide(seeds: float) -> str:
    """An addition to the number of seeds; empty where their number is unknown."""
    if math.isnan(seeds):
        return ""
    if math.isinf(seeds):
        return f" (over {LAST_SOUGHT:,} would decide)"
    return f" (some {seeds:.0f} would decide)"


def _row(texts: Sequence[str]) -> str:
    """A row of a table in Markdown, in which a bar would end a column."""
    columns = [text.replace("|", "∣") for text in texts]
    return f"| {' | '.join(columns)} |"


def _head(header: Sequence[str]) -> list[str]:
    """The two lines above the rows of a table in Markdown."""
    return [_row(header), f"|{'---|' * len(header)}"]


def _texts(judged: JudgedClaim, would_decide: str) -> tuple[str, ...]:
    return (
        NEW_LINE.join(_sentence_parts(judged.claim)),
        judged.claim.published,
        NEW_LINE.join(_value_parts(judged)),
        MARKS[judged.verdict],
        NEW_LINE.join(rule_parts(judged.claim.checks)),
        f"{judged.seeds}{would_decide}",
        judged.claim.status,
    )


def _sentence_parts(claim: Claim) -> list[str]:
    """The ledger's sentence, the paper's own words, what they are taken for."""
    parts = [claim.text]
    if claim.quote.startswith(DRAWN):
        parts = [f"{claim.text} ({claim.quote})"]
    elif claim.quote:
        parts.append(f"“{claim.quote}” ({claim.where})")
    if claim.interpretation:
        parts.append(f"Here: {claim.interpretation}")
    return parts


def _value_parts(judged: JudgedClaim) -> list[str]:
    """Our values, and those of the rule that stands beside."""
    parts = judged.ours_parts
    if judged.beside is not None:
        parts.append(f"Beside, judged alone ({judged.beside.verdict}):")
        parts.extend(judged.beside.ours_parts)
    return parts


def corrections_table(done: Reproduced) -> str:
    """Rules of before beside those of now; empty where none was replaced."""
    header = ("sentence", "rule before", "verdict before", "now", "reason")
    rows = []
    for judged in done.judged:
        for former in judged.claim.replaced:
            columns = (
                judged.claim.text,
                former.rule,
                former.verdict,
                MARKS[judged.verdict],
                former.reason,
            )
            rows.append(_row(columns))
    if not rows:
        return ""
    return "\n".join([*_head(header), *rows])


def points_table(done: Reproduced, panel: Panel) -> str:
    """The points in Markdown."""
    header, *rows = points_rows(done, panel)
    lines = [f"| {' | '.join(header)} |", f"|{'---|' * len(header)}"]
    for row in rows:
        lines.append(f"| {' | '.join(row)} |")
    return "\n".join(lines)


def points_rows(done: Reproduced, panel: Panel) -> list[list[str]]:
    """A header and a row per x, a column per series; of many series a row per
    series, a column per x.

    The published value stands in brackets.
    """
    figure = done.figure
    measure = panel.measure
    unit = f" [{measure.unit}]" if measure.unit else ""
    rows = []
    for x in figure.xs:
        row = [f"{x:g}"]
        for series in figure.series:
            row.append(_shown(done, panel, series, x))
        rows.append(row)
    if len(figure.series) <= MOST_COLUMNS:
        header = [figure.x_label]
        for series in figure.series:
            header.append(series + unit)
        return [header, *rows]
    # The units of all columns are in the corner, since a row has one
    # series.
    corner = f"{measure.label}{unit}; {figure.x_label}:"
    columns = zip([corner, *figure.series], *rows, strict=True)
    return list(map(list, columns))


def _shown(done: Reproduced, panel: Panel, series: str, x: float) -> str:
    """A point's mean with its interval, and the published value."""
    estimate = done.estimate(panel.measure, series, x)
    text = estimate.show(panel.measure.digits)
    published = panel.published.get((series, x))
    if published is None:
        return text
    return f"{text} (published {published:g})"
