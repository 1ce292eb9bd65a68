"""Two sweeps beside each other: their combinations' means, from ``table.csv``."""

from __future__ import annotations

import csv
import math
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from io import TextIOWrapper
from pathlib import Path
from typing import Any

from testbed.errors import BadInput
from testbed.record.stored_json import open_regular
from testbed.report.metric_words import metric_words
from testbed.sweeps.intervals import ROUNDING, Estimate
from testbed.sweeps.sweep_tables import (
    FAILED,
    TABLE_CSV,
    four_digits,
    with_interval,
)
from testbed.units import number_of

CELLS = "cells"
INTERVAL = "_ci95"


@dataclass(frozen=True)
class SweepTable:
    """``table.csv`` of a sweep: means by the combination's values and metric."""

    name: str
    keys: tuple[str, ...]
    means: dict[tuple[str, ...], dict[str, Estimate]]


@dataclass(frozen=True)
class MetricPair:
    """A metric of a combination in both sweeps."""

    values: tuple[str, ...]
    metric: str
    first: Estimate
    second: Estimate

    @property
    def second_less_first(self) -> float:
        """The second mean less the first; 0 where rounding alone is between
        them.
        """
        if math.isclose(
            self.first.mean, self.second.mean, rel_tol=ROUNDING
        ):
            return 0.0
        return self.second.mean - self.first.mean

    @property
    def is_apart(self) -> bool:
        """True where there are two 95 % intervals that do not overlap."""
        return self.first.is_apart(self.second)

    @property
    def lacks_interval(self) -> bool:
        """True where a mean has none, as that of a single seed."""
        return None in (self.first.half_width, self.second.half_width)

    def cells(self) -> list[str]:
        """As text: values, metric, both means, second less first."""
        difference = "0"
        if self.second_less_first:
            difference = four_digits(self.second_less_first, "+")
        if self.is_apart:
            difference += " (apart)"
        both = with_interval(self.first), with_interval(self.second)
        return [*self.values, self.metric, *both, difference]

    def page_cells(self) -> list[str]:
        """The same with the metric in words, in its unit, and who has more."""
        words = metric_words(self.metric)
        scale = words.scale(max(self.first.mean, self.second.mean))
        both = [
            with_interval(mean.scaled(1 / scale.size))
            for mean in (self.first, self.second)
        ]
        away = words.distance(abs(self.second_less_first))
        difference = "the same"
        if self.second_less_first:
            side = "second" if self.second_less_first > 0 else "first"
            difference = f"{side} {away} more"
        if self.is_apart:
            difference += " (apart)"
        title = scale.titled(words.heading)
        return [*self.values, title, *both, difference, self.metric]


@dataclass(frozen=True)
class SweepComparison:
    """Means of two sweeps over the same keys, combination by combination.

    ``only_in``: the number of combinations that one sweep alone has, of each.
    """

    names: tuple[str, str]
    keys: tuple[str, ...]
    pairs: tuple[MetricPair, ...]
    only_in: tuple[int, int]

    @property
    def columns(self) -> tuple[str, ...]:
        return (
            *self.keys,
            "metric",
            "first",
            "second",
            "second less first",
        )

    def sentences(self) -> list[str]:
        """Numbers of combinations in both, and of means that differ."""
        combinations = {pair.values for pair in self.pairs}
        lines = [
            f"{number_of(len(combinations), 'combination is', 'combinations are')} in both"
        ]
        for name, count in zip(self.names, self.only_in, strict=True):
            if count:
                lines.append(f"{count:,} are only in {name}")
        differing = [pair for pair in self.pairs if pair.second_less_first]
        if not differing:
            lines.append("all means are the same")
            return lines
        apart = sum(pair.is_apart for pair in differing)
        lines.append(
            f"{len(differing):,} of {len(self.pairs):,} means differ,"
            f" {apart:,} by more than both 95 % intervals (apart)"
        )
        return lines

    def outcomes(self) -> list[str]:
        """A sentence a metric: in how many combinations the intervals decide
        which sweep has more.
        """
        by_metric: dict[str, list[MetricPair]] = {}
        for pair in self.pairs:
            by_metric.setdefault(pair.metric, []).append(pair)
        lines = []
        for metric, pairs in by_metric.items():
            apart = [pair for pair in pairs if pair.is_apart]
            more = sum(pair.second_less_first > 0 for pair in apart)
            n_lacking = sum(pair.lacks_interval for pair in pairs)
            n_overlapping = len(pairs) - len(apart) - n_lacking
            count = number_of(len(pairs), "combination")
            if not any(pair.second_less_first for pair in pairs):
                name = metric_words(metric).heading
                lines.append(f"{name}: the same in {count}.")
                continue
            line = (
                f"{metric_words(metric).heading}, in {count}: more in the second"
                f" sweep in {more:,}, in the first in {len(apart) - more:,};"
                f" the intervals overlap in {n_overlapping:,}"
            )
            if n_lacking:
                line += f"; {n_lacking:,} without two intervals"
            lines.append(f"{line}.")
        return lines

    def to_json(self) -> dict[str, Any]:
        """Output of ``--json``."""
        means = []
        for pair in self.pairs:
            values = dict(zip(self.keys, pair.values, strict=True))
            record = {
                "values": values,
                "metric": pair.metric,
                "first": asdict(pair.first),
                "second": asdict(pair.second),
                "apart": pair.is_apart,
            }
            means.append(record)
        return {
            "sweeps": list(self.names),
            "only_in": list(self.only_in),
            "means": means,
        }


