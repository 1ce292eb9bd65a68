"""The picture of a class's marks: each student's share of a lab's points."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial
from statistics import median
from typing import TYPE_CHECKING, Any, Protocol

from testbed.foreign_text import csv_text
from testbed.report.pictures import Picture
from testbed.report.plot_style import MUTED, SERIES, figure
from testbed.units import number_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

WIDTH_IN = 8.4
HEIGHT_IN = 3.4
ASIDE = 0.05
"""Distance between the points of equal marks; labs are 1 apart."""
MOST_ASIDE = 0.4
"""Farthest that a point, or a median's stroke, goes from its lab's middle."""
PERCENT = 100.0


class LabMark(Protocol):
    """A student's mark in a lab. ``problem``: why it was not checked; with
    ``graded``, that nothing was handed in. ``not_run``: points of checks that
    were left out.
    """

    @property
    def student(self) -> str: ...

    @property
    def lab(self) -> int: ...

    @property
    def earned(self) -> int: ...

    @property
    def points(self) -> int: ...

    @property
    def not_run(self) -> int: ...

    @property
    def problem(self) -> str: ...

    @property
    def graded(self) -> bool: ...


def marks_picture(marks: Sequence[LabMark]) -> Picture | None:
    """The picture of the labs that were graded; None where none was."""
    graded = [mark for mark in marks if mark.graded and mark.points]
    if not graded:
        return None
    return Picture(
        "shares",
        partial(marks_figure, graded),
        alt=marks_alt(graded),
        rows=partial(marks_rows, graded),
    )


def share(mark: LabMark) -> float:
    """Points earned, in % of those there are."""
    return PERCENT * mark.earned / mark.points


def marks_alt(marks: Sequence[LabMark]) -> str:
    """The median of each lab, in words."""
    parts = []
    for lab, shares in _by_lab(marks).items():
        students = number_of(len(shares), "student")
        parts.append(f"lab {lab}: {median(shares):.0f} % ({students})")
    return f"Median share of the points, {'; '.join(parts)}."


def marks_sentences(marks: Sequence[LabMark]) -> list[str]:
    """The class's results, lab by lab, and marks that are missing."""
    students = {mark.student for mark in marks}
    labs = {mark.lab for mark in marks}
    size = f"{number_of(len(students), 'student')}, {number_of(len(labs), 'lab')}"
    graded = [mark for mark in marks if mark.graded and mark.points]
    if not graded:
        return [f"{size}: nothing could be graded."]
    lines = [f"{size}. {marks_alt(graded)}"]
    full = sum(mark.earned == mark.points for mark in graded)
    lines.append(
        f"All points of their lab: {full:,} of {number_of(len(graded), 'mark')}."
    )
    missing = sum(mark.graded and bool(mark.problem) for mark in marks)
    if missing:
        lines.append(f"Nothing was handed in for {missing:,} of them.")
    refused = len(marks) - sum(mark.graded for mark in marks)
    if refused:
        lines.append(
            f"Not graded: {refused:,} of {number_of(len(marks), 'mark')};"
            " the reasons stand with the students."
        )
    if any(mark.not_run for mark in marks):
        lines.append(
            "Some checks did not run, such as those on a live network: their"
            " points, in brackets, are not earned yet."
        )
    return lines


def _by_lab(marks: Sequence[LabMark]) -> dict[int, list[float]]:
    shares: dict[int, list[float]] = {}
    for mark in sorted(marks, key=lambda mark: (mark.lab, share(mark))):
        shares.setdefault(mark.lab, []).append(share(mark))
    return shares


def marks_figure(marks: Sequence[LabMark]) -> Figure:
    """A point a student, equal ones side by side; a stroke at the median."""
    by_lab = _by_lab(marks)
    with figure(WIDTH_IN, HEIGHT_IN) as drawing:
        axes = drawing.add_subplot()
        for place, shares in enumerate(by_lab.values()):
            # Labelled once, for one entry each in the legend.
            axes.plot(
                [place + aside for aside in _asides(shares)],
                shares,
                linestyle="none",
                marker="o",
                markersize=5,
                color=SERIES[0],
                alpha=0.6,
                label="a student" if place == 0 else "",
            )
            axes.hlines(
                median(shares),
                place - MOST_ASIDE,
                place + MOST_ASIDE,
                color=MUTED,
                linewidth=2,
                label="median" if place == 0 else "",
            )
        axes.set_xticks(
            range(len(by_lab)), [f"lab {number}" for number in by_lab]
        )
        axes.set_xlim(-0.6, len(by_lab) - 0.4)
        axes.set_ylim(-4, 104)
        axes.set_ylabel("share of the points [%]")
        drawing.legend(loc="outside lower center", ncols=2)
    return drawing


def _asides(shares: Sequence[float]) -> list[float]:
    """Each point's distance from its lab's middle: equal shares side by side."""
    counts = Counter(shares)
    seen: Counter[float] = Counter()
    asides = []
    for value in shares:
        apart = min(ASIDE, 2 * MOST_ASIDE / counts[value])
        asides.append(apart * (seen[value] - (counts[value] - 1) / 2))
        seen[value] += 1
    return asides


def marks_rows(marks: Sequence[LabMark]) -> Iterator[Sequence[Any]]:
    """A header, then a row per graded mark."""
    yield "student", "lab", "earned", "points", "share_percent"
    for mark in marks:
        student = csv_text(" ".join(mark.student.split()))
        yield student, mark.lab, mark.earned, mark.points, share(mark)
