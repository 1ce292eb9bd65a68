"""The page of a sweep: its outcome in sentences, its picture, its table, the
reasons of cells that failed or are outside what was expected, provenance.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from testbed.record.provenance import known
from testbed.report.metric_words import metric_words
from testbed.spec.sweep_section import SweptKey
from testbed.sweeps.sweep_conclusion import (
    conclusion,
    least_accepted,
    printed_value,
    seeds_of,
    verdict_counts,
)
from testbed.sweeps.sweep_pictures import has_cut_intervals, panels
from testbed.sweeps.sweep_plan import SweepPlan
from testbed.sweeps.sweep_tables import (
    TableRow,
    outside_reasons,
    printed_count,
    printed_row,
)
from testbed.units import number_of

MOST_ROWS = 1000
MOST_VALUES = 50
MOST_REASONS = 50


def sweep_page(
    plan: SweepPlan,
    table: Sequence[TableRow],
    *,
    sentence: str,
    reasons: Sequence[str],
    picture: str,
    where: Mapping[str, Any],
) -> str:
    """The page as HTML.

    ``sentence``: the numbers of cells. ``picture``: the SVG file's text, or
    empty. ``where``: the content of ``provenance.json``.
    """
    from testbed.report.page import rendered

    rows = table[:MOST_ROWS]
    left = len(table) - len(rows)
    values = map(_values, plan.over)
    return rendered(
        "sweep",
        title=plan.name,
        conclusion=conclusion(plan, table),
        # An SVG inside HTML has no declaration before it.
        picture=picture[picture.index("<svg") :] if picture else "",
        caption=" ".join(_caption(plan, table)),
        more=f"{number_of(left, 'more row')} in table.csv" if left else "",
        keys=len(plan.combined),
        columns=list(_columns(plan, table)),
        rows=_rows(plan, rows, table),
        reasons=[
            ("Failed cells", most_common(reasons)),
            (
                "Outside what was expected",
                most_common(outside_reasons(table)),
            ),
        ],
        fidelity=_fidelity(table),
        cells=sentence,
        where=_provenance(where),
        over=list(zip(plan.columns, values, strict=True)),
    )


def _caption(plan: SweepPlan, table: Sequence[TableRow]) -> Iterator[str]:
    """The meaning of points and bars."""
    seeds = seeds_of(row.cells for row in table)
    yield f"A point is the mean over {seeds}, its bar the 95 % confidence interval."
    yield "Points at one value stand a little beside each other, so that none hides another."
    if has_cut_intervals(plan, table):
        yield (
            "Bars end at what is possible (shares from 0 to 100 %, times from 0);"
            " the table has the whole interval."
        )
    yield from _means_of(plan, table)


def _means_of(plan: SweepPlan, table: Sequence[TableRow]) -> Iterator[str]:
    """The jobs that means are over, where policies accepted other shares."""
    if least_accepted(table) is None:
        return
    for metric in plan.metrics:
        words = metric_words(metric)
        if words.of_jobs:
            yield f"{words.heading}: of {words.of_jobs} alone."


def _columns(
    plan: SweepPlan, table: Sequence[TableRow]
) -> Iterator[tuple[str, str]]:
    """Headings in words, each with its key in ``table.csv``."""
    for name in plan.combined_columns:
        yield name, ""
    yield ("seeds" if plan.has_seeds else "cells"), ""
    for panel, metric in zip(
        panels(plan, table), plan.metrics, strict=True
    ):
        yield panel.title, metric


def _rows(
    plan: SweepPlan, rows: Sequence[TableRow], table: Sequence[TableRow]
) -> list[tuple[str, ...]]:
    """Rows in the units of the headings."""
    axes = list(panels(plan, table))
    printed = []
    for row in rows:
        estimates = [
            around.scaled(1 / panel.scale.size)
            for panel, around in zip(axes, row.estimates, strict=True)
        ]
        count = printed_count(plan, row)
        printed.append(printed_row(row.values, count, estimates))
    return printed


def most_common(reasons: Sequence[str]) -> list[tuple[str, int]]:
    """Different reasons, each with the number of its cells, the commonest first."""
    return Counter(reasons).most_common(MOST_REASONS)


def _fidelity(table: Sequence[TableRow]) -> str:
    """Verdicts on live cells, each with its number; empty without live cells."""
    return ", ".join(
        f"{verdict} {count:,}"
        for verdict, count in verdict_counts(table).items()
    )


def _provenance(where: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Where the table was written, by label."""
    cpus = known(where, "machine.cpus", int)
    facts = {
        "Written": known(where, "written", str),
        "Code": known(where, "code.commit", str),
        "Processors": f"{cpus} × {known(where, 'machine.cpu_model', str)}",
        "Kernel": known(where, "kernel.release", str),
        "Python": known(where, "python.version", str),
        "Command": shlex.join(known(where, "command", list[str]) or []),
    }
    return [(label, text or "unknown") for label, text in facts.items()]


def _values(key: SweptKey) -> str:
    """A key's values; ranges as they are written."""
    written = list(map(printed_value, key.written()))
    left = len(written) - MOST_VALUES
    if left > 0:
        written[MOST_VALUES:] = [f"and {left:,} more"]
    return ", ".join(written)
