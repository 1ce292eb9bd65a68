"""A run's folder as an object: typed frames, pictures, verdicts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import BadInput
from testbed.interface.notebook_tables import html_table
from testbed.results import folder as names
from testbed.results.folder import RunFolder
from testbed.results.reading import (
    CHANGED,
    in_order_of_list,
    load_run,
    policy_folders,
    policy_of,
    read_json,
)
from testbed.spec.document import unknown_name

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from testbed.report.pictures import Picture
    from testbed.results.audit import Audit
    from testbed.results.job_history import Explanation
    from testbed.results.reading import Run as LoadedRun
    from testbed.runs.playing import RunRecord


def open_run(folder: str | os.PathLike[str]) -> Run:
    """The run in a folder, finished or interrupted.

    Raises BadInput where there is none, or where the folder is damaged.
    """
    path = Path(folder).absolute()
    found = in_order_of_list(path, policy_folders(path))
    parts = [(one, label, None) for one in found if (label := policy_of(one)) is not None]
    if not parts:
        raise BadInput(f"{found[0] / names.EVENTS} is empty: that run was killed before it began")
    return Run(path, parts)


class _PolicyRun:
    """One policy's folder; what is read of it is read once."""

    def __init__(self, path: Path, label: str, record: RunRecord | None) -> None:
        self.path = path
        self.label = label
        self._record = record

    @cached_property
    def loaded(self) -> LoadedRun:
        return load_run(self.path)

    @cached_property
    def record(self) -> RunRecord:
        """Results, verdicts and audit."""
        if self._record is not None:
            return self._record
        from testbed.results.audit import audit
        from testbed.results.tables import Results, stored_verdicts
        from testbed.runs.playing import RunRecord

        run = self.loaded
        results = Results(self.path, run.rows, run.summary, stored_verdicts(run))
        return RunRecord(RunFolder.open(self.path), self.label, results, audit(self.path))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The content of ``summary.json``, or what it would be."""
        stored = read_json(self.path / names.SUMMARY)
        return stored if isinstance(stored, dict) else self.record.results.to_json()

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        from testbed.report.pictures import pictures
        from testbed.results.tables import stored_verdicts

        return {one.kind: one for one in pictures(self.loaded, stored_verdicts(self.loaded))}


class Run:
    """A run of one or several policies. Made by ``simulate``, ``run`` and :func:`open_run`.

    ``jobs``, ``links``, ``events`` and ``summary`` are pandas frames of all its policies, by their
    column ``policy``. They are read when they are first asked for, and kept: copy one before you
    change it. ``run["fcfs"]`` is the run of one policy.
    """

    def __init__(self, folder: Path, parts: Iterable[tuple[Path, str, RunRecord | None]]) -> None:
        self._folder = folder
        self._parts = [_PolicyRun(*part) for part in parts]

    @property
    def folder(self) -> Path:
        """Where it lies, with its report and everything it is made of."""
        return self._folder

    @property
    def policies(self) -> tuple[str, ...]:
        """The labels of its policies, in the order of the experiment."""
        return tuple(part.label for part in self._parts)

    def __getitem__(self, policy: str) -> Run:
        """The run of one policy, by its label or its folder's name. Raises BadInput."""
        found = [part for part in self._parts if part.label == policy]
        if len(found) != 1:
            found = [part for part in self._parts if part.path.name == policy] or found
        if not found:
            raise BadInput(unknown_name("policy", str(policy), self.policies))
        one = Run(found[0].path, ())
        one._parts = found[:1]
        return one

    # -- tables

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """One row a job and policy: the columns of ``jobs.csv``."""
        return self._table("jobs")

    @cached_property
    def links(self) -> pd.DataFrame:
        """Bandwidth reserved and sent on each link over time: ``policy`` and ``links.csv``."""
        return self._table("links")

    @cached_property
    def events(self) -> pd.DataFrame:
        """One row an event, a column for each field of any; lists and objects as JSON text."""
        return self._table("events")

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row a policy: ``summary.json``, its nested values as ``estimate_ratio.median``."""
        from testbed.results.columns import SUMMARY
        from testbed.results.frames import records_frame, summary_record

        records = [summary_record(part.summary) for part in self._parts]
        try:
            return records_frame(records, SUMMARY)
        except (TypeError, ValueError) as error:
            where = self._folder / names.SUMMARY
            raise BadInput(f"{where}: damaged: {error}", CHANGED) from error

    def _table(self, table: str) -> pd.DataFrame:
        from testbed.results.frames import table_frame

        return table_frame([part.path for part in self._parts], table)

    # -- verdicts

    @property
    def good(self) -> bool:
        """All reservations held, all expectations met, and the audits passed."""
        return all(part.record.good for part in self._parts)

    def sentences(self) -> list[str]:
        """The verdicts in words, as the commands print them."""
        several = len(self._parts) > 1
        return [
            f"{part.label}: {line}" if several else line
            for part in self._parts
            for line in part.record.sentences()
        ]

    def audit(self) -> tuple[Audit, ...]:
        """The run's invariants, proved from its events: one result a policy, and for the list."""
        from testbed.results.audit import audit_all

        return tuple(audit_all(self._folder))

    def explain(self, job: str) -> tuple[Explanation, ...]:
        """The reasons of a job's wait, by each policy. Raises BadInput for an unknown job."""
        from testbed.results.job_history import explained
        from testbed.results.reading import stream_events

        return tuple(explained(stream_events(p.path / names.EVENTS), job) for p in self._parts)

    @property
    def report(self) -> Path:
        """Its page for people, written if it is not there."""
        path = self._folder / names.REPORT
        if not path.is_file():  # a run of several policies has only theirs at its end
            from testbed.report.page import write_report

            write_report(RunFolder.open(self._folder))
        return path

    # -- pictures

    @property
    def pictures(self) -> tuple[str, ...]:
        """The names of the pictures that :meth:`plot` draws of this run."""
        return tuple(dict.fromkeys(kind for part in self._parts for kind in part.pictures))

    def plot(self, picture: str | None = None) -> Figure:
        """A picture of the report as a matplotlib figure; without a name that of the jobs.

        Raises BadInput for an unknown name, and for a run of several policies: choose one.
        """
        if len(self._parts) != 1:
            hint = f'run["{self._parts[0].label}"].plot()'
            raise BadInput(f"a picture shows one policy, this run has {len(self._parts)}", hint)
        known = self._parts[0].pictures
        if picture is None:
            picture = next((name for name in ("gantt", "occupancy") if name in known), "")
        if picture not in known:
            raise BadInput(unknown_name("picture", picture, tuple(known) or ("none",)))
        from testbed.report.plot_style import PAPER

        made = known[picture].draw()
        made.set_facecolor(PAPER)
        return made

    def __repr__(self) -> str:
        return f"<Run {self._folder.name}: {', '.join(self.policies)}>"

    def _repr_html_(self) -> str:
        from testbed.report.result_tables import comparison_rows

        rows = comparison_rows(part.summary for part in self._parts)
        return html_table(rows, self._folder.name)