def is_sweep(folder: Path) -> bool:
    return (folder / TABLE_CSV).is_file()


def compare_sweeps(first: Path, second: Path) -> SweepComparison:
    """Raises BadInput for sweeps of different keys, and for tables that are
    damaged.
    """
    tables = stored_table(first), stored_table(second)
    if tables[0].keys != tables[1].keys:
        of_first, of_second = (", ".join(table.keys) for table in tables)
        raise BadInput(
            f"{first} varies {of_first}, and {second} varies {of_second}",
            "compare sweeps over the same keys",
        )
    first_means = tables[0].means
    second_means = tables[1].means
    return SweepComparison(
        names=(tables[0].name, tables[1].name),
        keys=tables[0].keys,
        pairs=tuple(_pairs(first_means, second_means)),
        only_in=(
            len(first_means.keys() - second_means),
            len(second_means.keys() - first_means),
        ),
    )


Means = dict[tuple[str, ...], dict[str, Estimate]]


def _pairs(first: Means, second: Means) -> Iterator[MetricPair]:
    for values, metrics in first.items():
        others = second.get(values, {})
        for metric, mean in metrics.items():
            if metric in others:
                yield MetricPair(values, metric, mean, others[metric])


def stored_table(folder: Path) -> SweepTable:
    """The table in a sweep's folder. Raises BadInput where there is none that
    can be read.
    """
    file = folder / TABLE_CSV
    means: Means = {}
    try:
        with (
            open_regular(file) as content,
            TextIOWrapper(content, encoding="utf-8", newline="") as text,
        ):
            rows = csv.DictReader(text)
            columns = tuple(rows.fieldnames or ())
            # Keys stand before the count of cells, metrics behind it.
            keys = columns[: columns.index(CELLS)]
            for row in rows:
                values = tuple(row[key] for key in keys)
                means[values] = dict(_estimates(columns, row))
    except OSError as error:
        raise BadInput(f"{file}: {error.strerror}") from error
    except (ValueError, KeyError, TypeError, csv.Error) as error:
        raise BadInput(
            f"{file}: is no table of a sweep: {error}"
        ) from error
    return SweepTable(folder.name, keys, means)


def _estimates(
    columns: Sequence[str], row: dict[str, str]
) -> Iterator[tuple[str, Estimate]]:
    """The metrics of a combination that have a mean."""
    count = int(row[CELLS]) - int(row.get(FAILED, 0))
    for name in columns:
        half_width = row.get(name + INTERVAL)
        if half_width is not None and row[name]:
            width = _finite(half_width) if half_width else None
            yield name, Estimate(_finite(row[name]), width, count)


def _finite(text: str) -> float:
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text!r} is not a finite number")
    return number
