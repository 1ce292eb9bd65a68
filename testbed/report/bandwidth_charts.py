"""Running time against bandwidth: DCloud's Fig. 10, and a measured job profile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

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
from testbed.results.bandwidth_sweep import MeasuredSweep, SweepPoint
from testbed.results.metrics import JobRow
from testbed.results.tables import Verdict
from testbed.spec.experiment import ApplicationExpectation, Band, Expectation

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_APPLICATIONS = 6
_RING: Any = {"linestyle": "none", "marker": "o", "markerfacecolor": "none"}
_SHADE: Any = {"color": BAND, "alpha": 0.25, "linewidth": 0}


@dataclass(frozen=True)
class Application:
    """One application at several bandwidths: p and b as asked for, and its points.

    ``outside``: the jobs that were not as expected.
    """

    name: str
    duration_s: float
    requested_bps: int
    rows: tuple[JobRow, ...]
    expected: ApplicationExpectation
    outside: frozenset[str]

    @property
    def least_bps(self) -> int:
        return min(row.granted_bps or self.requested_bps for row in self.rows)

    @property
    def granted_mbps(self) -> list[float]:
        return [(row.granted_bps or 0) / 1e6 for row in self.rows]

    def estimate_s(self, granted_bps: float) -> float:
        """p·b/b', never below p."""
        return self.duration_s * max(1.0, self.requested_bps / granted_bps)


def applications(
    rows: Sequence[JobRow], verdicts: Sequence[Verdict], expect: Expectation
) -> list[Application]:
    """Applications with one demand throughout, measured at two bandwidths or more."""
    by_name: dict[str, list[JobRow]] = {}
    for row in rows:
        if row.ratio is not None and row.granted_bps and row.requested_bps:
            by_name.setdefault(row.application or row.job_id, []).append(row)
    outside = frozenset(verdict.job_id for verdict in verdicts if verdict.bad)
    out = []
    for name, own in by_name.items():
        asked = {(row.duration_s, row.requested_bps) for row in own}
        if len(asked) == 1 and len({row.granted_bps for row in own}) > 1:
            found = tuple(sorted(own, key=lambda row: (row.granted_bps or 0, row.job_id)))
            stated = expect.applications.get(name, ApplicationExpectation())
            band = stated.estimate_ratio or expect.estimate_ratio
            stated = replace(stated, estimate_ratio=band)
            out.append(Application(name, *asked.pop(), found, stated, outside))
    return out if len(out) <= MAX_APPLICATIONS else []


