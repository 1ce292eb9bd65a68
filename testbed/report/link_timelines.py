"""Bandwidth reserved and sent on links over time: panels of the busiest, a heat
map of all.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from testbed.foreign_text import plain_text
from testbed.record.failure_times import Outage
from testbed.record.link_rates import LinkRow
from testbed.report.failure_bands import draw, of_link, restarts
from testbed.report.plot_style import MUTED, SERIES, TEXT, figure, time_axis
from testbed.units import human_bandwidth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.colors import Colormap
    from matplotlib.figure import Figure
    from matplotlib.image import AxesImage

MAX_PANELS = 8
MAX_HEAT_LINKS = 24


@dataclass(frozen=True)
class Series:
    """One directed link over time. ``sent_bps`` is None where nothing was
    measured.
    """

    link: str
    capacity_bps: int
    times_s: tuple[float, ...]
    reserved_bps: tuple[float, ...]
    sent_bps: tuple[float, ...] | None

    @property
    def load(self) -> float:
        """The reserved share of the capacity, summed over the samples."""
        return sum(self.reserved_bps) / max(1, self.capacity_bps)

    @property
    def peak_bps(self) -> float:
        return max(*self.reserved_bps, *(self.sent_bps or ()), 0.0)


Alike = list[Series]
"""Links whose reservations were the same at all times."""


def title(group: Alike) -> str:
    name = _arrow(group[0])
    if len(group) == 1:
        return name
    return f"{name} and {len(group) - 1} more alike"


def link_series(rows: Iterable[LinkRow]) -> list[Series]:
    """The directed links that had a reservation or traffic, busiest first.

    Links that a sample leaves out had neither.
    """
    # A dict as an ordered set: the samples' times in the order of the file.
    times: dict[float, None] = {}
    by_link: dict[int, dict[float, LinkRow]] = {}
    for row in rows:
        times[row.time_s] = None
        by_link.setdefault(row.directed_link, {})[row.time_s] = row
    series = [
        _series(by_time, tuple(times)) for by_time in by_link.values()
    ]
    used = [link for link in series if link.peak_bps > 0]
    # Stable: links alike stay in the order of their numbers.
    return sorted(used, key=lambda link: -link.load)


def _series(
    by_time: dict[float, LinkRow], times: tuple[float, ...]
) -> Series:
    reserved = []
    sent = []
    for time_s in times:
        row = by_time.get(time_s)
        reserved.append(0.0 if row is None else row.reserved_bps)
        sent.append(0.0 if row is None else row.sent_bps or 0.0)
    rows = list(by_time.values())
    measured = any(row.sent_bps is not None for row in rows)
    return Series(
        link=rows[0].link,
        capacity_bps=rows[0].capacity_bps,
        times_s=times,
        reserved_bps=tuple(reserved),
        sent_bps=tuple(sent) if measured else None,
    )


def alike(series: Sequence[Series]) -> list[Alike]:
    """Links with equal reservations together, busiest first."""
    groups: dict[tuple[int, tuple[float, ...]], list[Series]] = {}
    for link in series:
        # To the bit: in a symmetric pattern the links of a level have the
        # very same reservations.
        key = (link.capacity_bps, link.reserved_bps)
        groups.setdefault(key, []).append(link)
    return list(groups.values())


def panels_figure(
    groups: Sequence[Alike], span_s: float, failed: Sequence[Outage] = ()
) -> Figure:
    """A panel for each of the busiest groups: reserved rates, and the mean and
    the spread of the sent ones.
    """
    shown = groups[:MAX_PANELS]
    columns = 2 if len(shown) > 1 else 1
    lines = math.ceil(len(shown) / columns)
    with figure(9.4, 0.5 + 1.9 * lines) as made:
        grid = made.subplots(lines, columns, squeeze=False, sharex=True)
        panels = list(grid.flat)
        for unused in panels[len(shown) :]:
            unused.set_axis_off()
        for index, (axes, group) in enumerate(
            zip(panels, shown, strict=False)
        ):
            unit_s = time_axis(axes, span_s)
            _panel(axes, group, unit_s)
            of_group = of_link(failed, *(series.link for series in group))
            draw(axes, of_group + restarts(failed), unit_s)
            # The time stands below the lowest panel of a column, which is not
            # always in the last line.
            if index + columns < len(shown):
                axes.set_xlabel("")
            else:
                axes.tick_params(labelbottom=True)
        _legend(made, panels)
        return made


def _legend(made: Figure, panels: Sequence[Axes]) -> None:
    """One legend for all panels: each label once."""
    handles: dict[str, Any] = {}
    for axes in panels:
        for handle, label in zip(
            *axes.get_legend_handles_labels(), strict=True
        ):
            handles.setdefault(label, handle)
    made.legend(
        list(handles.values()),
        list(handles),
        loc="outside upper left",
        ncols=4,
    )


def _panel(axes: Axes, group: Alike, unit_s: float) -> None:
    first = group[0]
    # A row speaks of the interval that it ends: the first one begins with the
    # run.
    xs = [0.0, *(t / unit_s for t in first.times_s)]
    reserved = _steps(first.reserved_bps)
    axes.fill_between(
        xs, reserved, step="pre", color=SERIES[5], alpha=0.35, linewidth=0
    )
    axes.step(
        xs,
        reserved,
        where="pre",
        color=SERIES[0],
        linewidth=1.3,
        label="reserved",
    )
    _sent(axes, group, xs)
    _capacity(axes, first, max(series.peak_bps for series in group))
    axes.set_ylabel("Mbit/s")
    capacity = human_bandwidth(first.capacity_bps)
    axes.set_title(f"{title(group)} ({capacity})", fontsize=9.5)


def _sent(axes: Axes, group: Alike, xs: list[float]) -> None:
    """The group's mean, and the spread around it; nothing without samples."""
    sent = [
        series.sent_bps for series in group if series.sent_bps is not None
    ]
    if not sent:
        return
    rates = np.array(sent)
    axes.fill_between(
        xs,
        _steps(rates.min(axis=0)),
        _steps(rates.max(axis=0)),
        step="pre",
        color=SERIES[1],
        alpha=0.3,
        linewidth=0,
    )
    axes.step(
        xs,
        _steps(rates.mean(axis=0)),
        where="pre",
        color=SERIES[1],
        linewidth=1.3,
        label="sent (measured)",
    )


