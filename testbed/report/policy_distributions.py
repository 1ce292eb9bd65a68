"""Several policies on the same jobs: a sentence, and how their jobs fared as
cumulative distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import TYPE_CHECKING, Any, TypeAlias

from testbed.foreign_text import plain_text
from testbed.record.conclusion import Results
from testbed.record.metrics import (
    LIVE,
    JobRow,
    Summary,
    present,
    quantile,
    severity,
)
from testbed.record.reading import RecordedRun
from testbed.report.labels import listed, ratio_text, seconds_text
from testbed.report.metric_words import MetricScale, time_scale
from testbed.report.plot_style import MARKERS, figure, series_colour, svg
from testbed.units import number_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

# Six colours and four dashes, each counted on its own, come together again
# after twelve.
MAX_POLICIES = 12
ROUNDING = 1e-6
DASHES: tuple[Any, ...] = (
    "-",
    (0, (5, 2)),
    (0, (1, 1.2)),
    (0, (6, 2, 1, 2)),
)
"""Curves differ in these and in their marks, not by their colours alone."""
MARK_DISTANCE = 0.12
"""Between two marks of a curve, as a share of the picture's diagonal."""
MARGIN = 0.02
"""Room before zero, so that a curve on it is not on the axis."""


PlayedPolicy: TypeAlias = Results | RecordedRun
"""A policy's run, of which the ``rows`` and their ``summary`` are used."""


@dataclass(frozen=True)
class Quantity:
    """A quantity of a job; seconds where it is a time.

    ``clause``: the jobs that have it, as a relative clause.
    """

    title: str
    label: str
    clause: str
    value: Callable[[JobRow], float | None]
    is_time: bool = True


QUANTITIES = (
    Quantity(
        "Wait until the first start",
        "wait",
        "that started",
        attrgetter("wait_s"),
    ),
    Quantity(
        "Response: from submission to the end",
        "response",
        "that finished",
        attrgetter("response_s"),
    ),
    Quantity(
        "Measured over estimated time",
        "measured/estimate",
        "that finished and had an estimate",
        attrgetter("ratio"),
        is_time=False,
    ),
)


@dataclass(frozen=True)
class Curve:
    """The sorted values of a policy's jobs; some of its ``n_jobs`` have none."""

    policy: str
    values: tuple[float, ...]
    n_jobs: int

    @property
    def shares(self) -> list[float]:
        """The share of all jobs up to each value."""
        n_values = len(self.values)
        return [rank / self.n_jobs for rank in range(1, n_values + 1)]


Curves = list[Curve]


@dataclass(frozen=True)
class PolicyCurves:
    """A quantity's curves, a policy each; ``number``: its place on the page."""

    number: int
    quantity: Quantity
    curves: Curves

    @property
    def alt(self) -> str:
        """The picture in a sentence, and the median of each policy."""
        quantity = self.quantity
        text = seconds_text if quantity.is_time else ratio_text
        medians = []
        for curve in self.curves:
            median = text(quantile(curve.values, 0.5))
            jobs = number_of(curve.n_jobs, "job")
            counted = f"{len(curve.values):,} of {jobs}"
            medians.append(f"{curve.policy} {median} ({counted})")
        return (
            f"{quantity.title}: the share of all submitted jobs up to each"
            " value. A curve ends, at its larger mark, with the last of the"
            f" jobs {quantity.clause}. Medians of these:"
            f" {', '.join(medians)}."
        )

    def draw(self) -> Figure:
        """A step curve per policy."""
        quantity = self.quantity
        with figure(9.0, 3.2) as made:
            axes = made.add_subplot()
            scale = MetricScale("", 1.0)
            longest = max(curve.values[-1] for curve in self.curves)
            if quantity.is_time:
                scale = time_scale(longest)
            for number, curve in enumerate(self.curves):
                _draw(axes, number, curve, scale.size)
            axes.set_xlabel(scale.titled(quantity.label))
            axes.set_ylabel("share of all jobs [%]")
            if quantity.is_time:
                axes.set_xlim(left=-MARGIN * longest / scale.size)
            # Room above 100 %, where a curve may end: on the edge half of its
            # line would be cut off.
            axes.set_ylim(0, 103)
            # Outside: the curves end in the upper right, and begin anywhere.
            axes.legend(
                loc="center left",
                bbox_to_anchor=(1.0, 0.5),
                handlelength=4.5,
            )
        return made

    @property
    def svg(self) -> str:
        """The picture inline in a page."""
        return svg(self.draw(), f"cdf-{self.number}")

    def rows(self) -> Iterator[tuple[str, float | str, float | str]]:
        """Headings, then each job's value and the share of all jobs up to it."""
        yield "policy", "value", "share"
        for curve in self.curves:
            for value, share in zip(
                curve.values, curve.shares, strict=True
            ):
                yield curve.policy, value, share


