"""The outcome of a sweep in sentences: what was varied, and which combination
is best at both ends of the axis.

A combination is above another where their 95 % intervals do not overlap; where
they do, the seeds have not decided.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Any

from testbed.report.labels import capital, listed
from testbed.report.metric_words import MetricWords, metric_words
from testbed.spec.sweep_section import SweptKey, as_yaml, value_text
from testbed.sweeps.intervals import Estimate
from testbed.units import number_of

if TYPE_CHECKING:
    from testbed.sweeps.sweep_plan import SweepPlan
    from testbed.sweeps.sweep_tables import TableRow

NAMED = 4
"""Values, policies and combinations that a sentence names."""
FEW_POINTS = 0.03
"""Shares of accepted jobs further apart than this are named beside waits."""


@dataclass(frozen=True)
class Contender:
    """A combination at one value of the axis, and its mean."""

    label: str
    around: Estimate


@dataclass(frozen=True)
class Conclusion:
    """The box at the top of a sweep's page.

    ``asked``: a sentence on what was varied. ``outcomes``: for each metric its
    name and a sentence. ``remarks``: what a reader must know of them.
    """

    asked: str
    outcomes: tuple[tuple[str, str], ...]
    remarks: tuple[str, ...]
    mood: str


def conclusion(plan: SweepPlan, table: Sequence[TableRow]) -> Conclusion:
    """The conclusion from a sweep's table."""
    outcomes = []
    for index, metric in enumerate(plan.metrics):
        words = metric_words(metric)
        outcome = _outcome(plan, table, index, words)
        outcomes.append((words.heading, outcome))
    remarks = [*_trouble(table), *_accepted(plan, table)]
    return Conclusion(
        asked=_asked(plan, table),
        outcomes=tuple(outcomes),
        remarks=tuple(remarks),
        mood=_mood(table),
    )


# -- what was asked


def _asked(plan: SweepPlan, table: Sequence[TableRow]) -> str:
    """Keys with their values, policies, seeds, backend, fidelity."""
    varied = []
    policies = plan.policy
    for column, swept in zip(
        plan.combined_columns, plan.combined, strict=True
    ):
        if column == "policy":
            texts = list(map(as_yaml, swept))
            labels = [plan.labels.get(text, text) for text in texts]
            policies = first_names(labels)
        else:
            varied.append(_values_of(swept))
    seeds = seeds_of(row.cells for row in table)
    backend = f"live{_fidelity(table)}" if plan.live else "simulated"
    text = policies
    if varied:
        text += f" at {' and '.join(varied)}"
    return f"{text}; {backend}, {seeds} each."


def _values_of(swept: SweptKey) -> str:
    """``3 values of load, from 0.5 to 0.9``."""
    values = list(swept)
    axis = swept.axis
    if axis is None or len(values) == 1:
        return (
            f"{swept.key} {first_names(list(map(printed_value, values)))}"
        )
    places = axis.places
    least = min(values, key=lambda value: places[value])
    most = max(values, key=lambda value: places[value])
    # The unit stands with the values.
    title = axis.title.partition(" [")[0]
    count = number_of(len(values), "value")
    return f"{count} of {title}, from {least} to {most}"


def printed_value(value: Any) -> str:
    """A value as it is written, a text without quotes."""
    return value if isinstance(value, str) else as_yaml(value)


def first_names(names: Sequence[str]) -> str:
    """``a, b and c``; of many the first, and how many more."""
    if len(names) > NAMED:
        return f"{', '.join(names[:NAMED])} and {len(names) - NAMED:,} more"
    return listed(names)


def seeds_of(counts: Iterable[int]) -> str:
    """``3 seeds``, ``3 to 10 seeds``."""
    numbers = sorted(set(counts)) or [0]
    if len(numbers) == 1:
        return number_of(numbers[0], "seed")
    return f"{numbers[0]} to {number_of(numbers[-1], 'seed')}"


def verdict_counts(table: Sequence[TableRow]) -> Counter[str]:
    """Verdicts on live cells, each with its number."""
    return Counter(chain.from_iterable(row.fidelity for row in table))


def _fidelity(table: Sequence[TableRow]) -> str:
    """Verdicts on live cells, in brackets; empty of a simulated sweep."""
    verdicts = verdict_counts(table)
    if not verdicts:
        return ""
    if set(verdicts) == {"ok"}:
        return " (fidelity ok in all)"
    cells = number_of(verdicts.total(), "run")
    bad = [
        f"{verdict} in {count:,}"
        for verdict, count in verdicts.items()
        if verdict != "ok"
    ]
    return f" (fidelity {', '.join(bad)} of {cells})"


# -- the outcome


def _outcome(
    plan: SweepPlan,
    table: Sequence[TableRow],
    index: int,
    words: MetricWords,
) -> str:
    """A metric's sentence: its ranking at both ends of the axis."""
    parts = []
    for place, rows in _ends(plan, table):
        contenders = [
            Contender(label or "all", row.estimates[index])
            for label, row in rows
            if row.estimates[index].n
        ]
        parts.append(f"{place}{ranking(contenders, words)}")
    return f"{'; '.join(parts)}."


