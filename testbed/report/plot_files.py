"""Pictures that are files of their own: the report's plot style on white, as
SVG and PNG.
"""

from __future__ import annotations

import io
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any

from testbed.report.plot_style import (
    MUTED,
    OWN_SETTINGS,
    PAPER,
    STYLE,
    figure,
)

if TYPE_CHECKING:
    from matplotlib.figure import Figure

# Okabe and Ito's colours, which the colour-blind can tell apart; yellow is too
# faint for lines.
COLOURS = (
    "#0072b2",
    "#d55e00",
    "#009e73",
    "#cc79a7",
    "#56b4e9",
    "#e69f00",
    "#000000",
)
NEUTRAL = MUTED

_FILE_STYLE: Any = {
    **STYLE,
    "axes.facecolor": PAPER,
    "figure.facecolor": PAPER,
    "savefig.facecolor": PAPER,
}


def file_figure(
    width_in: float, height_in: float
) -> AbstractContextManager[Figure]:
    """A figure that becomes files of its own. Draw and call :func:`files`
    inside the block.
    """
    return figure(width_in, height_in, _FILE_STYLE)


def files(made: Figure) -> dict[str, bytes]:
    """The figure as ``svg`` and ``png``, the same bytes each time."""
    # matplotlib notes its version and, in an SVG, the date unless the key is
    # None.
    metadata = {
        "svg": {"Date": None, "Creator": None},
        "png": {"Software": None},
    }
    saved = {}
    for kind, without in metadata.items():
        out = io.BytesIO()
        made.savefig(out, format=kind, dpi=150, metadata=without)
        saved[kind] = out.getvalue()
    return saved


def on_paper(made: Figure) -> dict[str, bytes]:
    """A page's figure as files of its own, on white."""
    from matplotlib import style as styles

    # Drawn already, and without a background: of the style only what is
    # looked up at saving still counts.
    with styles.context([OWN_SETTINGS, _FILE_STYLE]):
        return files(made)
