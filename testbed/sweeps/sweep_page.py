"""The page of a sweep: its picture, its table, the reasons of cells that failed
or are outside what was expected, fidelity and provenance.
"""

from __future__ import annotations

import shlex
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from testbed.record.provenance import known
from testbed.spec.sweep_section import SweptKey, as_yaml
from testbed.sweeps.sweep_tables import (
    TableRow,
    outside_reasons,
    printed_columns,
    printed_values,
)
from testbed.units import number_of

if TYPE_CHECKING:
    from testbed.sweeps.sweep_plan import SweepPlan

MOST_ROWS = 1000
MOST_VALUES = 50
MOST_REASONS = 50


def sweep_page(
    plan: SweepPlan,
    table: Sequence[TableRow],
    sentence: str,
    reasons: Sequence[str],
    picture: str,
    where: Mapping[str, Any],
) -> str:
    """The page as HTML; ``sentence`` tells the numbers of cells, ``picture`` is
    the SVG file's text, or nothing, ``where`` the content of
    ``provenance.json``.
    """
    from testbed.report.page import rendered

    rows = table[:MOST_ROWS]
    left = len(table) - len(rows)
    over = []
    for column, swept in zip(plan.columns, plan.over, strict=True):
        over.append((column, _values(swept)))
    return rendered(
        "sweep",
        title=plan.name,
        sentence=sentence,
        # An SVG inside HTML has no declaration before it.
        picture=picture[picture.index("<svg") :] if picture else "",
        more=f"{number_of(left, 'more row')} in table.csv" if left else "",
        keys=len(plan.combined),
        columns=printed_columns(plan),
        rows=[printed_values(plan, row) for row in rows],
        reasons=[
            ("Failed cells", most_common(reasons)),
            (
                "Outside what was expected",
                most_common(outside_reasons(table)),
            ),
        ],
        fidelity=_fidelity(table),
        where=_provenance(where),
        over=over,
    )


def most_common(reasons: Sequence[str]) -> list[tuple[str, int]]:
    """Different reasons, each with the number of its cells, the commonest first."""
    return Counter(reasons).most_common(MOST_REASONS)


def _fidelity(table: Sequence[TableRow]) -> str:
    """Verdicts on live cells, each with its number; empty without live cells."""
    verdicts: Counter[str] = Counter()
    for row in table:
        verdicts.update(row.fidelity)
    counts = [f"{verdict} {count:,}" for verdict, count in verdicts.items()]
    return ", ".join(counts)


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
    written = []
    for values, _ in key.parts[:MOST_VALUES]:
        if len(values) > 1:
            written.append(f"{values[0]}..{values[-1]}")
        else:
            written.append(as_yaml(values[0]))
    left = len(key.parts) - len(written)
    if left:
        written.append(f"and {left:,} more")
    return ", ".join(written)
