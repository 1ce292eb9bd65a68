"""A run's folder as an object: typed frames, pictures, verdicts."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import BadInput
from testbed.interface.notebook_tables import html_table
from testbed.record import folder as names
from testbed.record.folder import RunFolder
from testbed.record.reading import (
    in_order_of_list,
    load_run,
    policy_folders,
    policy_of,
)
from testbed.record.run_names import run_folder
from testbed.record.stored_json import CHANGED, read_json
from testbed.spec.document import unknown_name
from testbed.spec.given_values import path_argument

# For types alone: these libraries take a while to import, and `import
# testbed` should not.
if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure

    from testbed.audit import Audit
    from testbed.play.playing import RunRecord
    from testbed.record.job_history import Explanation
    from testbed.record.reading import RecordedRun
    from testbed.report.pictures import Picture


def open_run(folder: str | os.PathLike[str]) -> Run:
    """A finished or interrupted run, by its folder or by a short name such as
    ``latest``.

    Raises BadInput where there is none, or where the folder is damaged.
    """
    named = path_argument(folder, "open_run takes a run's folder or name")
    path = run_folder(named).absolute()
    folders = in_order_of_list(path, policy_folders(path))
    parts = []
    for policy_folder in folders:
        label = policy_of(policy_folder)
        # A policy that was killed before its first line says nothing of
        # itself.
        if label is not None:
            parts.append(PolicyRun(policy_folder, label))
    if not parts:
        events = folders[0] / names.EVENTS
        raise BadInput(
            f"{events} is empty: that run was killed before it began"
        )
    return Run(path, parts)


class PolicyRun:
    """One policy's folder, of which each file is read once."""

    def __init__(
        self, path: Path, label: str, record: RunRecord | None = None
    ) -> None:
        self.path = path
        self.label = label
        self._record = record

    @cached_property
    def loaded(self) -> RecordedRun:
        return load_run(self.path)

    @cached_property
    def record(self) -> RunRecord:
        """Results, verdicts and audit."""
        if self._record is not None:
            return self._record
        from testbed.audit import audit
        from testbed.play.playing import RunRecord
        from testbed.record.conclusion import Results

        results = Results.of(self.loaded)
        folder = RunFolder.open(self.path)
        return RunRecord(folder, self.label, results, audit(self.path))

    @cached_property
    def summary(self) -> Mapping[str, Any]:
        """The content of ``summary.json``; computed for an interrupted run."""
        stored = read_json(self.path / names.SUMMARY)
        if isinstance(stored, dict):
            return stored
        return self.record.results.to_json()

    @cached_property
    def pictures(self) -> dict[str, Picture]:
        from testbed.record.verdicts import stored_verdicts
        from testbed.report.pictures import pictures

        verdicts = stored_verdicts(self.loaded)
        made = pictures(self.loaded, verdicts)
        return {picture.kind: picture for picture in made}


