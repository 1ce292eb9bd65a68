"""A sweep from its plan to its folder: cells computed, tables and picture
written.
"""

from __future__ import annotations

import os
import shlex
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from testbed.errors import MachineCannot
from testbed.record.folder import (
    DEFAULT_OUT,
    PROVENANCE,
    REPORT,
    SPEC,
    SWEEP,
    RunFolder,
)
from testbed.record.provenance import provenance
from testbed.spec.sweep_section import SweptKey, as_yaml
from testbed.sweeps.computing_sources import code_digest
from testbed.sweeps.result_store import Report, ResultStore
from testbed.sweeps.sweep_page import sweep_page
from testbed.sweeps.sweep_pictures import sweep_figure, sweep_pictures
from testbed.sweeps.sweep_plan import SweepPlan
from testbed.sweeps.sweep_tables import (
    CELLS,
    TABLE_CSV,
    TableRow,
    table_columns,
    table_values,
    write_tables,
)
from testbed.sweeps.sweeping import CellCounts, SweepRun, stored_spec
from testbed.sweeps.table_so_far import TableWriter
from testbed.sweeps.task_supply import Say
from testbed.sweeps.tasks import Executor, InProcess
from testbed.units import number_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure
    from pandas import DataFrame

STORE = ".cells"
WHOLE_RUNS = "runs"
PICTURE = "sweep"


@dataclass(frozen=True)
class SweepOptions:
    """Options of a sweep.

    Without a ``cluster``, ``processes`` cells at a time run here. ``again``:
    live cells whose verdict is not ok are measured again. ``command``: as it
    was typed, for provenance. Where root is needed, a hint names ``as_root``,
    or the command with sudo before it.
    """

    out: Path = DEFAULT_OUT
    processes: int = 1
    cluster: str | None = None
    keep_runs: bool = False
    again: bool = False
    parquet: bool = False
    command: Sequence[str] = ()
    as_root: str = ""

    @property
    def store(self) -> Path:
        """The folder of results, which all sweeps into ``out`` share."""
        return self.out / STORE


@dataclass(frozen=True)
class Sweep:
    """A finished sweep, written down."""

    plan: SweepPlan
    run_folder: RunFolder
    cell_counts: CellCounts
    rows: list[TableRow]
    reasons: tuple[str, ...]
    """The reasons of failed cells, a sentence each."""

    def __repr__(self) -> str:
        return f"<Sweep {self.folder.name}: {self.sentence}>"

    @property
    def folder(self) -> Path:
        return self.run_folder.path

    @property
    def counts(self) -> Mapping[str, int]:
        """Cells ``computed``, ``kept`` from earlier sweeps, and ``failed``."""
        return vars(self.cell_counts)

    @property
    def cells(self) -> DataFrame:
        """A row for each cell: its values, its outcome, its metrics."""
        import pandas as pd

        return pd.read_csv(self.folder / CELLS)

    @property
    def table(self) -> DataFrame:
        """A row for each combination: the metrics' means, and half the width of
        their 95 % intervals.
        """
        import pandas as pd

        return pd.read_csv(self.folder / TABLE_CSV)

    def plot(self) -> Figure:
        """The picture: a panel for each metric, with the first numeric key along
        x, and a line for each policy.
        """
        return sweep_figure(self.plan, self.rows)

    @property
    def sentence(self) -> str:
        """Numbers of cells, in all and by outcome."""
        counts = self.cell_counts
        size = self.plan.size
        parts = [
            f"{counts.computed:,} computed",
            f"{counts.kept:,} there already",
        ]
        if counts.failed:
            parts.append(f"{counts.failed:,} failed")
        # With a stop rule not all seeds are needed.
        unused = size - sum(self.counts.values())
        if unused > 0:
            parts.append(f"{unused:,} not needed")
        return f"{number_of(size, 'cell')}: {', '.join(parts)}"

    @property
    def exit_code(self) -> int:
        """4 if a cell failed, else 1 if one is outside what was expected."""
        if any(row.failed for row in self.rows):
            return 4
        if any(row.outside for row in self.rows):
            return 1
        return 0

    def to_json(self) -> dict[str, Any]:
        """Output of ``--json``."""
        names = table_columns(self.plan)
        rows = []
        for row in self.rows:
            values = table_values(self.plan, row)
            rows.append(dict(zip(names, values, strict=True)))
        return {
            "folder": str(self.folder),
            "cells": cell_numbers(self.plan, self.cell_counts),
            "rows": rows,
        }


