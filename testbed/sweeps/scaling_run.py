"""Bandwidth scaling from its file to its folder: a live sweep over
repetitions, its ratios, its tables and its picture.
"""

from __future__ import annotations

import csv
import io
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from testbed.errors import RunFailed
from testbed.foreign_text import csv_text
from testbed.record.folder import (
    EVENTS,
    PROVENANCE,
    SPEC,
    SWEEP,
    RunFolder,
)
from testbed.record.provenance import provenance
from testbed.record.reading import RecordedRun, load_run
from testbed.spec.sweep_section import read_option
from testbed.sweeps.job_traffic import job_traffic
from testbed.sweeps.measured_scaling import (
    COLUMNS,
    MeasuredScaling,
    Repetition,
    measured_scaling,
    repetitions_of,
    table_lines,
)
from testbed.sweeps.printed_latency import latency_rows
from testbed.sweeps.reason_pictures import reason_pictures
from testbed.sweeps.result_store import Report, events_digest
from testbed.sweeps.scaling_file import ScalingFile
from testbed.sweeps.scaling_pictures import scaling_pictures
from testbed.sweeps.sweep_folder import (
    SweepOptions,
    asked_for,
    computed,
)
from testbed.sweeps.sweep_plan import PlanOptions, SweepPlan, plan_sweep
from testbed.sweeps.sweeping import SweepRun, folder_of
from testbed.sweeps.task_supply import Say

RECORD = "scaling.json"
TABLE = "scaling.csv"
PICTURE = "scaling"
REASONS = "reasons"
TOGETHER = "scaling"
"""The name of the folder of several files."""


@dataclass(frozen=True)
class Scaling:
    """Finished bandwidth scaling, written down.

    ``verdicts``: the repetitions' fidelity, of simulated ones none;
    ``failures``: sentences on those that have no result.
    """

    run_folder: RunFolder
    measured: tuple[MeasuredScaling, ...]
    verdicts: tuple[str, ...]
    failures: tuple[str, ...]

    @property
    def folder(self) -> Path:
        return self.run_folder.path

    @property
    def violated(self) -> bool:
        """True where some bound is violated."""
        return any(scaling.violated for scaling in self.measured)

    def to_json(self) -> dict[str, Any]:
        """Content of ``scaling.json``."""
        return {
            "applications": [
                scaling.to_json() for scaling in self.measured
            ],
            "fidelity": list(self.verdicts),
            "failures": list(self.failures),
        }


def scaling_plan(
    file: ScalingFile, first_seed: int, repetitions: int, *, live: bool
) -> SweepPlan:
    """The sweep of the repetitions: each has a seed of its own."""
    last = first_seed + repetitions - 1
    seeds = read_option(f"seed={first_seed}..{last}")
    asked = PlanOptions(over=(seeds,), live=live)
    return plan_sweep(file.path, file.text, asked)


def run_scaling(
    plan: SweepPlan, options: SweepOptions, report: Report, say: Say
) -> Scaling:
    """Runs the repetitions that are missing and writes the folder.

    Raises what stops it: repetitions done until then stay, and the same
    command continues. Raises RunFailed where none has a result.
    """
    run = computed(plan, options, report, say)
    # A sweep keeps summaries; ratios need the times of single jobs, so whole
    # run folders are kept beside its results.
    runs = _recorded(run)
    failures = [failure.message for failure in run.failures.values()]
    repetitions = _repetitions(runs)
    if not repetitions:
        raise RunFailed(f"no repetition ended: {'; '.join(failures)}")
    verdicts = [run.summary.fidelity.verdict for run in runs]
    done = Scaling(
        run_folder=RunFolder.create(options.out, plan.name, None),
        measured=tuple(measured_scaling(repetitions)),
        # A simulated run has none.
        verdicts=tuple(filter(None, verdicts)),
        failures=tuple(failures),
    )
    done.run_folder.write_text(SPEC, run.plan.text)
    asked = asked_for(run.plan, run.counts, options)
    done.run_folder.write_json(SWEEP, asked)
    _write(done, options, len(plan.over[-1]), live=plan.live)
    return done


def _repetitions(runs: Sequence[RecordedRun]) -> list[Repetition]:
    """The repetitions in runs; latencies that programs printed count as other
    applications.
    """
    repetitions = []
    for run in runs:
        traffic = job_traffic(run.file.events)
        repetitions += repetitions_of(run.rows, traffic)
        repetitions += repetitions_of(latency_rows(run.rows, run.path))
    return repetitions


def together(
    scalings: Sequence[Scaling],
    options: SweepOptions,
    repetitions: int,
    *,
    live: bool,
) -> Scaling:
    """The bandwidth scaling of several files in one folder, table and picture."""
    measured: list[MeasuredScaling] = []
    verdicts: list[str] = []
    failures: list[str] = []
    for scaling in scalings:
        measured += scaling.measured
        verdicts += scaling.verdicts
        failures += scaling.failures
    done = Scaling(
        run_folder=RunFolder.create(options.out, TOGETHER, None),
        measured=tuple(measured),
        verdicts=tuple(verdicts),
        failures=tuple(failures),
    )
    _write(done, options, repetitions, live=live)
    return done


def _recorded(run: SweepRun) -> list[RecordedRun]:
    """The runs of all repetitions that have a result."""
    if run.keep is None:
        return []
    recorded = []
    for cell in run.cells.of(()):
        result = run.result_of(cell)
        if result is not None:
            place = run.keep / folder_of(cell.key)
            recorded.append(_run_of(place, result["events_sha256"]))
    return recorded


def _run_of(place: Path, events_sha256: str) -> RecordedRun:
    """The run in a cell's place whose events have this digest: simulated, it is
    the place itself; live, a folder in it.

    Raises RunFailed where there is none.
    """
    # A live repetition may be measured several times into the same place: the
    # earlier attempts stay, and some were interrupted.
    for path in (place, *place.glob("*")):
        is_run = (path / EVENTS).is_file()
        if is_run and events_digest(path) == events_sha256:
            return load_run(path)
    remove = shlex.join(["rm", "-r", str(place)])
    raise RunFailed(
        f"{place} has no run with the events of the stored result",
        f"remove it, and the repetition is run again: {remove}",
    )


def _write(
    done: Scaling, options: SweepOptions, repetitions: int, *, live: bool
) -> None:
    folder = done.run_folder
    folder.write_json(RECORD, done.to_json())
    folder.write_text(TABLE, _csv(done.measured))
    pictures = {
        PICTURE: scaling_pictures(done.measured),
        REASONS: reason_pictures(done.measured),
    }
    for name, kinds in pictures.items():
        for kind, content in kinds.items():
            folder.write_bytes(f"{name}.{kind}", content)
    origin = provenance(
        seeds={"count": repetitions},
        command=list(options.command),
        backend="live" if live else "sim",
    )
    folder.write_json(PROVENANCE, origin)


def _csv(measured: Sequence[MeasuredScaling]) -> str:
    text = io.StringIO()
    table = csv.writer(text, lineterminator="\n")
    table.writerow(COLUMNS)
    for application, *numbers in table_lines(measured):
        table.writerow([csv_text(application), *numbers])
    return text.getvalue()
