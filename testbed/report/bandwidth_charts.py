"""Running time against bandwidth: DCloud's Fig. 10, and a measured job profile."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import compress
from typing import TYPE_CHECKING, Any

from testbed.expectations import ApplicationExpectation, Band, Expectation
from testbed.record.bandwidth_sweep import MeasuredSweep, SweepPoint
from testbed.record.metrics import JobRow
from testbed.record.verdicts import Verdict
from testbed.report.labels import bandwidth_text, seconds_text
from testbed.report.plot_style import (
    BAD,
    BAND,
    DASHES,
    MARKERS,
    MUTED,
    TEXT,
    figure,
    series_colour,
)

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_APPLICATIONS = 6
_RING: Any = {"linestyle": "none", "marker": "o", "markerfacecolor": "none"}
_SHADE: Any = {"color": BAND, "alpha": 0.25, "linewidth": 0}


@dataclass(frozen=True)
class Application:
    """One application at several bandwidths: p and b as asked for, its jobs.

    ``outside``: ids of the jobs that were not as expected.
    """

    name: str
    duration_s: float
    requested_bps: int
    rows: tuple[JobRow, ...]
    expected: ApplicationExpectation
    outside: frozenset[str]

    @property
    def least_bps(self) -> int:
        return min(
            row.granted_bps or self.requested_bps for row in self.rows
        )

    @property
    def granted_mbps(self) -> list[float]:
        return [(row.granted_bps or 0) / 1e6 for row in self.rows]

    @property
    def demand(self) -> tuple[float, int]:
        """The pair p and b, from which the estimates follow."""
        return self.duration_s, self.requested_bps

    def estimate_s(self, granted_bps: float) -> float:
        """p·b/b', never below p."""
        return self.duration_s * max(1.0, self.requested_bps / granted_bps)


def applications(
    rows: Sequence[JobRow], verdicts: Sequence[Verdict], expect: Expectation
) -> list[Application]:
    """Applications with one demand throughout, measured at two bandwidths or
    more.
    """
    outside = frozenset(
        verdict.job_id for verdict in verdicts if verdict.bad
    )
    shown = []
    for name, measured in _measured(rows).items():
        demands = {(row.duration_s, row.requested_bps) for row in measured}
        bandwidths = {row.granted_bps for row in measured}
        # Without one p and b there is no single line of estimates, and one
        # bandwidth is no line of measurements.
        if len(demands) > 1 or len(bandwidths) == 1:
            continue
        duration_s, requested_bps = demands.pop()
        measured.sort(key=lambda row: (row.granted_bps or 0, row.job_id))
        application = Application(
            name=name,
            duration_s=duration_s,
            requested_bps=requested_bps,
            rows=tuple(measured),
            expected=_stated(expect, name),
            outside=outside,
        )
        shown.append(application)
    # More colours than can be told apart are no picture.
    if len(shown) <= MAX_APPLICATIONS:
        return shown
    return []


def _measured(rows: Sequence[JobRow]) -> dict[str, list[JobRow]]:
    """Jobs with bandwidth and a ratio, by their application."""
    by_name: dict[str, list[JobRow]] = {}
    for row in rows:
        if row.ratio is not None and row.granted_bps and row.requested_bps:
            name = row.application or row.job_id
            by_name.setdefault(name, []).append(row)
    return by_name


def _stated(expect: Expectation, name: str) -> ApplicationExpectation:
    """An application's expectation; the band of all where it has none."""
    stated = expect.applications.get(name, ApplicationExpectation())
    band = stated.estimate_ratio or expect.estimate_ratio
    return replace(stated, estimate_ratio=band)


def scaling_figure(shown: Sequence[Application]) -> Figure:
    """Times above, one panel of ratios per application below."""
    columns = min(3, len(shown))
    lines = math.ceil(len(shown) / columns)
    with figure(9.4, 3.7 + 2.5 * lines) as made:
        heights = [3.4] + [2.3] * lines
        grid = made.add_gridspec(1 + lines, columns, height_ratios=heights)
        _times(made.add_subplot(grid[0, :]), shown)
        for index, application in enumerate(shown):
            line, column = divmod(index, columns)
            axes = made.add_subplot(grid[1 + line, column])
            _ratios(axes, application, index)
        return made


