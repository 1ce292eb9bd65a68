"""The picture of bandwidth scaling: running times against p·b/b', and their
ratio with 95 % intervals (DCloud, Fig. 10, with p measured).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

from testbed.report.plot_files import COLOURS, NEUTRAL, file_figure, files
from testbed.report.plot_style import DASHES, MARKERS

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from testbed.sweeps.intervals import Estimate
    from testbed.sweeps.measured_scaling import MeasuredScaling


def scaling_pictures(
    measured: Sequence[MeasuredScaling],
) -> dict[str, bytes]:
    """The picture as ``svg`` and ``png``, the same bytes for the same values."""
    with file_figure(9.6, 4.0) as made:
        draw(made, measured)
        return files(made)


def draw(made: Figure, measured: Sequence[MeasuredScaling]) -> None:
    """Draws both panels into an empty figure."""
    times = made.add_subplot(1, 2, 1)
    ratios = made.add_subplot(1, 2, 2)
    for number, scaling in enumerate(measured):
        _times(times, scaling, number)
        _ratios(ratios, scaling, number)
    ratios.axhline(1.0, color=NEUTRAL, linewidth=1.0)
    bandwidth = "bandwidth granted to each VM, b' [Mbit/s]"
    times.set(
        ylim=(0, None),
        xlabel=bandwidth,
        ylabel="running time [s]",
        title="Measured, and estimated as p·b/b'",
    )
    ratios.set(
        xlabel=bandwidth,
        ylabel="measured / (p·b/b')",
        title="Ratio, 95 % confidence intervals",
    )
    handles, labels = times.get_legend_handles_labels()
    made.legend(handles, labels, loc="outside lower center", ncols=4)


def _times(axes: Axes, scaling: MeasuredScaling, number: int) -> None:
    # Dashed, and no markers: what is computed is not to be taken for measured.
    axes.plot(
        _mbps(scaling),
        [point.estimated.mean for point in scaling.points],
        color=COLOURS[number % len(COLOURS)],
        linestyle=DASHES[1],
        linewidth=1.2,
        label=f"{scaling.application}: estimate",
    )
    draw_means(
        axes,
        _mbps(scaling),
        [point.measured for point in scaling.points],
        number=number,
        label=f"{scaling.application}: measured",
    )


def _ratios(axes: Axes, scaling: MeasuredScaling, number: int) -> None:
    ratios = [point.ratio for point in scaling.points]
    draw_means(axes, _mbps(scaling), ratios, number=number)


def draw_means(
    axes: Axes,
    xs: Sequence[float],
    estimates: Sequence[Estimate],
    *,
    number: int,
    label: str = "",
) -> None:
    """Draws a program's means, with their intervals where there are several
    repetitions.

    ``number``: the program's, by which it has a colour and a marker.
    """
    # No line between them: nothing was measured there.
    axes.errorbar(
        xs,
        [estimate.mean for estimate in estimates],
        yerr=[estimate.half_width or 0.0 for estimate in estimates],
        color=COLOURS[number % len(COLOURS)],
        marker=marker(number),
        linestyle="none",
        capsize=3,
        label=label,
    )


def marker(number: int) -> str:
    """The marker of a program: where colours repeat, it is another one."""
    rounds = number // len(COLOURS)
    return MARKERS[(number + rounds) % len(MARKERS)]


def _mbps(scaling: MeasuredScaling) -> list[float]:
    return [point.granted_bps / 1e6 for point in scaling.points]
