"""Pictures of a policy's place among the others: success rate and slowdown, a
row a policy.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from testbed.policy_trials.policy_standing import METRICS
from testbed.report.pictures import Picture
from testbed.report.plot_style import MUTED, SERIES, figure
from testbed.units import number_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

    from testbed.policy_trials.policy_standing import Row, Standing

WIDTH_IN = 8.4
ROW_IN = 0.26
AROUND_IN = 1.3
PERCENT = 100.0
SUCCESS = "success_rate"


def standing_picture(standing: Standing, number: int) -> Picture:
    """One workload's picture. ``number``: of its table, from 1."""
    return Picture(
        f"standing-{number}",
        partial(standing_figure, standing),
        standing_alt(standing),
        partial(standing_rows, standing),
    )


def standing_alt(standing: Standing) -> str:
    """The place of the policy under check, in words."""
    ranked = [row for row in standing.rows if _is_known(row)]
    for place, row in enumerate(ranked, 1):
        if row.own:
            policies = number_of(len(ranked), "policy", "policies")
            return (
                f"{standing.workload}: {row.policy} is number {place} of"
                f" {policies}, by success rate and then slowdown."
            )
    return f"{standing.workload}: the policy under check has no means."


def _is_known(row: Row) -> bool:
    return row.metrics[SUCCESS] is not None


def standing_figure(standing: Standing) -> Figure:
    """The best on top; the policy under check in colour."""
    rows = [row for row in standing.rows if _is_known(row)]
    height_in = AROUND_IN + ROW_IN * len(rows)
    with figure(WIDTH_IN, height_in) as made:
        success, slowdown = made.subplots(1, 2, sharey=True)
        _draw(success, rows, SUCCESS, PERCENT)
        success.set_xlim(-3, 103)
        success.set_xlabel("jobs that finished in time [%]")
        success.set_yticks(range(len(rows)), [row.policy for row in rows])
        success.invert_yaxis()
        _draw(slowdown, rows, "bounded_slowdown_mean", 1.0)
        slowdown.set_xlabel("mean bounded slowdown [1]")
        # Slowdowns of policies that let jobs wait lie far from the others'.
        if _spread(rows) > 100:
            slowdown.set_xscale("log")
            # matplotlib's own labels are formulas, which names of policies
            # forbid.
            slowdown.xaxis.set_major_formatter("{x:g}")
    return made


def _spread(rows: Sequence[Row]) -> float:
    """The largest mean slowdown over the smallest."""
    means = []
    for row in rows:
        value = row.metrics["bounded_slowdown_mean"]
        if value is not None and value.mean > 0:
            means.append(value.mean)
    return max(means) / min(means) if means else 1.0


def _draw(
    axes: Axes, rows: Sequence[Row], metric: str, factor: float
) -> None:
    most = 1.0 if metric == SUCCESS else math.inf
    for place, row in enumerate(rows):
        value = row.metrics[metric]
        if value is None or not math.isfinite(value.mean):
            continue
        low, high = value.within(0.0, most)
        axes.errorbar(
            [factor * value.mean],
            [place],
            xerr=[
                [factor * (value.mean - low)],
                [factor * (high - value.mean)],
            ],
            color=SERIES[1] if row.own else MUTED,
            marker="D" if row.own else "o",
            markersize=6 if row.own else 5,
            capsize=3,
        )


def standing_rows(standing: Standing) -> Iterator[Sequence[Any]]:
    """A row a policy: means, and half the width of their 95 % intervals."""
    columns = []
    for metric in METRICS:
        columns += [metric, f"{metric}_ci95"]
    yield "workload", "seeds", "policy", "under_check", *columns
    for row in standing.rows:
        values: list[float | None] = []
        for metric in METRICS:
            value = row.metrics[metric]
            if value is None:
                values += [None, None]
            else:
                values += [value.mean, value.half_width]
        seeds = len(standing.seeds)
        yield standing.workload, seeds, row.policy, row.own, *values