def _ends(
    plan: SweepPlan, table: Sequence[TableRow]
) -> Iterator[tuple[str, list[tuple[str, TableRow]]]]:
    """The least and the largest value of the axis, each with its combinations
    of the other keys; all of them where there is no axis.
    """
    columns = plan.combined_columns
    for at, swept in enumerate(plan.combined):
        axis = swept.axis
        if axis is not None and len(columns) > 1 and len(swept) > 1:
            places = axis.places
            values = sorted(swept, key=lambda value: places[value])
            for value in (values[0], values[-1]):
                yield f"at {value} ", list(_at(value, at, columns, table))
            return
    yield "", [(label_of(columns, row.values), row) for row in table]


def _at(
    value: Any, at: int, columns: tuple[str, ...], table: Sequence[TableRow]
) -> Iterator[tuple[str, TableRow]]:
    """The combinations with a value of the key ``at``, named by their other
    keys.
    """
    others = columns[:at] + columns[at + 1 :]
    for row in table:
        if row.values[at] == value:
            rest = row.values[:at] + row.values[at + 1 :]
            yield label_of(others, rest), row


def label_of(columns: Sequence[str], values: Sequence[object]) -> str:
    """A combination's name: a policy by its name alone."""
    words = []
    for column, value in zip(columns, values, strict=True):
        text = value_text(value)
        if column != "policy":
            text = f"{column} {text}"
        words.append(text)
    return ", ".join(words)


def ranking(contenders: Sequence[Contender], words: MetricWords) -> str:
    """The first contender and its distance to the second, where the intervals
    decide it.
    """
    if not contenders:
        return "no values"
    least_first = words.best == "least"
    ranked = sorted(
        contenders,
        key=lambda contender: contender.around.mean,
        reverse=not least_first,
    )
    first, *others = ranked
    value = words.text(first.around.mean)
    if not others:
        return f"{first.label} {value}"
    if all(other.around.mean == first.around.mean for other in others):
        return f"the same with all, {value}"
    level = [
        contender
        for contender in ranked
        if not first.around.is_apart(contender.around)
    ]
    if len(level) > 1:
        return _undecided(level, words)
    second = others[0]
    away = abs(first.around.mean - second.around.mean)
    superlative = "least" if least_first else "most"
    comparative = "less" if least_first else "more"
    return (
        f"{superlative} with {first.label}, {value}:"
        f" {words.distance(away)} {comparative} than {second.label}"
    )


def _undecided(level: Sequence[Contender], words: MetricWords) -> str:
    names = []
    for contender in level:
        value = words.text(contender.around.mean)
        names.append(f"{contender.label} ({value})")
    seeds = seeds_of(contender.around.n for contender in level)
    return f"not decided by {seeds} between {first_names(names)}"


# -- what to know of it


def _trouble(table: Sequence[TableRow]) -> Iterator[str]:
    """Cells that failed, or are outside what was expected."""
    cells = number_of(sum(row.cells for row in table), "run")
    failed = sum(row.failed for row in table)
    outside = sum(row.outside for row in table)
    if failed:
        yield f"{failed:,} of {cells} failed: the reasons stand below."
    if outside:
        yield f"{outside:,} of {cells} outside what the file expects."


def _accepted(plan: SweepPlan, table: Sequence[TableRow]) -> Iterator[str]:
    """A remark where the shares of accepted jobs differ: it says which jobs the
    means of waits are taken over.
    """
    names = [metric_words(metric) for metric in plan.metrics]
    over = [words for words in names if words.of_jobs]
    least = least_accepted(table)
    if not over or least is None:
        return
    parts = [f"{words.name} is of {words.of_jobs}" for words in over]
    text = first_names(parts)
    where = dict(zip(plan.combined_columns, least.values, strict=True))
    policy = where.pop("policy", plan.policy)
    at = ""
    if where:
        at = f" ({label_of(list(where), list(where.values()))})"
    share = f"{100 * (least.accepted or 0.0):.1f} %"
    yield (
        f"{capital(text)}. A policy that rejects most jobs has few"
        f" that could wait: {policy} accepted {share}{at}."
    )


def least_accepted(table: Sequence[TableRow]) -> TableRow | None:
    """The combination that accepted the least share of its jobs; None where all
    are within a few points.
    """
    rows = [row for row in table if row.accepted is not None]
    shares = [row.accepted or 0.0 for row in rows]
    if not shares or max(shares) - min(shares) <= FEW_POINTS:
        return None
    return rows[shares.index(min(shares))]


def _mood(table: Sequence[TableRow]) -> str:
    if any(row.failed for row in table):
        return "bad"
    for row in table:
        if row.outside or any(verdict != "ok" for verdict in row.fidelity):
            return "doubt"
    return "open"
