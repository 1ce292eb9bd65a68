"""``testbed.compare``: decisions, jobs and metrics of two runs, as frames."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.interface.finished_run import Run
from testbed.interface.notebook_tables import html_table
from testbed.record.columns import SUMMARY, Columns
from testbed.record.comparison import (
    Difference,
    PolicyComparison,
    compare_runs,
    paired_folders,
)
from testbed.record.frames import records_frame, summary_record
from testbed.record.reading import load_run
from testbed.record.run_names import run_folder
from testbed.report.comparison_sentences import sentences
from testbed.report.labels import or_dash
from testbed.spec.given_values import path_argument

if TYPE_CHECKING:
    import pandas as pd

JOBS: Columns = {
    "first": "string",
    "second": "string",
    "job_id": "string",
    "outcome_first": "string",
    "outcome_second": "string",
    "start_s_first": "Float64",
    "start_s_second": "Float64",
    "measured_s_first": "Float64",
    "measured_s_second": "Float64",
    "end_s_first": "Float64",
    "end_s_second": "Float64",
    "completion_difference": "Float64",
    "later_s": "Float64",
}
METRICS: Columns = {
    "first": "string",
    "second": "string",
    "metric": "string",
    "value_first": "Float64",
    "value_second": "Float64",
    "difference": "Float64",
}
_NUMBERS = tuple(
    name
    for name, kind in SUMMARY.items()
    # A seed is a number, and no metric.
    if kind in ("Int64", "Float64") and name != "seed"
)
SHOWN = (
    "finished",
    "rejected",
    "success_rate",
    "vm_utilisation",
    "link_utilisation",
    "wait_mean_s",
    "response_mean_s",
    "revenue",
    "estimate_ratio.median",
)
_text = or_dash("{:,.6g}".format)


def compare(
    first: Run | str | os.PathLike[str],
    second: Run | str | os.PathLike[str],
) -> Comparison:
    """Two runs of the same jobs, each as a :class:`Run` or by its folder.

    Runs of several policies are compared policy by policy. Raises BadInput
    where they have none in common, and for a folder that is no run's or
    damaged.
    """
    pairs = paired_folders(_folder(first), _folder(second))
    return Comparison(
        [compare_runs(*map(load_run, pair)) for pair in pairs]
    )


def _folder(run: Run | str | os.PathLike[str]) -> Path:
    if isinstance(run, Run):
        return run.folder
    named = path_argument(run, "compare takes runs, their folders or names")
    return run_folder(named)


class Comparison:
    """Two runs beside each other. Made by :func:`compare`.

    In ``jobs`` and ``metrics`` the columns ``first`` and ``second`` name what
    is compared: policy and backend.
    """

    def __init__(self, pairs: list[PolicyComparison]) -> None:
        self._pairs = pairs

    @property
    def same_decisions(self) -> bool:
        """True if the policies did the same to the same jobs in one order.

        Times do not count.
        """
        return all(pair.same_decisions for pair in self._pairs)

    @property
    def first_difference(self) -> Difference | None:
        """The first decision that differs: ``place``, ``first``, ``second``.

        None where none does.
        """
        differences = [pair.difference for pair in self._pairs]
        return next((first for first in differences if first), None)

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """A row for each job that both runs have."""
        return records_frame(self._job_records(), JOBS)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """A row for each number of the summaries, with second minus first."""
        return records_frame(self._metric_records(), METRICS)

    def _job_records(self) -> Iterator[dict[str, Any]]:
        for pair in self._pairs:
            for job in pair.jobs:
                record: dict[str, Any] = _named(pair) | {
                    "job_id": job.job_id,
                    "completion_difference": job.completion_difference,
                    "later_s": job.later_s,
                }
                for place, which in enumerate(("first", "second")):
                    record[f"outcome_{which}"] = job.outcomes[place]
                    record[f"start_s_{which}"] = job.start_s[place]
                    record[f"measured_s_{which}"] = job.measured_s[place]
                    record[f"end_s_{which}"] = job.end_s[place]
                yield record

    def _metric_records(self) -> Iterator[dict[str, Any]]:
        for pair in self._pairs:
            first = summary_record(pair.summaries[0].to_json())
            second = summary_record(pair.summaries[1].to_json())
            for metric in _NUMBERS:
                difference = None
                if first[metric] is not None and second[metric] is not None:
                    difference = second[metric] - first[metric]
                yield _named(pair) | {
                    "metric": metric,
                    "value_first": first[metric],
                    "value_second": second[metric],
                    "difference": difference,
                }

    def sentences(self) -> list[str]:
        """Sentences on what is the same and what is not, as the command prints
        them.
        """
        return list(chain.from_iterable(map(sentences, self._pairs)))

    def __repr__(self) -> str:
        names = "; ".join(" and ".join(pair.names) for pair in self._pairs)
        return f"<Comparison {names}>"

    def _repr_html_(self) -> str:
        return "".join(map(_table, self._pairs))


def _named(pair: PolicyComparison) -> dict[str, Any]:
    return {"first": pair.names[0], "second": pair.names[1]}


def _table(pair: PolicyComparison) -> str:
    records = [
        summary_record(summary.to_json()) for summary in pair.summaries
    ]
    rows = [["metric", *pair.names]]
    for metric in SHOWN:
        texts = [_text(record[metric]) for record in records]
        rows.append([metric, *texts])
    return html_table(rows, " and ".join(pair.names), sentences(pair))