def _times(axes: Axes, shown: Sequence[Application]) -> None:
    demands: list[tuple[float, int]] = []
    alone = len({application.demand for application in shown}) == 1
    bandwidths: set[float] = set()
    for index, application in enumerate(shown):
        # Applications with the same demand share one line of estimates.
        if application.demand not in demands:
            label = "estimate p·b/b'"
            colour = TEXT
            if not alone:
                label = f"{application.name}: {label}"
                colour = series_colour(index)
            dashes = DASHES[len(demands) % len(DASHES)]
            _estimates(
                axes,
                application,
                color=colour,
                linestyle=dashes,
                label=label,
            )
            demands.append(application.demand)
        measured = [row.measured_s or 0.0 for row in application.rows]
        axes.plot(
            application.granted_mbps,
            measured,
            label=f"{application.name}: measured",
            **_points(index, size=8.0, edge=2.0),
        )
        bandwidths.update(application.granted_mbps)
    _ticks(axes, bandwidths)
    axes.set(
        ylim=(0, None),
        xlabel="bandwidth granted to each VM, b' [Mbit/s]",
        ylabel="running time [s]",
        title="Estimated and measured running time",
    )
    # Above the axes: inside, a slow run's points would hide behind it.
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4)


def _estimates(axes: Axes, application: Application, **style: Any) -> None:
    # A little beyond the outer points, so that the line does not end in
    # them.
    low_bps = application.least_bps * 0.97
    high_bps = application.requested_bps * 1.02
    xs = _between(low_bps, high_bps)
    axes.plot(
        [x / 1e6 for x in xs],
        list(map(application.estimate_s, xs)),
        linewidth=1.4,
        **style,
    )


def _points(index: int, size: float, edge: float) -> dict[str, Any]:
    """Style of a series of points.

    Every second one is hollow: two that coincide stay two.
    """
    colour = series_colour(index)
    hollow = index % 2 == 1
    return {
        "color": colour,
        "linestyle": "none",
        "marker": MARKERS[index % len(MARKERS)],
        # A ring of the same size looks smaller than a disc.
        "markersize": size + hollow,
        "markerfacecolor": "none" if hollow else colour,
        "markeredgewidth": edge,
    }


def _ratios(axes: Axes, application: Application, index: int) -> None:
    xs = application.granted_mbps
    ys = [row.ratio or 0.0 for row in application.rows]
    band = application.expected.estimate_ratio
    below = application.expected.scaled_down_below
    low, high = _limits(ys, band, below)
    if band is not None:
        _band(axes, band, low, high)
    if below is not None:
        axes.axhline(
            below, color=BAND, linewidth=1.6, linestyle=(0, (4, 2))
        )
    axes.axhline(1.0, color=MUTED, linewidth=1.0)
    axes.plot(xs, ys, **_points(index, size=7.0, edge=1.8))
    _rings(axes, application, xs, ys)
    _ticks(axes, set(xs))
    axes.set(
        ylim=(low, high),
        xlabel="b' [Mbit/s]",
        ylabel="measured / estimate",
        title=application.name,
    )


def _band(axes: Axes, band: Band, low: float, high: float) -> None:
    bottom = low if band.min is None else band.min
    top = high if band.max is None else band.max
    axes.axhspan(bottom, top, **_SHADE)
    axes.annotate(
        f"expected {band}",
        color=MUTED,
        fontsize=9,
        xy=(1.0, 1.0),
        xycoords="axes fraction",
        ha="right",
        va="bottom",
    )


def _rings(
    axes: Axes, application: Application, xs: list[float], ys: list[float]
) -> None:
    """A ring around each point that was not as expected."""
    outside = [
        row.job_id in application.outside for row in application.rows
    ]
    if any(outside):
        axes.plot(
            list(compress(xs, outside)),
            list(compress(ys, outside)),
            markersize=15,
            markeredgecolor=BAD,
            markeredgewidth=1.8,
            **_RING,
        )


def _ticks(axes: Axes, bandwidths_mbps: set[float]) -> None:
    """A tick at each bandwidth that was tried, where they are few."""
    # The labels of more than 8 would run into each other.
    if len(bandwidths_mbps) <= 8:
        places = sorted(bandwidths_mbps)
        axes.set_xticks(places, [f"{place:g}" for place in places])


