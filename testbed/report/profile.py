"""A measured profile: running time against bandwidth, and where more of it gains nothing."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from testbed.report.ink import BAND, MUTED, figure, series_colour, svg
from testbed.report.words import bandwidth_text, seconds_text
from testbed.results.profiling import MeasuredLadder


def profile_svg(measured: MeasuredLadder) -> str:
    """Every run a small point, medians as a line; shaded is what is above the threshold."""
    with figure(9.4, 3.9) as made:
        axes = made.add_subplot()
        for rung in measured.rungs:
            at = [rung.bandwidth_bps / 1e6] * len(rung.times_s)
            axes.plot(
                at,
                rung.times_s,
                color=MUTED,
                linestyle="none",
                marker="_",
                markersize=14,
                markeredgewidth=1.2,
            )
        axes.plot(
            [rung.bandwidth_bps / 1e6 for rung in measured.rungs],
            [rung.median_s for rung in measured.rungs],
            color=series_colour(0),
            linewidth=1.4,
            marker="o",
            markersize=7,
            label=f"{measured.application}: median",
        )
        modelled = [rung for rung in measured.rungs if rung.model_s is not None]
        if modelled:
            axes.plot(
                [rung.bandwidth_bps / 1e6 for rung in modelled],
                [rung.model_s or 0.0 for rung in modelled],
                color=series_colour(1),
                linestyle="none",
                marker="o",
                markersize=12,
                markerfacecolor="none",
                label="the application's model",
            )
        least_bps, longest_s = measured.profile.options[0]
        xs = [bps / 1e6 for bps in _between(least_bps, measured.rungs[-1].bandwidth_bps)]
        axes.plot(
            xs,
            [longest_s * least_bps / 1e6 / x for x in xs],
            color=MUTED,
            linewidth=1.0,
            linestyle=(0, (4, 2)),
            label="limited by the network alone",
        )
        top = measured.rungs[-1].bandwidth_bps
        if measured.found:
            axes.axvspan(
                measured.threshold_bps / 1e6, top * 1.02 / 1e6, color=BAND, alpha=0.25, linewidth=0
            )
        axes.set_ylim(bottom=0)
        axes.set_xlabel("bandwidth of each VM [Mbit/s]")
        axes.set_ylabel("running time [s]")
        axes.legend(loc="upper right")
        return svg(made, "profile")


def _between(low_bps: int, high_bps: int) -> list[float]:
    """Three hundred short pieces look like the hyperbola they are."""
    return [low_bps + (high_bps - low_bps) * step / 300 for step in range(301)]


def profile_alt(measured: MeasuredLadder) -> str:
    """The picture in words."""
    points = ", ".join(
        f"{seconds_text(rung.median_s)} at {bandwidth_text(rung.bandwidth_bps)}"
        for rung in measured.rungs
    )
    said = [measured.sentence(), measured.model_sentence()]
    return f"{measured.application}: {points}. {' '.join(f'{one}.' for one in said if one)}"


def profile_table(measured: MeasuredLadder) -> Table:
    """One line a bandwidth: median, spread, the model's time, the time over the threshold's."""
    table = Table(title=Text(f"profile of {measured.application}"), title_justify="left")
    modelled = measured.model_threshold_bps is not None
    model = ("model",) if modelled else ()
    for heading in ("bandwidth", "time (median)", "spread", *model, "elongation"):
        table.add_column(heading, justify="right")
    table.add_column("in the profile")
    offered = {bps for bps, _ in measured.profile.options}
    for rung in measured.rungs:
        if rung.bandwidth_bps == measured.threshold_bps:
            note = "threshold" if measured.found else "yes, the ladder's end"
        elif rung.bandwidth_bps in offered:
            note = "yes"
        else:
            above = rung.bandwidth_bps > measured.threshold_bps
            note = "no: gains nothing" if above else "no: not faster than less bandwidth"
        table.add_row(
            Text(bandwidth_text(rung.bandwidth_bps)),
            Text(f"{rung.median_s:.3f} s"),
            Text(f"{100 * rung.spread:.2f} %" if len(rung.times_s) > 1 else "–"),
            *([Text(f"{rung.model_s:.3f} s")] if modelled else ()),
            Text(f"{measured.elongation(rung):.3f}"),
            Text(note),
        )
    return table
