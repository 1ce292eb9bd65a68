"""``testbed.compare``: decisions, jobs and metrics of two runs beside each other, as frames."""

from __future__ import annotations

import os
from collections.abc import Iterator
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.interface.finished_run import Run
from testbed.interface.notebook_tables import html_table
from testbed.results.columns import SUMMARY, Columns
from testbed.results.comparison import Comparison as PolicyComparison
from testbed.results.comparison import Difference, paired_folders
from testbed.results.comparison import compare as compare_policies
from testbed.results.frames import records_frame, summary_record
from testbed.results.reading import load_run

if TYPE_CHECKING:
    import pandas as pd

JOBS: Columns = {
    "first": "string",
    "second": "string",
    "job_id": "string",
    "outcome_first": "string",
    "outcome_second": "string",
    "measured_s_first": "Float64",
    "measured_s_second": "Float64",
    "end_s_first": "Float64",
    "end_s_second": "Float64",
    "completion_difference": "Float64",
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
    name for name, kind in SUMMARY.items() if kind in ("Int64", "Float64") and name != "seed"
)
SHOWN = (
    "finished", "rejected", "success_rate", "vm_utilisation", "link_utilisation", "wait_mean_s",
    "response_mean_s", "revenue", "estimate_ratio.median",
)  # fmt: skip


def compare(
    first: Run | str | os.PathLike[str], second: Run | str | os.PathLike[str]
) -> Comparison:
    """Two runs of the same jobs, each as a :class:`Run` or by its folder.

    Runs of several policies are compared policy by policy. Raises BadInput where they have none in
    common, and for a folder that is no run's or damaged.
    """
    pairs = paired_folders(_folder(first), _folder(second))
    return Comparison([compare_policies(load_run(one), load_run(two)) for one, two in pairs])


def _folder(run: Run | str | os.PathLike[str]) -> Path:
    return run.folder if isinstance(run, Run) else Path(run)


class Comparison:
    """Two runs beside each other. Made by :func:`compare`.

    In ``jobs`` and ``metrics`` the columns ``first`` and ``second`` name what is compared: policy
    and backend.
    """

    def __init__(self, pairs: list[PolicyComparison]) -> None:
        self._pairs = pairs

    @property
    def same_decisions(self) -> bool:
        """The policies did the same to the same jobs in the same order, at whatever times."""
        return all(pair.same_decisions for pair in self._pairs)

    @property
    def first_difference(self) -> Difference | None:
        """The first decision that differs: its ``place``, ``first`` and ``second``; None: none."""
        return next((p.difference for p in self._pairs if p.difference is not None), None)

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """One row a job that both runs have."""
        return records_frame(self._job_records(), JOBS)

    @cached_property
    def metrics(self) -> pd.DataFrame:
        """One row a number of the summaries; ``difference`` is the second less the first."""
        return records_frame(self._metric_records(), METRICS)

    def _job_records(self) -> Iterator[dict[str, Any]]:
        for pair in self._pairs:
            for job in pair.jobs:
                both = {
                    f"{name}_{which}": values[place]
                    for name, values in (
                        ("outcome", job.outcomes),
                        ("measured_s", job.measured_s),
                        ("end_s", job.end_s),
                    )
                    for place, which in enumerate(("first", "second"))
                }
                own = {"job_id": job.job_id, "completion_difference": job.completion_difference}
                yield _named(pair) | both | own

    def _metric_records(self) -> Iterator[dict[str, Any]]:
        for pair in self._pairs:
            one, two = (summary_record(summary.to_json()) for summary in pair.summaries)
            for metric in _NUMBERS:
                values = one[metric], two[metric]
                both = dict(zip(("value_first", "value_second"), values, strict=True))
                apart = None if None in values else values[1] - values[0]
                yield _named(pair) | both | {"metric": metric, "difference": apart}

    def sentences(self) -> list[str]:
        """Sentences on what is the same and what is not, as the command prints them."""
        return [line for pair in self._pairs for line in pair.sentences()]

    def __repr__(self) -> str:
        names = "; ".join(" – ".join(pair.names) for pair in self._pairs)
        return f"<Comparison {names}>"

    def _repr_html_(self) -> str:
        return "".join(map(_table, self._pairs))


def _named(pair: PolicyComparison) -> dict[str, str]:
    return {"first": pair.names[0], "second": pair.names[1]}


def _table(pair: PolicyComparison) -> str:
    records = [summary_record(summary.to_json()) for summary in pair.summaries]
    lines = [[metric, *(_text(record[metric]) for record in records)] for metric in SHOWN]
    rows = [["metric", *pair.names], *lines]
    return html_table(rows, " – ".join(pair.names), pair.sentences())


def _text(value: float | None) -> str:
    return "–" if value is None else f"{value:,.6g}"
