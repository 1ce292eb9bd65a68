"""Computation of a sweep's cells: stored results are not computed again, and an
interrupted sweep can be continued.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any, Protocol

from testbed.owned_files import caller
from testbed.record.folder import RunFolder
from testbed.record.metrics import severity
from testbed.sweeps.cell_runs import Cell
from testbed.sweeps.cells import Cells
from testbed.sweeps.intervals import Stop
from testbed.sweeps.result_store import (
    Record,
    Report,
    ResultStore,
    SweepProgress,
    fidelity_of,
    is_cell_result,
    numbers,
)
from testbed.sweeps.sweep_plan import SweepPlan
from testbed.sweeps.tasks import (
    Executor,
    FileRef,
    Outcome,
    Task,
    TaskFailure,
    sha256_of,
)

BLOCK = 64
"""Combinations whose seeds are decided on together."""
SPEC = "(experiment file)"


@dataclass
class CellCounts:
    """Cells computed, found stored, and failed."""

    computed: int = 0
    kept: int = 0
    failed: int = 0


class CellTable(Protocol):
    """A table that takes cells as they come; ``count``: computed, kept or
    failed.
    """

    def take(
        self, cell: Cell, record: Record | None, count: str
    ) -> None: ...


@dataclass
class SweepRun:
    """A sweep in progress: its results, and the cells that failed.

    ``keep``: the folder of whole run folders; None for none. ``again``: live
    results that are not ``ok`` are measured again.
    """

    plan: SweepPlan
    store: ResultStore
    executor: Executor
    report: Report
    spec: FileRef
    keep: Path | None = None
    again: bool = False
    counts: CellCounts = field(default_factory=CellCounts)
    failures: dict[str, TaskFailure] = field(default_factory=dict)
    unfiled: dict[str, Record] = field(default_factory=dict)
    """Live results of this sweep that are not good enough to be kept for the
    next.
    """
    table: CellTable | None = None
    _measured: set[str] = field(default_factory=set)

    def __post_init__(self) -> None:
        self.cells = Cells(self.plan)

    def compute(self) -> None:
        """Computes what is missing. Raises what stops it; results up to then
        are stored.
        """
        self._show_progress()
        combinations = self.cells.combinations()
        stop = self.plan.stop
        if stop is None:
            self._run(chain.from_iterable(map(self.cells.of, combinations)))
            return
        while block := list(islice(combinations, BLOCK)):
            self._until_enough(
                [_Growing(self, stop, combination) for combination in block]
            )

    def result_of(self, cell: Cell) -> Record | None:
        """A cell's result, of this sweep or stored; None where it has none."""
        unfiled = self.unfiled.get(cell.key)
        if unfiled is not None:
            return unfiled
        return self._stored(cell)

    def _stored(self, cell: Cell) -> Record | None:
        """A cell's result in the store; None for one of another form."""
        record = self.store.get(cell.key)
        if record is not None and is_cell_result(record):
            return record
        return None

    def _until_enough(self, growing: list[_Growing]) -> None:
        """Runs seeds in waves as wide as the executor until each combination
        has enough.
        """
        while True:
            growing = [
                combination
                for combination in growing
                if not combination.is_enough()
            ]
            if not growing:
                return
            # As far ahead of the rule as processors would be idle
            # otherwise.
            ahead = max(1, self.executor.width // len(growing))
            wave: list[Cell] = []
            for combination in growing:
                wave += combination.next_cells(ahead)
            if not wave:
                return
            self._run(iter(wave))

    def _run(self, cells: Iterator[Cell]) -> None:
        for task, outcome in self.executor.results(self._missing(cells)):
            self._take(task, outcome)
            self._show_progress()

    def _missing(self, cells: Iterator[Cell]) -> Iterator[Task]:
        # A generator: cells are made as workers have room for them.
        for cell in cells:
            if self._is_there(cell):
                self.counts.kept += 1
                self._show(cell, self._stored(cell), "kept")
                self._show_progress()
                continue
            task = replace(cell, spec=self.spec)
            if self.keep is not None:
                task = replace(task, keep=self.keep / folder_of(cell.key))
            yield task

    def _is_there(self, cell: Cell) -> bool:
        record = self._stored(cell)
        if record is None:
            return False
        # Its result is there and its run folder is not: it is played again
        # for that.
        if self.keep and not (self.keep / folder_of(cell.key)).is_dir():
            return False
        if not (self.again and self.plan.live):
            return True
        # Once measured in this sweep is enough, whatever came of it.
        return cell.key in self._measured or fidelity_of(record) == "ok"

    def _take(self, task: Task, outcome: Outcome) -> None:
        if outcome.failure is not None or outcome.result is None:
            self.counts.failed += 1
            self.failures[task.key] = outcome.failure or TaskFailure(
                "it has no result"
            )
            self._show(task, None, "failed")
            return
        self.counts.computed += 1
        self._show(task, outcome.result, "computed")
        if self.plan.live:
            self._measured.add(task.key)
        if self._is_kept(outcome.result):
            self.store.put(task.key, outcome.result, outcome.provenance)
        else:
            self.unfiled[task.key] = outcome.result

    def _show(self, task: Task, record: Record | None, count: str) -> None:
        if self.table is not None and isinstance(task, Cell):
            self.table.take(task, record, count)

    def _is_kept(self, result: Record) -> bool:
        """True for a simulated result, and for a live one as good as the file
        accepts.
        """
        if not self.plan.live:
            return True
        noted = fidelity_of(result) or ""
        return severity(noted) <= severity(self.plan.accepts)

    def _show_progress(self) -> None:
        done = self.counts.computed + self.counts.failed
        kept = self.counts.kept
        size = self.plan.size
        self.report(
            SweepProgress(
                done=done + kept,
                of=size,
                cost=done,
                of_cost=size - kept,
                kept=kept,
            )
        )


class _Growing:
    """A combination whose seeds are run until there are enough."""

    def __init__(
        self, run: SweepRun, stop: Stop, combination: Sequence[Any]
    ) -> None:
        self._run = run
        self._stop = stop
        self._cells = run.cells.of(combination)
        self._taken: list[Cell] = []
        self._rows: list[list[float | None]] = []
        self._exhausted = False

    def next_cells(self, ahead: int) -> list[Cell]:
        """The next seeds: so many ahead, at first as many as always run."""
        wanted = ahead
        if not self._taken:
            wanted = max(ahead, self._stop.least)
        more = list(islice(self._cells, wanted))
        self._exhausted = len(more) < wanted
        self._taken += more
        return more

    def is_enough(self) -> bool:
        names = self._run.plan.rule_metrics
        for cell in self._taken[len(self._rows) :]:
            self._rows.append(numbers(self._run.result_of(cell), names))
        if not self._rows:
            return False
        columns = list(zip(*self._rows, strict=True))
        return self._exhausted or self._stop.needed(columns) is not None


def folder_of(key: str) -> str:
    """The name of a cell's whole run folder."""
    return key[:16]


def stored_spec(plan: SweepPlan, store: Path) -> FileRef:
    """The experiment's text as a file of the store, where no editor changes it
    meanwhile.
    """
    digest = hashlib.sha256(plan.text.encode()).hexdigest()
    folder = RunFolder(store.absolute(), caller())
    folder.make()
    path = folder.path / "specs" / f"{digest}.yaml"
    # Somebody may have edited the stored text: it is known by its digest.
    if not path.is_file() or sha256_of(path) != digest:
        path = folder.write_text(f"specs/{digest}.yaml", plan.text)
    return FileRef(SPEC, digest, path)