def _limits(
    ratios: Sequence[float], band: Band | None, below: float | None
) -> tuple[float, float]:
    """The ends of an axis that holds the points, 1, and the expectation."""
    ends = [below]
    if band is not None:
        ends += [band.min, band.max]
    values = [1.0, *ratios, *(end for end in ends if end is not None)]
    low = min(values)
    high = max(values)
    # Some height in any case: where all ratios are 1 the ends would
    # coincide.
    margin = max(0.006, 0.12 * (high - low))
    return low - margin, high + margin


def scaling_alt(shown: Sequence[Application]) -> str:
    """The picture in words."""
    sentences = []
    for application in shown:
        points = []
        for row in reversed(application.rows):
            if row.measured_s is not None and row.estimate_s is not None:
                times = f"{row.measured_s:.2f} s of {row.estimate_s:.2f} s"
                at = bandwidth_text(row.granted_bps)
                points.append(f"{times} estimated at {at}")
        sentences.append(f"{application.name}: {', '.join(points)}.")
    return " ".join(sentences)


# -- a bandwidth sweep


def profile_figure(measured: MeasuredSweep) -> Figure:
    """Running times against bandwidth: a dash per run, a line of medians, and a
    shade above the threshold.
    """
    points = measured.points
    with figure(9.4, 3.9) as made:
        axes = made.add_subplot()
        _runs(axes, points)
        axes.plot(
            _mbps(points),
            [point.median_s for point in points],
            label=f"{measured.application}: median",
            color=series_colour(0),
            linewidth=1.4,
            marker="o",
            markersize=7,
        )
        _modelled(axes, points)
        _limited_by_the_network(axes, measured)
        if measured.threshold_found:
            low = measured.threshold_bps / 1e6
            axes.axvspan(
                low, points[-1].bandwidth_bps * 1.02 / 1e6, **_SHADE
            )
        axes.set(
            ylim=(0, None),
            xlabel="bandwidth of each VM [Mbit/s]",
            ylabel="running time [s]",
        )
        axes.legend(loc="upper right")
        return made


def _runs(axes: Axes, points: Sequence[SweepPoint]) -> None:
    for point in points:
        axes.plot(
            [point.bandwidth_bps / 1e6] * len(point.times_s),
            point.times_s,
            color=MUTED,
            linestyle="none",
            marker="_",
            markersize=14,
            markeredgewidth=1.2,
        )


def _modelled(axes: Axes, points: Sequence[SweepPoint]) -> None:
    modelled = [point for point in points if point.model_s is not None]
    if modelled:
        axes.plot(
            _mbps(modelled),
            [point.model_s or 0.0 for point in modelled],
            label="the application's model",
            color=series_colour(1),
            markersize=12,
            **_RING,
        )


def _mbps(points: Sequence[SweepPoint]) -> list[float]:
    return [point.bandwidth_bps / 1e6 for point in points]


def _limited_by_the_network(axes: Axes, measured: MeasuredSweep) -> None:
    """Draws a transfer that takes as long as the application at the least
    bandwidth.
    """
    least_bps, longest_s = measured.profile.options[0]
    highest_bps = measured.points[-1].bandwidth_bps
    xs = [bps / 1e6 for bps in _between(least_bps, highest_bps)]
    axes.plot(
        xs,
        [longest_s * least_bps / 1e6 / x for x in xs],
        label="limited by the network alone",
        color=MUTED,
        linewidth=1.0,
        linestyle=(0, (4, 2)),
    )


def _between(low_bps: float, high_bps: float) -> list[float]:
    """The ends of 300 equal pieces, which look like a hyperbola without corners."""
    return [
        low_bps + (high_bps - low_bps) * step / 300 for step in range(301)
    ]


def profile_alt(measured: MeasuredSweep) -> str:
    """The picture in words."""
    points = []
    for point in measured.points:
        at = bandwidth_text(point.bandwidth_bps)
        points.append(f"{seconds_text(point.median_s)} at {at}")
    text = f"{measured.application}: {', '.join(points)}. {measured.sentence()}."
    model = measured.model_sentence()
    if model:
        text += f" {model}."
    return text
