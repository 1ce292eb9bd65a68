"""Figures that compare interpretations: a row for each series under each of
them, a panel for each interpretation.

A row's label is ``SERIES, NAME``, with the name of the interpretation.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from reproductions.grid_quantities import Measure
from reproductions.published_figure import Panel


def labels_of(series: Iterable[str], name: str) -> tuple[str, ...]:
    """The labels of several series under one interpretation."""
    return tuple(f"{one_series}, {name}" for one_series in series)


def rows_of(
    series: Sequence[str], names: Iterable[str]
) -> dict[str, tuple[str, str]]:
    """Series and interpretation of every row by its label; the rows of one
    interpretation follow each other.
    """
    rows = {}
    for name in names:
        labels = labels_of(series, name)
        for label, of_row in zip(labels, series, strict=True):
            rows[label] = (of_row, name)
    return rows


def panels_of(
    measure: Measure, series: Sequence[str], names: Iterable[str]
) -> tuple[Panel, ...]:
    """A panel of a measure for each interpretation, with its rows."""
    panels = []
    for name in names:
        shown = labels_of(series, name)
        panels.append(Panel(measure, shown=shown, subject=name))
    return tuple(panels)
