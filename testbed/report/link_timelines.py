"""Bandwidth reserved and sent on links over time: panels of the busiest, a heat map of all."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from testbed.report.failure_bands import Outage, draw, of_link, restarts
from testbed.report.plot_style import MUTED, SERIES, TEXT, figure, time_axis
from testbed.results.tables import LinkRow
from testbed.units import human_bandwidth

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

MAX_PANELS = 8
MAX_HEAT_LINKS = 24


@dataclass(frozen=True)
class Series:
    """One directed link over time. ``sent_bps`` is None where nothing was measured."""

    link: str
    capacity_bps: int
    times_s: tuple[float, ...]
    reserved_bps: tuple[float, ...]
    sent_bps: tuple[float, ...] | None

    @property
    def load(self) -> float:
        """Share of the capacity that was reserved, summed over the samples."""
        return sum(self.reserved_bps) / max(1, self.capacity_bps)

    @property
    def peak_bps(self) -> float:
        return max(*self.reserved_bps, *(self.sent_bps or ()), 0.0)


Alike = list[Series]
"""Links that had exactly the same reservation all the time."""


def title(group: Alike) -> str:
    also = f" and {len(group) - 1} more alike" if len(group) > 1 else ""
    return f"{group[0].link.replace(' -> ', ' → ')}{also}"


def link_series(rows: Iterable[LinkRow]) -> list[Series]:
    """Every link that ever had a reservation or traffic, busiest first.

    A sample that leaves a link out says that nothing was there.
    """
    times: dict[float, None] = {}
    by_link: dict[int, dict[float, LinkRow]] = {}
    for row in rows:
        times[row.time_s] = None
        by_link.setdefault(row.directed_link, {})[row.time_s] = row
    out = []
    for own in by_link.values():
        first = next(iter(own.values()))
        found = [own.get(t) for t in times]
        reserved = tuple(0.0 if row is None else row.reserved_bps for row in found)
        sent = tuple(0.0 if row is None else row.sent_bps or 0.0 for row in found)
        measured = sent if any(row.sent_bps is not None for row in own.values()) else None
        if any(reserved) or any(sent):
            out.append(Series(first.link, first.capacity_bps, tuple(times), reserved, measured))
    # Stable: links alike stay in the order of their numbers.
    return sorted(out, key=lambda series: -series.load)


def alike(series: Sequence[Series]) -> list[Alike]:
    """Links with equal reservations together, busiest first."""
    groups: dict[tuple[int, tuple[float, ...]], list[Series]] = {}
    for one in series:
        groups.setdefault((one.capacity_bps, one.reserved_bps), []).append(one)
    return list(groups.values())


def panels_figure(groups: Sequence[Alike], span_s: float, failed: Sequence[Outage] = ()) -> Figure:
    """The busiest groups, reserved as a step, sent as a line with its spread over the group."""
    shown = groups[:MAX_PANELS]
    columns = 2 if len(shown) > 1 else 1
    lines = -(-len(shown) // columns)
    with figure(9.4, 0.5 + 1.9 * lines) as made:
        grid = made.subplots(lines, columns, squeeze=False, sharex=True)
        for index, cell in enumerate(grid.flat):
            if index >= len(shown):
                cell.set_axis_off()
                continue
            unit_s = time_axis(cell, span_s)
            if index + columns < len(shown):
                cell.set_xlabel("")
            else:
                cell.tick_params(labelbottom=True)
            _panel(cell, shown[index], unit_s)
            own = of_link(failed, *(one.link for one in shown[index]))
            draw(cell, own + restarts(failed), unit_s)
        known: dict[str, Any] = {}
        for cell in grid.flat:
            for handle, label in zip(*cell.get_legend_handles_labels(), strict=True):
                known.setdefault(label, handle)
        made.legend(list(known.values()), list(known), loc="outside upper left", ncols=4)
        return made


def _panel(axes: Axes, group: Alike, unit_s: float) -> None:
    first = group[0]
    # A row speaks of the interval that it ends: the first one begins with the run.
    xs = [0.0, *(t / unit_s for t in first.times_s)]
    reserved = _steps(first.reserved_bps)
    axes.fill_between(xs, reserved, step="pre", color=SERIES[5], alpha=0.35, linewidth=0)
    axes.step(xs, reserved, where="pre", color=SERIES[0], linewidth=1.3, label="reserved")
    sent = [one.sent_bps for one in group if one.sent_bps is not None]
    if sent:
        together = list(zip(*sent, strict=True))
        middle = _steps([sum(at) / len(at) for at in together])
        low, high = _steps([min(at) for at in together]), _steps([max(at) for at in together])
        axes.fill_between(xs, low, high, step="pre", color=SERIES[1], alpha=0.3, linewidth=0)
        axes.step(xs, middle, where="pre", color=SERIES[1], linewidth=1.3, label="sent (measured)")
    _capacity(axes, first, max(one.peak_bps for one in group))
    axes.set_ylabel("Mbit/s")
    axes.set_title(f"{title(group)} ({human_bandwidth(first.capacity_bps)})", fontsize=9.5)


def _capacity(axes: Axes, series: Series, peak_bps: float) -> None:
    """The capacity as a line, unless what happens would be lost at its foot."""
    capacity = series.capacity_bps / 1e6
    if peak_bps >= 0.35 * series.capacity_bps:
        axes.axhline(capacity, color=TEXT, linewidth=1.0, linestyle=(0, (5, 2)), label="capacity")
        axes.set_ylim(0, capacity * 1.08)
    else:
        axes.set_ylim(0, max(1e-6, 1.25 * peak_bps / 1e6))


def _steps(values_bps: Sequence[float]) -> list[float]:
    """Mbit/s for a step drawn backwards from each time, the first value twice."""
    return [value / 1e6 for value in (*values_bps[:1], *values_bps)]


def heat_figure(series: Sequence[Series], span_s: float, failed: Sequence[Outage] = ()) -> Figure:
    """The busiest links, a row each; the darker, the more of its capacity is reserved."""
    from matplotlib.colors import LinearSegmentedColormap

    shown = list(series[:MAX_HEAT_LINKS])
    # One hue, from nothing to all of it: it reads the same in grey, on a dark page and to the
    # colour-blind.
    ramp = LinearSegmentedColormap.from_list(
        "load", [(0.0, (0.11, 0.48, 0.78, 0.0)), (1.0, (0.11, 0.48, 0.78, 1.0))]
    )
    with figure(9.4, 0.9 + 0.18 * len(shown)) as made:
        axes = made.add_subplot()
        unit_s = time_axis(axes, span_s)
        share = [[bps / max(1, one.capacity_bps) for bps in one.reserved_bps] for one in shown]
        # From nothing to the fullest there was: a lightly used network has a pattern too.
        most = max(0.05, *(max(row) for row in share))
        image = axes.imshow(
            share, aspect="auto", cmap=ramp, vmin=0, vmax=most, interpolation="nearest",
            extent=(0, span_s / unit_s, len(shown) - 0.5, -0.5),
        )  # fmt: skip
        axes.set_yticks(range(len(shown)), [one.link.replace(" -> ", " → ") for one in shown])
        axes.tick_params(axis="y", labelsize=8, length=0)
        axes.grid(visible=False)
        for row, one in enumerate(shown):
            band = {"ymin": 1 - (row + 1) / len(shown), "ymax": 1 - row / len(shown), "alpha": 0.4}
            draw(axes, of_link(failed, one.link), unit_s, **band)
        draw(axes, restarts(failed), unit_s)
        if failed:
            axes.legend(loc="lower left", bbox_to_anchor=(0, 1.0), ncols=4)
        bar = made.colorbar(image, ax=axes, shrink=min(1.0, 10 / len(shown)), pad=0.01)
        bar.set_label("share of capacity reserved")
        bar.outline.set_edgecolor(MUTED)
        return made


def links_alt(groups: Sequence[Alike]) -> str:
    """The picture in sentence: a sentence a panel."""
    message = []
    for group in groups[:MAX_PANELS]:
        first = group[0]
        peak = max(first.reserved_bps) / 1e6
        sentence = (
            f"{title(group)}: at most {peak:.0f} of {first.capacity_bps / 1e6:.0f} Mbit/s reserved"
        )
        sent = [max(one.sent_bps) for one in group if one.sent_bps]
        sentence += f", at most {max(sent) / 1e6:.0f} Mbit/s sent." if sent else "."
        message.append(sentence)
    return " ".join(message)