def run_sweep(
    plan: SweepPlan, options: SweepOptions, report: Report, say: Say
) -> Sweep:
    """Computes cells that are not stored yet, and writes the sweep's folder.

    Raises what stops it. Cells done until then are stored: the same sweep, run
    again, continues.
    """
    return _written(computed(plan, options, report, say), options)


def computed(
    plan: SweepPlan, options: SweepOptions, report: Report, say: Say
) -> SweepRun:
    """Computes a sweep's cells that are not stored yet. Raises what stops it."""
    # Live cells here are played by `testbed run`, which needs root. On a
    # cluster each worker examines its machine.
    if plan.live and options.cluster is None and os.geteuid() != 0:
        hint = options.as_root or f"sudo {shlex.join(options.command)}"
        raise MachineCannot("live cells need root", hint)
    keep = None
    if options.keep_runs:
        keep = options.store.absolute() / WHOLE_RUNS
    store = ResultStore(options.store)
    spec = stored_spec(plan, options.store)
    with (
        executor_of(options, say, live=plan.live) as executor,
        TableWriter(plan, options.out) as table,
    ):
        run = SweepRun(
            plan=plan,
            store=store,
            executor=executor,
            report=report,
            spec=spec,
            keep=keep,
            again=options.again,
            table=table,
        )
        run.compute()
    return run


def executor_of(options: SweepOptions, say: Say, *, live: bool) -> Executor:
    """Processors of this machine, or a cluster's workers.

    Live cells run one at a time on this machine.
    """
    if options.cluster is None and (live or options.processes == 1):
        return InProcess()
    from testbed.sweeps.cluster import executor

    return executor(options.cluster, options.processes, say)


def _written(run: SweepRun, options: SweepOptions) -> Sweep:
    plan = run.plan
    # Made at the end: a sweep that is stopped leaves cells in the store, and
    # no folder.
    folder = RunFolder.create(options.out, plan.name, None)
    folder.write_text(SPEC, plan.text)
    table = write_tables(run, folder, parquet=options.parquet)
    pictures = sweep_pictures(plan, table)
    for kind, content in pictures.items():
        folder.write_bytes(f"{PICTURE}.{kind}", content)
    folder.write_json(SWEEP, asked_for(plan, run.counts, options))
    seeds = {"count": len(plan.over[-1])} if plan.has_seeds else {}
    origin = provenance(
        seeds=seeds,
        command=list(options.command),
        backend=plan.backend,
    )
    folder.write_json(PROVENANCE, origin)
    reasons = tuple(failure.message for failure in run.failures.values())
    done = Sweep(
        plan=plan,
        run_folder=folder,
        cell_counts=run.counts,
        rows=table,
        reasons=reasons,
    )
    picture = pictures.get("svg", b"").decode()
    page = sweep_page(
        plan,
        table,
        sentence=done.sentence,
        reasons=reasons,
        picture=picture,
        where=origin,
    )
    folder.write_text(REPORT, page)
    return done


def asked_for(
    plan: SweepPlan, counts: CellCounts, options: SweepOptions
) -> dict[str, Any]:
    """The content of ``sweep.json``: the sweep as it was asked for, and the
    digests of code and files on which its results depend.
    """
    stop = None
    if plan.stop is not None:
        stop = asdict(plan.stop) | {"metric": plan.stop.metric or None}
    return {
        "name": plan.name,
        "file": str(plan.path),
        "over": {swept.key: _written_values(swept) for swept in plan.over},
        "stop": stop,
        "metrics": list(plan.metrics),
        "backend": plan.backend,
        "cells": cell_numbers(plan, counts),
        "store": str(options.store.absolute()),
        "code_sha256": code_digest(live=plan.live),
        "files_sha256": {
            name: ref.sha256 for name, ref in plan.files.items()
        },
    }


def cell_numbers(plan: SweepPlan, counts: CellCounts) -> dict[str, int]:
    """Numbers of cells that were asked for, computed, kept and failed."""
    return {"asked": plan.size, **vars(counts)}


def _written_values(key: SweptKey) -> list[Any]:
    """A key's values as JSON has them; ranges as they are written."""
    written: list[Any] = []
    for value in key.written():
        if isinstance(value, str | int | float):
            written.append(value)
        else:
            written.append(as_yaml(value))
    return written
