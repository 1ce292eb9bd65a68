"""The sentences of the papers by their outcomes, as a picture: a bar a paper."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from reproductions.claim_checks import Status
from testbed.report.plot_files import COLOURS, file_figure, files
from testbed.report.plot_style import PAPER, TEXT

if TYPE_CHECKING:
    from matplotlib.axes import Axes

# Lighter than the pictures' own grey: the hatching is seen on it.
OPEN = "#b4bac2"
# In the order of the outcomes; readers with any colour vision tell them apart.
OUTCOME_COLOURS = (COLOURS[2], COLOURS[4], COLOURS[1], OPEN)
FITTED = "fitted: took part in choosing an interpretation"
HATCHES: Mapping[Status, str] = {"free": "", "fitted": "////"}
# A count in a narrower part would run into its neighbours.
LEAST_NAMED = 3

Outcomes = Mapping[str, Sequence[Status]]
"""The statuses of a paper's sentences by the heading of their outcome."""


def sentences_picture(papers: Mapping[str, Outcomes]) -> dict[str, bytes]:
    """``svg`` and ``png``: a bar for each paper by its name, a part for each
    outcome with the number of its sentences; fitted ones are hatched.
    """
    headings = next(iter(papers.values()))
    with file_figure(9.0, 0.48 * len(papers) + 1.5) as made:
        axes = made.add_subplot()
        for place, outcomes in enumerate(papers.values()):
            _bar(axes, place, outcomes)
        axes.set_yticks(range(len(papers)), list(papers))
        # The first paper is on top.
        axes.invert_yaxis()
        axes.grid(visible=False, axis="y")
        axes.set_xlabel("sentences of the paper")
        _legend(axes, headings)
        return files(made)


def _bar(axes: Axes, place: int, outcomes: Outcomes) -> None:
    """A paper's bar: outcome by outcome, free sentences before fitted ones."""
    left = 0
    for statuses, colour in zip(
        outcomes.values(), OUTCOME_COLOURS, strict=True
    ):
        for status, hatch in HATCHES.items():
            count = list(statuses).count(status)
            axes.barh(
                place,
                count,
                left=left,
                height=0.7,
                color=colour,
                edgecolor=PAPER,
                linewidth=0.8,
                hatch=hatch,
            )
            if count >= LEAST_NAMED:
                _name(axes, left + count / 2, place, count)
            left += count


def _name(axes: Axes, x: float, place: int, count: int) -> None:
    """The number of a part in its middle, legible on the hatching."""
    axes.text(
        x,
        place,
        str(count),
        ha="center",
        va="center",
        fontsize=9,
        bbox={
            "facecolor": PAPER,
            "edgecolor": "none",
            "alpha": 0.75,
            "pad": 1.0,
        },
    )


def _legend(axes: Axes, headings: Iterable[str]) -> None:
    """Outcomes by colour, and the meaning of the hatching."""
    from matplotlib.patches import Patch

    entries = []
    for heading, colour in zip(headings, OUTCOME_COLOURS, strict=True):
        entries.append(Patch(facecolor=colour, label=heading.lower()))
    fitted = Patch(
        facecolor=PAPER,
        edgecolor=TEXT,
        linewidth=0.5,
        hatch=HATCHES["fitted"],
        label=FITTED,
    )
    axes.legend(
        handles=[*entries, fitted],
        loc="lower left",
        bbox_to_anchor=(0.0, 1.0),
        ncols=3,
    )
