"""The picture of reasons: ratios to p·b/b' against properties of the programs'
traffic.

A program that never sends and computes at once takes c + v/b'; with u, the
share of b that it used, its ratio is u + (1 - u)·b'/b. It is below that line
where it computes while it sends, and above it where less bandwidth makes it
lose or send more.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from testbed.report.plot_files import NEUTRAL, file_figure, files
from testbed.report.plot_style import DASHES
from testbed.sweeps.scaling_pictures import draw_means

if TYPE_CHECKING:
    from matplotlib.axes import Axes

    from testbed.sweeps.measured_scaling import (
        MeasuredScaling,
        ScalingPoint,
    )


@dataclass(frozen=True)
class _Panel:
    """A panel with the ratio against one quantity of a point."""

    title: str
    x_label: str
    quantity: Callable[[ScalingPoint], float | None]
    scale: str = "linear"


def _use(point: ScalingPoint) -> float | None:
    traffic = point.traffic_at_b
    return None if traffic is None else 100 * traffic.use


def _packet_bytes(point: ScalingPoint) -> float | None:
    traffic = point.traffic_at_b
    return None if traffic is None else traffic.packet_bytes


def _bytes_ratio(point: ScalingPoint) -> float | None:
    before = point.traffic_at_b
    now = point.traffic
    if before is None or now is None:
        return None
    return now.sent_bytes / max(1.0, before.sent_bytes)


PANELS = (
    _Panel("Burstiness", "share of b that it used at b [%]", _use),
    _Panel(
        "Message size", "bytes a packet sent at b", _packet_bytes, "log"
    ),
    _Panel("What it sends", "bytes at b' over bytes at b", _bytes_ratio),
)


def reason_pictures(
    measured: Sequence[MeasuredScaling],
) -> dict[str, bytes]:
    """The picture as ``svg`` and ``png``; none without counted traffic."""
    counted = [
        scaling
        for scaling in measured
        if any(_use(point) is not None for point in scaling.points)
    ]
    if not counted:
        return {}
    with file_figure(12.6, 4.6) as made:
        plots = []
        for number, panel in enumerate(PANELS):
            plots.append(made.add_subplot(1, len(PANELS), number + 1))
            _draw(plots[-1], panel, counted)
        _draw_lines(plots[0], counted)
        handles, labels = plots[0].get_legend_handles_labels()
        made.legend(handles, labels, loc="outside lower center", ncols=4)
        return files(made)


def _draw(
    axes: Axes, panel: _Panel, measured: Sequence[MeasuredScaling]
) -> None:
    for number, scaling in enumerate(measured):
        xs = []
        ratios = []
        for point in scaling.points:
            x = panel.quantity(point)
            if point.scaled_down and x is not None:
                xs.append(x)
                ratios.append(point.ratio)
        draw_means(
            axes, xs, ratios, number=number, label=scaling.application
        )
    axes.axhline(1.0, color=NEUTRAL, linewidth=1.0)
    axes.set(
        title=panel.title,
        xlabel=panel.x_label,
        ylabel="measured / (p·b/b')",
        xscale=panel.scale,
    )
    if panel.scale == "log":
        # matplotlib's own labels are formulas, which names of programs forbid.
        axes.xaxis.set_major_formatter("{x:,.0f}")
        axes.xaxis.set_minor_formatter("")


def _draw_lines(axes: Axes, measured: Sequence[MeasuredScaling]) -> None:
    """Ratios of programs that never compute and send at once."""
    shares = set()
    for scaling in measured:
        for point in scaling.points:
            if point.scaled_down:
                shares.add(point.granted_bps / scaling.requested_bps)
    for number, share in enumerate(sorted(shares, reverse=True)):
        axes.plot(
            [0.0, 100.0],
            [share, 1.0],
            color=NEUTRAL,
            linestyle=DASHES[number % len(DASHES)],
            linewidth=1.0,
            label=f"in turn, b' = {100 * share:.0f} % of b",
        )