class Run:
    """A run of one or several policies.

    Made by ``simulate``, ``run`` and :func:`open_run`.

    ``jobs``, ``links``, ``events`` and ``summary`` are pandas frames of all its
    policies, by their column ``policy``. They are read when they are first
    asked for, and kept: copy one before you change it. ``run["fcfs"]`` is the
    run of one policy.
    """

    def __init__(self, folder: Path, parts: Sequence[PolicyRun]) -> None:
        self._folder = folder
        self._parts = parts

    @property
    def folder(self) -> Path:
        """The run's folder, with its report and everything it is made of."""
        return self._folder

    @property
    def policies(self) -> tuple[str, ...]:
        """The labels of its policies, in the order of the experiment."""
        return tuple(part.label for part in self._parts)

    def __iter__(self) -> Iterator[str]:
        """The labels of its policies, as of a mapping."""
        return iter(self.policies)

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, policy: str) -> Run:
        """The run of one policy, by its label or its folder's name.

        Raises BadInput.
        """
        by_label = [part for part in self._parts if part.label == policy]
        by_folder = [
            part for part in self._parts if part.path.name == policy
        ]
        parts = by_label
        # Labels of one policy with two settings may be the same.
        if by_folder and len(by_label) != 1:
            parts = by_folder
        if not parts:
            raise BadInput(
                unknown_name("policy", str(policy), self.policies)
            )
        # The part is shared, with all that was read of it.
        return Run(parts[0].path, parts[:1])

    # -- tables

    @cached_property
    def jobs(self) -> pd.DataFrame:
        """One row a job and policy: the columns of ``jobs.csv``."""
        return self._table("jobs")

    @cached_property
    def links(self) -> pd.DataFrame:
        """Bandwidth reserved and sent on each link over time (``links.csv``)."""
        return self._table("links")

    @cached_property
    def events(self) -> pd.DataFrame:
        """One row an event, a column for each field of any.

        Lists and objects are JSON text.
        """
        return self._table("events")

    @cached_property
    def summary(self) -> pd.DataFrame:
        """One row a policy: ``summary.json``.

        Its nested values are named as ``estimate_ratio.median``.
        """
        from testbed.record.columns import SUMMARY
        from testbed.record.frames import records_frame, summary_record

        records = [summary_record(part.summary) for part in self._parts]
        # Types of a summary that somebody changed show only here.
        try:
            return records_frame(records, SUMMARY)
        except (TypeError, ValueError, OverflowError) as error:
            where = self._folder / names.SUMMARY
            raise BadInput(f"{where}: damaged: {error}", CHANGED) from error

    def _table(self, table: str) -> pd.DataFrame:
        from testbed.record.frames import table_frame

        return table_frame([part.path for part in self._parts], table)

    # -- verdicts

    @property
    def good(self) -> bool:
        """True if all reservations held, all expectations were met, and the
        audits passed.
        """
        return all(part.record.good for part in self._parts)

    def sentences(self) -> list[str]:
        """The verdicts in words, as the commands print them."""
        lines: list[str] = []
        for part in self._parts:
            prefix = f"{part.label}: " if len(self._parts) > 1 else ""
            lines += [f"{prefix}{text}" for text in part.record.sentences()]
        return lines

    def audit(self) -> tuple[Audit, ...]:
        """The run's invariants, proved from its events.

        One result a policy, and one for the list above several.
        """
        from testbed.audit import audit_all

        return tuple(audit_all(self._folder))

    def explain(self, job: str) -> tuple[Explanation, ...]:
        """The reasons of a job's wait, by each policy.

        Raises BadInput for an unknown job.
        """
        from testbed.record.event_file import stream_events
        from testbed.record.job_history import explained

        return tuple(
            explained(stream_events(part.path / names.EVENTS), job)
            for part in self._parts
        )

    @property
    def report(self) -> Path:
        """The path of ``report.html``, which is written if it is missing."""
        path = self._folder / names.REPORT
        # A run of several policies has only their own pages at its end.
        if not path.is_file():
            from testbed.report.page import write_report

            write_report(RunFolder.open(self._folder))
        return path

    # -- pictures

    @property
    def pictures(self) -> tuple[str, ...]:
        """The names of the pictures that :meth:`plot` draws of this run."""
        kinds: dict[str, None] = {}
        for part in self._parts:
            kinds |= dict.fromkeys(part.pictures)
        return tuple(kinds)

    def plot(self, picture: str | None = None) -> Figure:
        """A picture of the report as a matplotlib figure.

        Without a name it is that of the jobs. Raises BadInput for an unknown
        name, and for a run of several policies: choose one.
        """
        if len(self._parts) != 1:
            hint = f'run["{self._parts[0].label}"].plot()'
            raise BadInput(
                f"a picture shows one policy, this run has {len(self._parts)}",
                hint,
            )
        known = self._parts[0].pictures
        if picture is None:
            # Few jobs have the one, many the other, and no jobs neither.
            of_jobs = ("gantt", "occupancy")
            picture = next((name for name in of_jobs if name in known), "")
        # A value that has no hash, as a list, is no key of a dictionary.
        if picture not in tuple(known):
            raise BadInput(
                unknown_name(
                    "picture", str(picture), tuple(known) or ("none",)
                ),
            )
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
