"""A reproduced figure as a picture: means with their intervals, published values beside."""

from __future__ import annotations

import io
import textwrap
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from reproductions.figure import Look, Panel, Reproduced

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

# Okabe and Ito's colours, which the colour-blind can tell apart; yellow is too faint for lines.
COLOURS = ("#0072b2", "#d55e00", "#009e73", "#cc79a7", "#56b4e9", "#e69f00", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
LINES = ("-", "--", ":")
PUBLISHED = "published (large, hollow)"

LETTERS_PER_INCH = 12
STYLE: Any = {
    "axes.axisbelow": True,
    "axes.grid": True,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlelocation": "left",
    "axes.titlesize": 10.5,
    "figure.facecolor": "white",
    "font.size": 9.5,
    "grid.color": "#dddddd",
    "legend.frameon": False,
    "svg.fonttype": "none",
    "svg.hashsalt": "hosenet",
    "text.parse_math": False,
}


def pictures(done: Reproduced) -> dict[str, bytes]:
    """``svg`` and ``png`` of all panels side by side, two in a row."""
    import matplotlib as mpl
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    panels = done.figure.panels
    columns = min(2, len(panels))
    rows = -(-len(panels) // columns)
    with mpl.rc_context(STYLE):
        made = Figure(figsize=(max(8.0, 5.0 * columns), 3.2 * rows + 1.1), layout="constrained")
        FigureCanvasAgg(made)
        for index, panel in enumerate(panels, 1):
            _draw(made.add_subplot(rows, columns, index), done, panel)
        _explain(made, done)
        return {"svg": saved(made, "svg"), "png": saved(made, "png")}


def _draw(axes: Axes, done: Reproduced, panel: Panel) -> None:
    figure = done.figure
    for index, series in enumerate(panel.drawn or figure.series):
        look = figure.looks.get(series, Look(index, 0, series))
        colour, marker = COLOURS[look.colour % len(COLOURS)], MARKERS[look.colour % len(MARKERS)]
        found = [done.estimate(panel.measure, series, x) for x in figure.xs]
        axes.errorbar(
            figure.xs,
            [one.mean for one in found],
            yerr=[one.half_width or 0.0 for one in found],
            label=look.label,
            color=colour,
            marker=marker,
            linestyle=LINES[look.line % len(LINES)],
            markersize=5,
            linewidth=1.4,
            capsize=3,
        )
        said = [(x, y) for (name, x), y in panel.published.items() if name == series]
        draw_published(axes, said, colour, marker)
    if panel.limits is not None:
        axes.set_ylim(panel.limits)
    elif not _below_zero(done, panel):
        # From zero, with room above: values near each other would stand on the axes' edge.
        axes.set_ylim(0.0, 1.04 * axes.get_ylim()[1])
    axes.set_title(heading(panel))
    if len(figure.xs) <= 12:
        axes.set_xticks(figure.xs, [f"{x:g}" for x in figure.xs])
    axes.set_xlabel(figure.x_label)


def draw_published(
    axes: Axes, said: Sequence[tuple[float, float]], colour: str, marker: str
) -> None:
    """A paper's values for a series: large and hollow."""
    if said:
        axes.plot(
            [x for x, _ in said],
            [y for _, y in said],
            linestyle="none",
            marker=marker,
            markersize=10,
            markerfacecolor="none",
            markeredgecolor=colour,
            markeredgewidth=1.5,
            clip_on=False,
        )


def published_handle() -> Line2D:
    """What the legend shows for a paper's values."""
    from matplotlib.lines import Line2D

    return Line2D([], [], linestyle="none", marker="o", markersize=10, markerfacecolor="none",
                  markeredgecolor="#555555", markeredgewidth=1.5, label=PUBLISHED)  # fmt: skip


def heading(panel: Panel) -> str:
    """What stands above a panel: its subject, the measure, its unit."""
    measure = panel.measure
    about = f"{panel.subject}: {measure.label}" if panel.subject else measure.label
    return f"{about} [{measure.unit}]" if measure.unit else about


def _below_zero(done: Reproduced, panel: Panel) -> bool:
    return any(
        done.estimate(panel.measure, s, x).mean < 0
        for s, x in done.figure.points
        if s in (panel.drawn or done.figure.series)
    )


def _explain(made: Figure, done: Reproduced) -> None:
    """Title and one legend for all panels."""
    figure = done.figure
    shown: dict[str, Any] = {}
    for axes in made.axes:
        for handle, label in zip(*axes.get_legend_handles_labels(), strict=True):
            shown.setdefault(label, handle)
    labels, handles = list(shown), list(shown.values())
    if any(panel.published for panel in figure.panels):
        handles.append(published_handle())
        labels.append(PUBLISHED)
    columns = int(made.get_figwidth() * LETTERS_PER_INCH / (max(map(len, labels)) + 8))
    made.legend(handles, labels, loc="outside lower center", ncols=max(1, columns))
    size = ", quick size" if done.quick else ""
    many = "" if figure.exact else f"; mean of {done.seeds} seeds, 95 % intervals"
    if done.seeds == 1:
        many = "" if figure.exact else "; one seed"
    title = f"{figure.source}{size}: {figure.title}{many}"
    made.suptitle(textwrap.fill(title, 100), x=0.01, ha="left", fontsize=11)


def saved(made: Figure, kind: str) -> bytes:
    """The picture as a file of that kind; the same bytes each time."""
    out = io.BytesIO()
    metadata = {"Date": None, "Creator": None} if kind == "svg" else {"Software": None}
    made.savefig(out, format=kind, dpi=150, metadata=metadata)
    return out.getvalue()
