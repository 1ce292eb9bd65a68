"""Several policies on the same jobs: a sentence, and how their jobs fared as
cumulative distributions.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol

from testbed.foreign_text import plain_text
from testbed.record.metrics import JobRow, Summary
from testbed.report.plot_style import figure, series_colour, svg
from testbed.units import human_duration, number_of

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
"""Curves differ in these too, not by their colours alone."""


class PolicyRows(Protocol):
    """A policy's run: its jobs, and their summary."""

    @property
    def rows(self) -> tuple[JobRow, ...]: ...

    @property
    def summary(self) -> Summary: ...


@dataclass(frozen=True)
class Quantity:
    """A quantity of a job; seconds where it is a time."""

    title: str
    label: str
    value: Callable[[JobRow], float | None]
    is_time: bool = True


QUANTITIES = (
    Quantity("Wait until the first start", "wait", lambda row: row.wait_s),
    Quantity(
        "Response: from submission to the end",
        "response",
        lambda row: row.response_s,
    ),
    Quantity(
        "Measured over estimated time",
        "measured / estimate",
        lambda row: row.ratio,
        is_time=False,
    ),
)

Curves = list[tuple[str, list[float]]]
"""Policies, and the sorted values of their jobs."""


@dataclass(frozen=True)
class PolicyCurves:
    """A quantity's curves, a policy each; ``number``: its place on the page."""

    number: int
    quantity: Quantity
    curves: Curves

    @property
    def alt(self) -> str:
        """The median of each policy."""
        return _in_words(self.quantity, self.curves)

    def draw(self) -> Figure:
        """A step curve per policy."""
        return _figure(self.quantity, self.curves)

    @property
    def svg(self) -> str:
        """The picture inline in a page."""
        return svg(self.draw(), f"cdf-{self.number}")

    def rows(self) -> Iterator[tuple[str, float | str, float | str]]:
        """Headings, then each job's value and the share of jobs up to it."""
        yield "policy", "value", "share"
        for policy, values in self.curves:
            for index, value in enumerate(values):
                yield policy, value, (index + 1) / len(values)


def policies_sentence(runs: Sequence[PolicyRows]) -> str:
    """The outcome over all policies in a sentence."""
    summaries = [run.summary for run in runs]
    return f"{_finished(summaries)}{_waited(summaries)}."


def _finished(summaries: Sequence[Summary]) -> str:
    jobs = number_of(summaries[0].jobs, "job")
    most = max(summary.finished for summary in summaries)
    least = min(summary.finished for summary in summaries)
    if most == least:
        return f"Every policy finished {most:,} of {jobs}"
    best = [
        summary.policy for summary in summaries if summary.finished == most
    ]
    return f"{_listed(best)} finished most of {jobs}: {most:,}"


def _waited(summaries: Sequence[Summary]) -> str:
    """The shortest and the longest mean wait; nothing where they are alike."""
    waits = []
    for summary in summaries:
        if summary.wait_mean_s is not None and summary.finished:
            waits.append((summary.wait_mean_s, summary.policy))
    if len(waits) < 2:
        return ""
    shortest_s, shortest = min(waits)
    longest_s, longest = max(waits)
    if shortest_s == longest_s:
        return ""
    return (
        f"; those that started waited least with {shortest}"
        f" ({human_duration(shortest_s)} on average), longest with {longest}"
        f" ({human_duration(longest_s)})"
    )


def _listed(policies: list[str]) -> str:
    if len(policies) == 1:
        return policies[0]
    return f"{', '.join(policies[:-1])} and {policies[-1]}"


def distributions(runs: Sequence[PolicyRows]) -> list[PolicyCurves]:
    """Those of each quantity in which jobs or policies differ."""
    shown: list[PolicyCurves] = []
    for quantity in QUANTITIES:
        curves = _curves(runs[:MAX_POLICIES], quantity)
        if len(curves) > 1 and _differ(curves):
            shown.append(PolicyCurves(len(shown), quantity, curves))
    return shown


def _differ(curves: Curves) -> bool:
    """True if values differ by more than the rounding of floats."""
    least = min(values[0] for _, values in curves)
    most = max(values[-1] for _, values in curves)
    return most - least > ROUNDING * abs(most)


def _curves(runs: Sequence[PolicyRows], quantity: Quantity) -> Curves:
    curves = []
    for run in runs:
        values = []
        for row in run.rows:
            value = quantity.value(row)
            if value is not None:
                values.append(value)
        if values:
            curves.append((plain_text(run.summary.policy), sorted(values)))
    return curves


def _in_words(quantity: Quantity, curves: Curves) -> str:
    """The median of each policy."""
    medians = []
    for policy, values in curves:
        # The values are sorted.
        median = values[len(values) // 2]
        text = f"{median:.4f}"
        if quantity.is_time:
            text = human_duration(median)
        medians.append(f"{policy} {text}")
    return f"{quantity.title}, medians: {', '.join(medians)}."


_UNITS = (("h", 3600.0), ("min", 60.0), ("s", 1.0))


def _unit(largest_s: float) -> tuple[str, float]:
    for name, unit_s in _UNITS:
        if largest_s > 3 * unit_s:
            return name, unit_s
    return _UNITS[-1]


def _figure(quantity: Quantity, curves: Curves) -> Figure:
    with figure(9.0, 3.2) as made:
        axes = made.add_subplot()
        label = quantity.label
        size = 1.0
        if quantity.is_time:
            longest = max(values[-1] for _, values in curves)
            unit, size = _unit(longest)
            label = f"{label} [{unit}]"
        for number, (policy, values) in enumerate(curves):
            _draw(axes, number, policy, [value / size for value in values])
        axes.set_xlabel(label)
        axes.set_ylabel("share of jobs [%]")
        # Room above 100 %, where every curve ends: on the edge half of its
        # line would be cut off.
        axes.set_ylim(0, 103)
        # Outside: the curves end in the upper right, and begin anywhere.
        axes.legend(loc="center left", bbox_to_anchor=(1.0, 0.5))
    return made


def _draw(
    axes: Axes, number: int, policy: str, values: list[float]
) -> None:
    n = len(values)
    shares = [100 * rank / n for rank in range(1, n + 1)]
    axes.step(
        # The least value twice: the curve rises from zero there.
        [values[0], *values],
        [0.0, *shares],
        where="post",
        color=series_colour(number),
        linestyle=DASHES[number % len(DASHES)],
        linewidth=1.6,
        label=policy,
    )
