"""Reproductions from run configurations to files: computed or measured, judged,
written down.

Below ``OUT/live/`` every live configuration has a folder, named after the
experiment, its policy, its seed and the digest of what is played: figures that
share a point share its run. In it ``live`` is the live run: it is kept, and
never run again while it is complete. ``simulated`` and ``replay`` take seconds
and are made anew each time. A live run that is run again all the same (one not
``ok``, if so asked) moves to ``live.1``, ``live.2`` …
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Protocol

from reproductions.figure_plots import live_pictures, pictures
from reproductions.figure_tables import to_json, to_markdown
from reproductions.grid_quantities import Grid
from reproductions.live_figure import (
    LiveFigure,
    Outcome,
    digest,
    level_of,
    measured,
)
from reproductions.published_figure import (
    PICTURE,
    RESULTS,
    AnyFigure,
    Figure,
    Point,
    Reproduced,
)
from reproductions.result_cache import compute
from testbed.errors import BadInput
from testbed.owned_files import caller, opened_folder, remove_folder
from testbed.record.comparison import compare_runs
from testbed.record.folder import PROVENANCE, RunFolder
from testbed.record.provenance import known, provenance
from testbed.record.reading import RecordedRun, load_run
from testbed.spec.experiment import Experiment
from testbed.sweeps.result_store import Report, ResultStore, SweepProgress
from testbed.sweeps.tasks import Executor

CACHE = "computed"
TABLE = "table.md"
RUNS = "live"
LIVE, SIMULATED, REPLAY = "live", "simulated", "replay"
COMPLETED = "completed"
SET_UP_S = 8.0
"""Time that a live run takes beside its jobs, about: network up, preflight load
test, down.
"""


@dataclass(frozen=True)
class Request:
    """A command's options: seeds, size, folder.

    ``most``: seeds are doubled up to so many while a claim of the paper is
    undecided; 0 where their number is fixed.
    """

    out: Path
    seeds: int
    quick: bool
    command: list[str]
    most: int = 0

    @property
    def stages(self) -> tuple[int, ...]:
        """The numbers of seeds at which the claims are looked at."""
        stages = [self.seeds]
        while 2 * stages[-1] <= self.most:
            stages.append(2 * stages[-1])
        return tuple(stages)


def reproduce_figure(
    figure: Figure, request: Request, executor: Executor, report: Report
) -> Reproduced:
    """A figure from its runs; those that are stored already are not computed
    again.
    """
    store = ResultStore(request.out / CACHE)
    stages: tuple[int, ...] = ()
    # Without anything random in it, more seeds would give the same.
    if request.most and not figure.exact:
        stages = request.stages

    def done_with(seeds: int) -> Reproduced:
        points = figure.configurations(seeds, quick=request.quick)
        runs = chain.from_iterable(points.values())
        results = compute(runs, store, executor, report)
        return Reproduced.of(
            figure, seeds, results, quick=request.quick, stages=stages
        )

    *earlier, last = stages or (request.seeds,)
    for seeds in earlier:
        done = done_with(seeds)
        if done.decided:
            return done
    return done_with(last)


def write(
    done: Reproduced, request: Request
) -> tuple[RunFolder, dict[str, Any]]:
    """The figure's folder (``OUT/NAME`` or ``OUT/NAME-quick``), and its JSON."""
    folder = _folder(done.figure, request)
    where = provenance(
        seeds={"first": 1, "count": done.seeds},
        command=request.command,
        backend="sim",
    )
    record = to_json(done, request.command, where)
    folder.write_json(RESULTS, record)
    folder.write_text(TABLE, to_markdown(done))
    for kind, content in pictures(done).items():
        folder.write_bytes(f"{PICTURE}.{kind}", content)
    folder.write_json(PROVENANCE, where)
    return folder, record


# -- on the live network -------------------------------------------------------

Advance = Callable[[float], None]
"""Hears how many seconds of the experiment have passed."""


class Backends(Protocol):
    """The live network, the simulator, and the simulator with a live run's
    backend trace.
    """

    def ready(self, experiment: Experiment) -> None:
        """Raises MachineCannot where this machine has no live network to offer."""

    def live(
        self, experiment: Experiment, folder: RunFolder, advance: Advance
    ) -> None:
        """Plays a live run into an empty folder, and leaves nothing but the
        folder behind.
        """

    def simulated(self, experiment: Experiment, folder: RunFolder) -> None:
        """Plays the same experiment in the simulator."""

    def replayed(
        self, experiment: Experiment, live: Path, folder: RunFolder
    ) -> str:
        """Makes the live run's decisions again; says where they first differ,
        or nothing.
        """