def _capacity(axes: Axes, series: Series, peak_bps: float) -> None:
    """The capacity as a line, unless the rates would be too low to see below it."""
    capacity = series.capacity_bps / 1e6
    if peak_bps >= 0.35 * series.capacity_bps:
        axes.axhline(
            capacity,
            color=TEXT,
            linewidth=1.0,
            linestyle=(0, (5, 2)),
            label="capacity",
        )
        axes.set_ylim(0, capacity * 1.08)
    else:
        axes.set_ylim(0, max(1e-6, 1.25 * peak_bps / 1e6))


def _steps(values_bps: Sequence[float]) -> list[float]:
    """Mbit/s for steps that end at each time; the first value stands twice."""
    return [value / 1e6 for value in (*values_bps[:1], *values_bps)]


def heat_figure(
    series: Sequence[Series], span_s: float, failed: Sequence[Outage] = ()
) -> Figure:
    """A row for each of the busiest links, darker where more of its capacity is
    reserved.
    """
    shown = list(series[:MAX_HEAT_LINKS])
    n = len(shown)
    with figure(9.4, 0.9 + 0.18 * n) as made:
        axes = made.add_subplot()
        unit_s = time_axis(axes, span_s)
        image = _heat(axes, shown, span_s / unit_s)
        # Bands reach over their link's row; shares of the axes' height count
        # from below, rows from above.
        for row, link in enumerate(shown):
            draw(
                axes,
                of_link(failed, link.link),
                unit_s,
                ymin=1 - (row + 1) / n,
                ymax=1 - row / n,
                alpha=0.4,
            )
        draw(axes, restarts(failed), unit_s)
        # What failed may be none of the links that are drawn.
        if axes.get_legend_handles_labels()[0]:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4)
        # Ten rows high: a bar beside the whole map would be a second picture.
        height = min(1.0, 10 / n)
        bar = made.colorbar(image, ax=axes, shrink=height, pad=0.01)
        bar.set_label("share of capacity reserved")
        bar.outline.set_edgecolor(MUTED)
        return made


def _heat(axes: Axes, shown: Sequence[Series], width: float) -> AxesImage:
    shares = []
    for link in shown:
        capacity = max(1, link.capacity_bps)
        shares.append([bps / capacity for bps in link.reserved_bps])
    # From nothing to the fullest there was: a lightly used network has a
    # pattern too.
    most = max(0.05, *map(max, shares))
    image = axes.imshow(
        shares,
        aspect="auto",
        cmap=_ramp(),
        vmin=0,
        vmax=most,
        interpolation="nearest",
        # Rows' middles at whole numbers, the first one on top.
        extent=(0, width, len(shown) - 0.5, -0.5),
    )
    axes.set_yticks(range(len(shown)), [_arrow(link) for link in shown])
    axes.tick_params(axis="y", labelsize=8, length=0)
    axes.grid(visible=False)
    return image


def _ramp() -> Colormap:
    """A blue, from transparent to opaque: it reads the same in grey, on a dark
    page and to the colour-blind.
    """
    from matplotlib.colors import LinearSegmentedColormap

    blue = (0.11, 0.48, 0.78)
    return LinearSegmentedColormap.from_list(
        "load", [(*blue, 0.0), (*blue, 1.0)]
    )


def _arrow(link: Series) -> str:
    return plain_text(link.link).replace(" -> ", " → ")


def links_alt(groups: Sequence[Alike]) -> str:
    """The picture in words: a sentence a panel."""
    return " ".join(map(_panel_sentence, groups[:MAX_PANELS]))


def _panel_sentence(group: Alike) -> str:
    first = group[0]
    peak = max(first.reserved_bps) / 1e6
    capacity = first.capacity_bps / 1e6
    sentence = f"{title(group)}: at most {peak:.0f} of {capacity:.0f} Mbit/s reserved"
    sent_bps = [max(link.sent_bps) for link in group if link.sent_bps]
    if sent_bps:
        sentence += f", at most {max(sent_bps) / 1e6:.0f} Mbit/s sent"
    return f"{sentence}."