def scaling_figure(found: Sequence[Application]) -> Figure:
    """Times above, one panel of ratios per application below."""
    columns = min(3, len(found))
    lines = -(-len(found) // columns)
    with figure(9.4, 3.7 + 2.5 * lines) as made:
        ratios = [3.4] + [2.3] * lines
        grid = made.add_gridspec(1 + lines, columns, height_ratios=ratios)
        _times(made.add_subplot(grid[0, :]), found)
        for index, application in enumerate(found):
            axes = made.add_subplot(grid[1 + index // columns, index % columns])
            _ratios(axes, application, index)
        return made


def _times(axes: Axes, found: Sequence[Application]) -> None:
    asked = [(application.duration_s, application.requested_bps) for application in found]
    alone = len(set(asked)) == 1
    for index, application in enumerate(found):
        if asked.index(asked[index]) == index:
            label = "estimate p·b/b'" if alone else f"{application.name}: estimate p·b/b'"
            xs = _between(application.least_bps * 0.97, application.requested_bps * 1.02)
            axes.plot(
                [x / 1e6 for x in xs],
                [application.estimate_s(x) for x in xs],
                color=TEXT if alone else series_colour(index),
                linewidth=1.4,
                linestyle=DASHES[(len(set(asked[: index + 1])) - 1) % len(DASHES)],
                label=label,
            )
        measured = [row.measured_s or 0.0 for row in application.rows]
        label = f"{application.name}: measured"
        axes.plot(application.granted_mbps, measured, label=label, **_points(index, 8.0, 2.0))
    _ticks(axes, {x for application in found for x in application.granted_mbps})
    axes.set(
        ylim=(0, None),
        xlabel="bandwidth granted to each VM, b' [Mbit/s]",
        ylabel="running time [s]",
        title="Estimated and measured running time",
    )
    # Above the axes: inside, a slow run's points would hide behind it.
    axes.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), ncols=4)


def _points(index: int, size: float, edge: float) -> dict[str, Any]:
    """Style of a series of points. Every second one is hollow: two that coincide stay two."""
    colour, hollow = series_colour(index), index % 2 == 1
    return {
        "color": colour,
        "linestyle": "none",
        "marker": MARKERS[index % len(MARKERS)],
        "markersize": size + hollow,
        "markerfacecolor": "none" if hollow else colour,
        "markeredgewidth": edge,
    }


def _ratios(axes: Axes, application: Application, index: int) -> None:
    xs, ys = application.granted_mbps, [row.ratio or 0.0 for row in application.rows]
    band, below = application.expected.estimate_ratio, application.expected.scaled_down_below
    low, high = _limits([*ys, *([] if below is None else [below])], band)
    if band is not None:
        inside_low = low if band.min is None else band.min
        axes.axhspan(inside_low, high if band.max is None else band.max, **_SHADE)
        at: Any = {"xy": (1.0, 1.0), "xycoords": "axes fraction", "ha": "right", "va": "bottom"}
        axes.annotate(f"expected {band}", color=MUTED, fontsize=9, **at)
    if below is not None:
        axes.axhline(below, color=BAND, linewidth=1.6, linestyle=(0, (4, 2)))
    axes.axhline(1.0, color=MUTED, linewidth=1.0)
    axes.plot(xs, ys, **_points(index, 7.0, 1.8))
    wrong = [i for i, row in enumerate(application.rows) if row.job_id in application.outside]
    if wrong:
        ring: Any = {"markersize": 15, "markeredgecolor": BAD, "markeredgewidth": 1.8, **_RING}
        axes.plot([xs[i] for i in wrong], [ys[i] for i in wrong], **ring)
    _ticks(axes, set(xs))
    ylabel = "measured / estimate"
    axes.set(ylim=(low, high), xlabel="b' [Mbit/s]", ylabel=ylabel, title=application.name)


def _ticks(axes: Axes, tried: set[float]) -> None:
    """A tick at each bandwidth that was tried, where they are few."""
    if len(tried) <= 8:
        axes.set_xticks(sorted(tried), [f"{value:g}" for value in sorted(tried)])


def _limits(ratios: Sequence[float], band: Band | None) -> tuple[float, float]:
    """Room for the points, for 1, and for the band's ends."""
    values = [*ratios, 1.0]
    values += [end for end in (band.min, band.max) if end is not None] if band else []
    low, high = min(values), max(values)
    margin = max(0.006, 0.12 * (high - low))
    return low - margin, high + margin


def scaling_alt(found: Sequence[Application]) -> str:
    """The picture in words."""
    parts = []
    for application in found:
        points = ", ".join(
            f"{row.measured_s:.2f} s of {row.estimate_s:.2f} s estimated at "
            f"{bandwidth_text(row.granted_bps)}"
            for row in reversed(application.rows)
            if row.measured_s is not None and row.estimate_s is not None
        )
        parts.append(f"{application.name}: {points}.")
    return " ".join(parts)


# -- a bandwidth sweep


def profile_figure(measured: MeasuredSweep) -> Figure:
    """Every run a small point, medians as a line; shaded is what is above the threshold."""
    points = measured.points
    modelled = [point for point in points if point.model_s is not None]
    with figure(9.4, 3.9) as made:
        axes = made.add_subplot()
        stroke: Any = {"color": MUTED, "linestyle": "none", "marker": "_", "markersize": 14}
        for point in points:
            at = _mbps([point] * len(point.times_s))
            axes.plot(at, point.times_s, markeredgewidth=1.2, **stroke)
        line: Any = {"color": series_colour(0), "linewidth": 1.4, "marker": "o", "markersize": 7}
        medians, label = [point.median_s for point in points], f"{measured.application}: median"
        axes.plot(_mbps(points), medians, label=label, **line)
        if modelled:
            ring: Any = {"color": series_colour(1), "markersize": 12, **_RING}
            times = [point.model_s or 0.0 for point in modelled]
            axes.plot(_mbps(modelled), times, label="the application's model", **ring)
        _limited_by_the_network(axes, measured)
        if measured.found:
            top = points[-1].bandwidth_bps
            axes.axvspan(measured.threshold_bps / 1e6, top * 1.02 / 1e6, **_SHADE)
        xlabel = "bandwidth of each VM [Mbit/s]"
        axes.set(ylim=(0, None), xlabel=xlabel, ylabel="running time [s]")
        axes.legend(loc="upper right")
        return made


def _mbps(points: Sequence[SweepPoint]) -> list[float]:
    return [point.bandwidth_bps / 1e6 for point in points]


def _limited_by_the_network(axes: Axes, measured: MeasuredSweep) -> None:
    """A transfer as long as the application is at the least bandwidth."""
    least_bps, longest_s = measured.profile.options[0]
    xs = [bps / 1e6 for bps in _between(least_bps, measured.points[-1].bandwidth_bps)]
    ys = [longest_s * least_bps / 1e6 / x for x in xs]
    dashed: Any = {"color": MUTED, "linewidth": 1.0, "linestyle": (0, (4, 2))}
    axes.plot(xs, ys, label="limited by the network alone", **dashed)


def _between(low_bps: float, high_bps: float) -> list[float]:
    """Three hundred short pieces look like the hyperbola they are."""
    return [low_bps + (high_bps - low_bps) * step / 300 for step in range(301)]


def profile_alt(measured: MeasuredSweep) -> str:
    """The picture in words."""
    points = ", ".join(
        f"{seconds_text(point.median_s)} at {bandwidth_text(point.bandwidth_bps)}"
        for point in measured.points
    )
    message = [measured.sentence(), measured.model_sentence()]
    return f"{measured.application}: {points}. {' '.join(f'{one}.' for one in message if one)}"