@dataclass(frozen=True)
class LivePoint:
    """A point of a figure at one repetition, and the folder of its runs."""

    at: Point
    repetition: int
    experiment: Experiment
    folder: RunFolder

    @property
    def label(self) -> str:
        series, x = self.at
        return f"{series} at {x:g}, seed {self.experiment.seed}"


@dataclass(frozen=True)
class LiveReproduced:
    """A live figure with the outcomes of its runs."""

    done: Reproduced
    figure: LiveFigure
    outcomes: Mapping[Point, tuple[Outcome, ...]]


def reproduce_live(
    figure: LiveFigure,
    request: Request,
    backends: Backends,
    report: Report,
    *,
    again: bool = False,
) -> LiveReproduced:
    """Runs what is missing, one after another; simulates and replays all;
    measures.

    ``again``: live runs whose verdict is not ``ok`` are run again. Raises what
    stops it; complete runs stay.
    """
    points = _points(figure, request)
    # Several points may share a run.
    runs = list({point.folder.path: point for point in points}.values())
    ahead = []
    for done, point in enumerate(runs):
        report(_stage("simulating first", done, len(runs)))
        ahead.append(_simulate(point, backends))
    _run_missing(runs, ahead, backends, report, again=again)
    of_run = {}
    for done, point in enumerate(runs):
        report(_stage("replaying and auditing", done, len(runs)))
        outcome = _outcome(point, ahead[done], backends)
        of_run[point.folder.path] = outcome
    outcomes: dict[Point, tuple[Outcome, ...]] = {}
    for point in points:
        found = of_run[point.folder.path]
        outcomes[point.at] = (*outcomes.get(point.at, ()), found)
    grid = {}
    for at, found_at in outcomes.items():
        own = figure.own_of(*at)
        grid[at] = tuple(measured(outcome, own) for outcome in found_at)
    seeds = max(point.repetition for point in points)
    return LiveReproduced(
        Reproduced(figure, seeds, request.quick, Grid(grid)),
        figure,
        outcomes,
    )


def _stage(name: str, done: int, of: int) -> SweepProgress:
    """Progress of a stage before or after the live runs."""
    return SweepProgress(
        done=done, of=of, cost=done, of_cost=of, kept=0, stage=name
    )


def _run_missing(
    points: Sequence[LivePoint],
    ahead: Sequence[RecordedRun],
    backends: Backends,
    report: Report,
    *,
    again: bool,
) -> None:
    """Runs the points that have no live run; ``ahead`` are the simulated ones.

    Repetition by repetition, within one in an order that is drawn: machines
    drift, and no series shall always be the first.
    """
    missing = [point for point in points if not _kept(point, again=again)]
    missing.sort(key=_drawn_place)
    for point in missing[:1]:
        backends.ready(point.experiment)
    walls = {id(p): SET_UP_S + run.summary.span_s / p.experiment.scale.time
             for p, run in zip(points, ahead, strict=True)}  # fmt: skip
    total_s = sum(walls[id(point)] for point in missing)
    gone_s = 0.0
    kept = len(points) - len(missing)

    def report_at(done: int, passed_s: float) -> None:
        report(
            SweepProgress(
                done=done,
                of=len(points),
                cost=passed_s,
                of_cost=total_s,
                kept=kept,
                in_seconds=True,
            )
        )

    report_at(kept, 0.0)
    for number, point in enumerate(missing, kept):
        began_s = gone_s
        gone_s += walls[id(point)]
        time_scale = point.experiment.scale.time

        def advance(
            now_s: float,
            number: int = number,
            began_s: float = began_s,
            end_s: float = gone_s,
            scale: float = time_scale,
        ) -> None:
            # A run that outlasts its estimate stands at the estimate's end.
            report_at(number, min(began_s + now_s / scale, end_s))

        _run_live(point, backends, advance)
        report_at(number + 1, gone_s)


def _drawn_place(point: LivePoint) -> tuple[int, float]:
    """The repetition, and a number that is drawn for the run: the same
    whenever the figure is continued.
    """
    stream = Random(point.folder.path.name)  # noqa: S311 - no secret
    return point.repetition, stream.random()


def _points(figure: LiveFigure, request: Request) -> list[LivePoint]:
    """All points, repetition by repetition."""
    top = RunFolder((request.out / RUNS).absolute(), caller())
    found = []
    for repetition in range(1, (1 if figure.exact else request.seeds) + 1):
        for series, x in figure.points:
            experiment = figure.variant(
                series, x, request.quick
            ).repetition(repetition)
            policy = experiment.policies[0].label
            label = f"{experiment.name}-{policy}-s{experiment.seed}-{digest(experiment)}"
            own = RunFolder(top.path / label, top.owner)
            found.append(
                LivePoint((series, x), repetition, experiment, own)
            )
    return found


