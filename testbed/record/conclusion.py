"""Files written at the end of a run, from its ``events.jsonl``.

They are the tables, on request as Parquet too, and the summary with verdicts.
Every metric is defined in ``docs/runs-and-fidelity.md``.
"""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.expectations import Expectation
from testbed.record import folder as names
from testbed.record.failure_times import Outage
from testbed.record.folder import RunFolder
from testbed.record.link_rates import link_rows, write_links_csv
from testbed.record.metrics import JobRow, Recording, Summary
from testbed.record.reading import RecordedRun, claims_of, read_recording
from testbed.record.stored_json import read_json
from testbed.record.verdicts import (
    Verdicts,
    stored_expectation,
    stored_verdicts,
    verdicts_of,
)


@dataclass(frozen=True)
class Results:
    """Results of a run: its jobs as rows, their summary, the failures during it,
    and verdicts on the expectations (``expect``) of its file.
    """

    path: Path
    rows: tuple[JobRow, ...]
    summary: Summary
    verdicts: Verdicts
    failures: tuple[Outage, ...]
    expect: Expectation

    @classmethod
    def of(cls, run: RecordedRun) -> Results:
        """The results of a run that was read from its folder."""
        return cls(
            path=run.path,
            rows=run.rows,
            summary=run.summary,
            verdicts=stored_verdicts(run),
            failures=run.file.failures,
            expect=stored_expectation(run),
        )

    def to_json(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        return {
            **self.summary.to_json(),
            "expectations": self.verdicts.to_json(),
        }


def conclude(
    folder: RunFolder,
    expect: Expectation | None = None,
    *,
    name: str | None = None,
    wall_s: float | None = None,
    file: Recording | None = None,
) -> Results:
    """Writes the tables and the summary, of an interrupted run too.

    ``name`` stands in the summary in place of the run's own; ``wall_s`` is the
    real time that the run took. ``file`` is the run's ``events.jsonl``, by
    default read here. It always comes from the disk, as the audit reads it:
    events in memory may never have been written.
    """
    if file is None:
        file = read_recording(folder.path)
    claims = claims_of(read_json(folder.path / names.RESOLVED))
    expect = expect or Expectation()
    results = Results(
        path=folder.path,
        rows=file.rows,
        summary=file.summary(name, wall_s),
        verdicts=verdicts_of(file, expect, claims),
        failures=file.failures,
        expect=expect,
    )
    # Written row by row: a long live run has too many samples for a second copy
    # in memory.
    links = link_rows(file.tally)
    folder.write_text(names.JOBS, file.jobs_table)
    folder.write_lines(
        names.LINKS, lambda text: write_links_csv(links, text)
    )
    # After the tables: a folder with a summary counts as finished.
    folder.write_json(names.SUMMARY, results.to_json())
    if folder.parquet:
        # Arrow takes half a second to import.
        from testbed.record.parquet_tables import write_parquet

        write_parquet(folder, file.events)
    return results


def conclude_all(folder: RunFolder, policies: list[Results]) -> None:
    """Writes the ``summary.json`` above several policies: an entry for each, in
    order.
    """
    entries = [
        {**results.to_json(), "folder": results.path.name}
        for results in policies
    ]
    folder.write_json(names.SUMMARY, entries)
