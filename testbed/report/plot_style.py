"""Plot style of a page's pictures: matplotlib without global state.

Colours are the light page's; in the SVG they become the style sheet's
variables, so that one picture serves a light page, a dark one, paper and a
notebook.
"""

from __future__ import annotations

import io
import math
import re
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# The light page's colours in templates/style.css. No two are equal: an SVG's
# colours are replaced by the variables of the same text.
TEXT = "#1b1f24"
MUTED = "#5b6470"
GRID = "#e3e6ea"
BAD = "#b3261e"
SERIES = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#b8860b", "#56b4e9")
BAND = SERIES[2]
PAPER = "#ffffff"
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.5)),
    (0, (5, 1.5, 1, 1.5)),
)

VARIABLES = {
    TEXT: "--ink",
    MUTED: "--muted",
    GRID: "--grid",
    BAD: "--bad",
    **{
        colour: f"--series-{number}"
        for number, colour in enumerate(SERIES, 1)
    },
}
# Any: the type stubs' list of known keys differs between versions of
# matplotlib.
STYLE: Any = {
    **{
        f"{part}.facecolor": "none"
        for part in ("axes", "figure", "legend", "savefig")
    },
    "axes.axisbelow": True,
    "axes.edgecolor": MUTED,
    "axes.grid": True,
    "axes.labelcolor": TEXT,
    "axes.labelsize": 10,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlecolor": TEXT,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "font.family": "sans-serif",
    "font.size": 10,
    "grid.color": GRID,
    "grid.linewidth": 0.8,
    "hatch.color": MUTED,
    "hatch.linewidth": 0.7,
    "legend.fontsize": 9.5,
    "legend.frameon": False,
    "legend.labelcolor": TEXT,
    "patch.linewidth": 0,
    # Text stays text, in the page's font: it can be searched, copied and
    # read aloud.
    "svg.fonttype": "none",
    # A fixed salt: without it an SVG's ids differ each time.
    "svg.hashsalt": "hosenet",
    "text.color": TEXT,
    # A job may be called $x$.
    "text.parse_math": False,
    **{f"{axis}tick.color": MUTED for axis in "xy"},
    **{f"{axis}tick.labelcolor": TEXT for axis in "xy"},
    **{f"{axis}tick.labelsize": 9 for axis in "xy"},
}

# matplotlib's own. It also reads settings in the working directory, which may
# be another user's: by TeX they could have root read files into a picture.
OWN_SETTINGS = "default"


def series_colour(index: int) -> str:
    """The colour of a series by its index; colours repeat after six."""
    return SERIES[index % len(SERIES)]


@contextmanager
def figure(
    width_in: float, height_in: float, style: Any = STYLE
) -> Generator[Figure, None, None]:
    """A figure in a style, by default the page's, to be drawn in the block."""
    from matplotlib import style as styles

    from testbed.report.shown_figure import ShownFigure

    with styles.context([OWN_SETTINGS, style]):
        yield ShownFigure(
            figsize=(width_in, height_in), layout="constrained"
        )


def svg(made: Figure, name: str) -> str:
    """The figure as inline SVG. ``name`` keeps its ids apart from those of the
    page's others.
    """
    from matplotlib import style as styles

    out = io.StringIO()
    # The style once more, as in `figure`: how text and ids are written is
    # looked up only now.
    with styles.context([OWN_SETTINGS, STYLE]):
        # Without a date the same run makes the same bytes.
        made.savefig(
            out, format="svg", metadata={"Date": None, "Creator": None}
        )
    return _inline(out.getvalue(), name)


def _inline(text: str, name: str) -> str:
    """An SVG file's text as a part of a page."""
    # Without the XML declaration and the document type before it.
    text = text[text.index("<svg") :]
    # Each pattern ends with the rest of a tag, where text has no `>`: a node
    # of somebody's run folder may be called `: #1b1f24`, or as what follows.
    for colour, variable in VARIABLES.items():
        text = re.sub(rf": {colour}(?=[^<>]*>)", f": var({variable})", text)
    text = re.sub(r'\bid="(?=[^<>]*>)', f'id="{name}-', text)
    text = re.sub(r'(href="#|url\(#)(?=[^<>]*>)', rf"\g<1>{name}-", text)
    # The page's font takes the place of the figure's; widths differ little.
    text = re.sub(
        r'font: ([\d.]+)px [^;"<>]*(?=[^<>]*>)', r"font-size: \1px", text
    )
    text = re.sub(r"<metadata>.*?</metadata>", "", text, flags=re.DOTALL)
    # The page's figure around it carries the description, which would be read
    # out twice.
    return text.replace(
        "<svg ", '<svg aria-hidden="true" focusable="false" ', 1
    )


_TIME_UNITS = (
    (2 * 86_400, "days", 86_400.0),
    (2 * 3600, "h", 3600.0),
    (10 * 60, "min", 60.0),
    (-math.inf, "s", 1.0),
)
"""The span in s above which a unit fits, the unit's name, its length in s."""


def time_axis(axes: Axes, span_s: float) -> float:
    """Labels the x axis in the unit that fits the span; its length in s."""
    fitting = (unit for unit in _TIME_UNITS if span_s > unit[0])
    _, name, unit_s = next(fitting)
    axes.set_xlabel(f"time since the run began [{name}]")
    axes.set_xlim(0, span_s / unit_s if span_s > 0 else 1)
    return unit_s