def policies_sentence(runs: Sequence[PlayedPolicy]) -> str:
    """The outcome over all policies in some sentences, bad news first."""
    summaries = [run.summary for run in runs]
    first = summaries[0]
    kind = "Simulated"
    if first.backend == LIVE:
        kind = "Live"
    texts = [
        _fidelity(summaries),
        _finished(summaries),
        _waited(summaries),
        f"{kind}, seed {first.seed} only",
    ]
    return " ".join(f"{text}." for text in texts if text)


def _fidelity(summaries: Sequence[Summary]) -> str:
    """The fidelity of all live runs, the worst first; empty for simulated ones."""
    policies: dict[str, list[str]] = {}
    for summary in summaries:
        level = summary.fidelity.verdict
        if level is not None:
            policies.setdefault(level, []).append(summary.policy)
    if list(policies) == ["ok"]:
        return "The fidelity of every policy's run is ok"
    parts = []
    for level in sorted(policies, key=severity, reverse=True):
        parts.append(f"{level} for {listed(policies[level])}")
    return f"Fidelity is {', '.join(parts)}" if parts else ""


def _finished(summaries: Sequence[Summary]) -> str:
    jobs = number_of(summaries[0].jobs, "job")
    most = max(summary.finished for summary in summaries)
    least = min(summary.finished for summary in summaries)
    if most == least:
        return f"Every policy finished {most:,} of {jobs}"
    best = [row.policy for row in summaries if row.finished == most]
    worst = [row.policy for row in summaries if row.finished == least]
    return (
        f"{listed(best)} finished the most jobs: {most:,} of"
        f" {summaries[0].jobs:,}; {listed(worst)} the fewest: {least:,}"
    )


def _waited(summaries: Sequence[Summary]) -> str:
    """The shortest and the longest mean wait; nothing where they are alike."""
    # Waits with the same text are a tie: they differ in a rounding.
    policies: dict[str, list[str]] = {}
    by_wait = [summary for summary in summaries if summary.finished]
    by_wait.sort(key=lambda summary: summary.wait_mean_s or 0.0)
    for summary in by_wait:
        if summary.wait_mean_s is not None:
            text = seconds_text(summary.wait_mean_s)
            policies.setdefault(text, []).append(summary.policy)
    if len(policies) < 2:
        return ""
    shortest, *_, longest = policies
    return (
        f"Jobs that started waited least with {listed(policies[shortest])}"
        f" ({shortest} on average), longest with"
        f" {listed(policies[longest])} ({longest})"
    )


def distributions(runs: Sequence[PlayedPolicy]) -> list[PolicyCurves]:
    """The curves of each quantity in which jobs or policies differ."""
    shown: list[PolicyCurves] = []
    for quantity in QUANTITIES:
        curves = _curves(runs[:MAX_POLICIES], quantity)
        if len(curves) > 1 and _differ(curves):
            shown.append(PolicyCurves(len(shown), quantity, curves))
    return shown


def _differ(curves: Curves) -> bool:
    """True if values differ by more than the rounding of floats."""
    least = min(curve.values[0] for curve in curves)
    most = max(curve.values[-1] for curve in curves)
    return most - least > ROUNDING * abs(most)


def _curves(runs: Sequence[PlayedPolicy], quantity: Quantity) -> Curves:
    curves = []
    for run in runs:
        values = sorted(present(map(quantity.value, run.rows)))
        if values:
            policy = plain_text(run.summary.policy)
            curves.append(Curve(policy, tuple(values), len(run.rows)))
    return curves


def _draw(axes: Axes, number: int, curve: Curve, size: float) -> None:
    """A curve in units of ``size``, marked along its way and at its end."""
    values = [value / size for value in curve.values]
    shares = [100 * share for share in curve.shares]
    colour = series_colour(number)
    marker = MARKERS[number % len(MARKERS)]
    axes.step(
        # The least value twice: the curve rises from zero there.
        [values[0], *values],
        [0.0, *shares],
        where="post",
        color=colour,
        linestyle=DASHES[number % len(DASHES)],
        linewidth=1.6,
        marker=marker,
        markersize=4.5,
        # Each curve's first mark is elsewhere: of curves that lie on each
        # other every one is seen.
        markevery=(MARK_DISTANCE * (number + 1) / 4, MARK_DISTANCE),
        label=curve.policy,
    )
    axes.plot(
        values[-1],
        shares[-1],
        marker,
        color=colour,
        markersize=8,
        clip_on=False,
    )