def _folder(figure: AnyFigure, request: Request) -> RunFolder:
    name = f"{figure.name}-quick" if request.quick else figure.name
    return RunFolder((request.out / name).absolute(), caller())


def _simulate(point: LivePoint, backends: Backends) -> RecordedRun:
    folder = _empty(point, SIMULATED)
    backends.simulated(point.experiment, folder)
    return load_run(folder.path)


def _kept(point: LivePoint, *, again: bool) -> bool:
    """True where a complete live run is there that need not be run again for
    not being ``ok``.
    """
    path = point.folder.path / LIVE
    try:
        run = load_run(path)
    except BadInput:
        return False
    if run.summary.status != COMPLETED:
        return False
    return not (again and level_of(run) > 0)


def _run_live(
    point: LivePoint, backends: Backends, advance: Advance
) -> None:
    path = point.folder.path / LIVE
    if path.exists():
        if _kept(point, again=False):
            # It is a measurement, if a spoilt one: the number of tries is
            # reported with the result.
            number = _earlier(point) + 1
            with opened_folder(path.parent) as above:
                within = {"src_dir_fd": above, "dst_dir_fd": above}
                os.rename(LIVE, f"{LIVE}.{number}", **within)  # noqa: PTH104 - within a folder
        else:
            remove_folder(path)
    backends.live(point.experiment, _empty(point, LIVE), advance)


def _earlier(point: LivePoint) -> int:
    """The number of complete live runs that were set aside, by the name of the
    last: others may have been removed.
    """
    last = 0
    for path in point.folder.path.glob(f"{LIVE}.*"):
        number = path.suffix[1:]
        if number.isdecimal():
            last = max(last, int(number))
    return last


def _empty(point: LivePoint, name: str) -> RunFolder:
    folder = RunFolder(point.folder.path / name, point.folder.owner)
    if folder.path.exists():
        remove_folder(folder.path)
    folder.make()
    return folder


def _outcome(
    point: LivePoint, simulated: RecordedRun, backends: Backends
) -> Outcome:
    from testbed.audit import audit

    path = point.folder.path / LIVE
    live = load_run(path)
    again = _empty(point, REPLAY)
    differs = backends.replayed(point.experiment, path, again)
    accepted = compare_runs(live, load_run(again.path)).accepted_differ
    failed = tuple(
        check.name
        for check in audit(path).results
        if check.status == "failed"
    )
    return Outcome(
        live,
        simulated,
        compare_runs(live, simulated),
        differs,
        accepted,
        failed,
        1 + _earlier(point),
    )


def write_live(
    found: LiveReproduced, request: Request
) -> tuple[RunFolder, dict[str, Any]]:
    """The figure's folder (``OUT/NAME``), and its JSON."""
    folder = _folder(found.figure, request)
    where = provenance(
        seeds={"count": found.done.seeds},
        command=request.command,
        backend=LIVE,
    )
    record = {
        **to_json(found.done, request.command, where),
        "runs": runs_of(found),
    }
    folder.write_json(RESULTS, record)
    folder.write_text(TABLE, to_markdown(found.done))
    for kind, content in live_pictures(
        found.done, found.figure, found.outcomes
    ).items():
        folder.write_bytes(f"{PICTURE}.{kind}", content)
    folder.write_json(PROVENANCE, where)
    folder.hand_over()
    return folder, record


def runs_of(found: LiveReproduced) -> list[dict[str, Any]]:
    """Every live run with its verdict, as pages and ``--json`` show it; once
    where several points share it.
    """
    listed: dict[Path, dict[str, Any]] = {}
    for at, own in found.outcomes.items():
        for outcome in own:
            listed.setdefault(outcome.live.path, _described(at, outcome))
    return list(listed.values())


def _described(at: Point, outcome: Outcome) -> dict[str, Any]:
    series, x = at
    summary = outcome.live.summary
    return {
        "series": series,
        "x": x,
        "seed": summary.seed,
        "verdict": summary.fidelity.verdict,
        "reasons": list(summary.fidelity.reasons),
        "audit": list(outcome.audit_failed) or "passed",
        "attempts": outcome.attempts,
        "jobs": summary.jobs,
        "wall_s": summary.wall_s,
        "replay": outcome.replay_differs or "every decision the same",
        "commit": known(outcome.live.provenance, "code.commit", str),
        "folder": str(outcome.live.path),
    }
