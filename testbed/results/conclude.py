"""After a run: ``jobs.csv``, ``links.csv`` and ``summary.json`` from its own events."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.results import folder as names
from testbed.results.expectations import Expectation, Verdicts, evaluate
from testbed.results.folder import RunFolder
from testbed.results.links import link_rows, write_links_csv
from testbed.results.metrics import Summary, tally
from testbed.results.read import read_events
from testbed.results.rows import JobRow, write_jobs_csv


@dataclass(frozen=True)
class Results:
    """What a run came to: rows, their summary, and how it stands against what was expected."""

    path: Path
    rows: tuple[JobRow, ...]
    summary: Summary
    verdicts: Verdicts

    def to_json(self) -> dict[str, Any]:
        """The content of ``summary.json``."""
        return {**self.summary.to_json(), "expectations": self.verdicts.to_json()}


def conclude(
    folder: RunFolder,
    expect: Expectation | None = None,
    *,
    name: str | None = None,
    wall_s: float | None = None,
) -> Results:
    """Read ``events.jsonl`` back and write everything that follows from it.

    Works on an interrupted run too. The events on the disk are the only source: what the audit
    will read is what was summed up.
    """
    history = read_events(folder.path / names.EVENTS).events
    taken = tally(history)
    rows = tuple(taken.rows())
    summary = taken.summary(name, wall_s)
    results = Results(
        folder.path, rows, summary, evaluate(expect or Expectation(), rows, summary.fidelity)
    )
    folder.write_lines(names.JOBS, lambda file: write_jobs_csv(rows, file))
    folder.write_lines(names.LINKS, lambda file: write_links_csv(link_rows(history), file))
    folder.write_json(names.SUMMARY, results.to_json())
    return results


def conclude_all(folder: RunFolder, policies: list[Results]) -> None:
    """The ``summary.json`` above several policies: a list, one entry each, in the file's order."""
    folder.write_json(
        names.SUMMARY, [{**one.to_json(), "folder": one.path.name} for one in policies]
    )
