"""Reproductions from run configurations to files: computed or measured, judged,
written down.

Below ``OUT/live/`` every live configuration has a folder, named after the
experiment, its policy, its seed and the digest of what is played and of the
program that plays it: figures that share a point share its run, and another
program's runs stay where they are. In it ``live`` is the live run. A complete
one is kept, and run again only with ``again`` and if its verdict is not ``ok``:
the earlier one then moves to ``live.1``, ``live.2`` … The simulated run
(``simulated``) and the replay (``replay``) take seconds and are made anew each
time.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from itertools import chain
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeVar

from reproductions.catalogue import folder_of
from reproductions.figure_plots import live_pictures, pictures
from reproductions.figure_tables import to_json, to_markdown
from reproductions.grid_quantities import LEVELS, Grid
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
from testbed.owned_files import (
    caller,
    opened_folder,
    remove_folder,
    resolved_for_root,
)
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
LIVE = "live"
SIMULATED = "simulated"
REPLAY = "replay"
COMPLETED = "completed"
# Approximate wall time of a live run before and after its jobs: building
# the network, preflight load test, cleanup.
SET_UP_S = 8.0
# A simulated figure, or a live one.
Taken = TypeVar("Taken")


@dataclass(frozen=True)
class Request:
    """A command's options: seeds, size, folder.

    ``most``: the greatest number of seeds, up to which they are doubled while
    a claim of the paper is inconclusive; 0 where their number is fixed.
    ``after``: the number of seeds before these that are left out.
    """

    out: Path
    seeds: int
    quick: bool
    command: list[str]
    most: int = 0
    after: int = 0

    @property
    def stages(self) -> tuple[int, ...]:
        """The numbers of seeds after which the claims are judged."""
        return doubled(self.seeds, self.most)


def doubled(seeds: int, most: int) -> tuple[int, ...]:
    """``seeds``, twice as many and so on, ``most`` at most."""
    # The level is divided by the number of stages, and by doubling there are
    # few.
    stages = [seeds]
    while 2 * stages[-1] <= most:
        stages.append(2 * stages[-1])
    return tuple(stages)


def checked_out(out: Path, option: str = "--out") -> Path:
    """The folder that an option names, without links. Raises BadInput where
    nothing can be written, before anything is computed.
    """
    try:
        folder = resolved_for_root(out).absolute()
    except RuntimeError:
        raise BadInput(
            f"{out} is a link to itself",
            f"name another folder with {option}",
        ) from None
    # The folder is made when there is a result: the nearest one above it
    # that exists decides.
    existing = folder
    while not existing.exists():
        existing = existing.parent
    if not existing.is_dir():
        why = f"{existing} is not a folder"
    elif not os.access(existing, os.W_OK | os.X_OK):
        why = f"{existing}: {os.strerror(errno.EACCES)}"
    else:
        return folder
    raise BadInput(
        f"nothing can be written into {out}: {why}",
        f"name a folder you may write to with {option}",
    )


def reproduce_figure(
    figure: Figure, request: Request, executor: Executor, report: Report
) -> Reproduced:
    """A figure from its runs, of which stored ones are not computed again."""
    store = ResultStore(request.out / CACHE)
    stages = _planned_stages(figure, request)

    def reproduced_with(seeds: int) -> Reproduced:
        points = figure.configurations(seeds, quick=request.quick)
        runs = chain.from_iterable(points.values())
        results = compute(runs, store, executor, report)
        return Reproduced.of(
            figure, seeds, results, quick=request.quick, stages=stages
        )

    return _first_decided(
        stages or (request.seeds,),
        reproduced_with,
        lambda done: done.decided,
    )


def _planned_stages(figure: AnyFigure, request: Request) -> tuple[int, ...]:
    """The numbers of seeds after which a figure's claims are judged; none where
    its number of seeds is fixed.
    """
    # Without anything random in it, more seeds would give the same.
    if figure.exact or not request.most:
        return ()
    return request.stages


def _first_decided(
    stages: Sequence[int],
    taken_with: Callable[[int], Taken],
    is_decided: Callable[[Taken], bool],
) -> Taken:
    """The figure with the seeds of the first stage that decides its claims."""
    # At the last stage the figure is as it is, decided or not.
    *earlier, last = stages
    for seeds in earlier:
        taken = taken_with(seeds)
        if is_decided(taken):
            return taken
    return taken_with(last)


def write(
    done: Reproduced, request: Request
) -> tuple[RunFolder, dict[str, Any]]:
    """Writes the figure's folder; returns it and the content of
    ``results.json``.
    """
    folder = _figure_folder(done.figure, request)
    origin = provenance(
        seeds={"first": done.figure.first_seed, "count": done.seeds},
        command=request.command,
        backend="sim",
    )
    record = to_json(done, request.command, origin)
    folder.write_json(RESULTS, record)
    folder.write_text(TABLE, to_markdown(done))
    for kind, content in pictures(done).items():
        folder.write_bytes(f"{PICTURE}.{kind}", content)
    folder.write_json(PROVENANCE, origin)
    return folder, record


# -- on the live network -------------------------------------------------------

Advance = Callable[[float], None]
"""Called with the seconds of the experiment that have passed."""


class Backends(Protocol):
    """Plays experiments on the live network, in the simulator, and in the
    simulator with a live run's backend trace.
    """

    def ready(self, experiment: Experiment) -> None:
        """Raises MachineCannot where this machine can play no live run."""

    def live(
        self, experiment: Experiment, folder: RunFolder, advance: Advance
    ) -> None:
        """Plays a live run into an empty folder; nothing else of it stays on the
        machine.
        """

    def simulated(self, experiment: Experiment, folder: RunFolder) -> None:
        """Plays the same experiment in the simulator."""

    def replayed(
        self, experiment: Experiment, live: Path, folder: RunFolder
    ) -> str:
        """Makes the live run's decisions again; returns in words where they first
        differ, nothing where they do not.
        """


@dataclass(frozen=True)
class LivePoint:
    """A repetition of a figure's point, and the folder of its runs."""

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
    """Simulates every point, plays the live runs that are missing, replays
    them, and measures. Where several stages are planned, the first one that
    decides its claims is the last.

    ``again``: live runs whose verdict is not ``ok`` are run again. An error
    ends it; live runs that are complete by then are kept.
    """
    stages = _planned_stages(figure, request)

    def played_with(seeds: int) -> LiveReproduced:
        return _played_live(
            figure,
            replace(request, seeds=seeds),
            stages,
            backends,
            report,
            again=again,
        )

    return _first_decided(
        stages or (request.seeds,),
        played_with,
        lambda live: live.done.decided,
    )


def _played_live(
    figure: LiveFigure,
    request: Request,
    stages: tuple[int, ...],
    backends: Backends,
    report: Report,
    *,
    again: bool,
) -> LiveReproduced:
    """The figure with exactly the seeds of the request."""
    # All simulations come first: their spans are the expected times of the
    # live runs.
    points = _points(figure, request)
    # Several points may share a run, which has a folder of its own.
    runs = list({point.folder.path: point for point in points}.values())
    simulations = _simulate_all(runs, backends, report)
    _run_missing(runs, simulations, backends, report, again=again)
    outcome_in = _outcomes(runs, simulations, backends, report)
    outcomes: dict[Point, tuple[Outcome, ...]] = {}
    for point in points:
        outcome = outcome_in[point.folder.path]
        outcomes[point.at] = (*outcomes.get(point.at, ()), outcome)
    done = Reproduced(
        figure=figure,
        seeds=len({point.repetition for point in points}),
        quick=request.quick,
        grid=_grid(figure, outcomes),
        stages=stages,
    )
    return LiveReproduced(done, figure, outcomes)


def _simulate_all(
    runs: Sequence[LivePoint], backends: Backends, report: Report
) -> list[RecordedRun]:
    simulations = []
    for number, point in enumerate(runs):
        report(_stage("simulating first", number, len(runs)))
        simulations.append(_simulate(point, backends))
    return simulations


def _outcomes(
    runs: Sequence[LivePoint],
    simulations: Sequence[RecordedRun],
    backends: Backends,
    report: Report,
) -> dict[Path, Outcome]:
    """The outcome of each live run, by its folder."""
    outcome_in = {}
    for number, point in enumerate(runs):
        report(_stage("replaying and auditing", number, len(runs)))
        outcome_in[point.folder.path] = _outcome(
            point, simulations[number], backends
        )
    return outcome_in


def _grid(
    figure: LiveFigure, outcomes: Mapping[Point, tuple[Outcome, ...]]
) -> Grid:
    """The measures of each point's repetitions."""
    measures = {}
    for at, repetitions in outcomes.items():
        series, x = at
        measures_of_figure = figure.own_of(series, x)
        of_repetitions = []
        for outcome in repetitions:
            of_repetitions.append(measured(outcome, measures_of_figure))
        measures[at] = tuple(of_repetitions)
    return Grid(measures)


def _stage(name: str, done: int, of: int) -> SweepProgress:
    """Progress of a stage before or after the live runs."""
    return SweepProgress(
        done=done, of=of, cost=done, of_cost=of, kept=0, stage=name
    )


@dataclass(frozen=True)
class _LiveProgress:
    """Progress of ``of`` live runs by the time that they are expected to take.

    ``kept``: complete ones, which are not run. ``total_s``: the expected time
    of the others.
    """

    report: Report
    of: int
    kept: int
    total_s: float

    def report_at(self, done: int, passed_s: float) -> None:
        self.report(
            SweepProgress(
                done=done,
                of=self.of,
                cost=passed_s,
                of_cost=self.total_s,
                kept=self.kept,
                in_seconds=True,
            )
        )

    def advance(
        self,
        now_s: float,
        *,
        done: int,
        begin_s: float,
        end_s: float,
        time_scale: float,
    ) -> None:
        """Reports the progress within a run, at ``now_s`` of its own time."""
        # A run that outlasts its estimate stands at the estimate's end.
        self.report_at(done, min(begin_s + now_s / time_scale, end_s))


def _run_missing(
    points: Sequence[LivePoint],
    simulations: Sequence[RecordedRun],
    backends: Backends,
    report: Report,
    *,
    again: bool,
) -> None:
    """Plays the live runs of those points that have none; ``simulations`` are
    the points' simulated runs.

    They are played repetition by repetition, and within a repetition in a
    drawn order: machines drift, and no series shall always be the first.
    """
    missing = []
    for point in points:
        if not _is_kept(point, again=again):
            missing.append(point)
    missing.sort(key=_drawn_place)
    if missing:
        backends.ready(missing[0].experiment)
    expected_s = _expected_s(points, simulations)
    total_s = 0.0
    for point in missing:
        total_s += expected_s[point.folder.path]
    kept = len(points) - len(missing)
    progress = _LiveProgress(report, len(points), kept, total_s)
    progress.report_at(kept, 0.0)
    begin_s = 0.0
    for done, point in enumerate(missing, kept):
        end_s = begin_s + expected_s[point.folder.path]
        advance_run = partial(
            progress.advance,
            done=done,
            begin_s=begin_s,
            end_s=end_s,
            time_scale=point.experiment.scale.time,
        )
        _run_live(point, backends, advance_run)
        progress.report_at(done + 1, end_s)
        begin_s = end_s


def _expected_s(
    points: Sequence[LivePoint], simulations: Sequence[RecordedRun]
) -> dict[Path, float]:
    """The wall time that each point's live run is expected to take, by its
    folder.
    """
    expected_s = {}
    for point, simulation in zip(points, simulations, strict=True):
        jobs_s = simulation.summary.span_s / point.experiment.scale.time
        expected_s[point.folder.path] = SET_UP_S + jobs_s
    return expected_s


def _drawn_place(point: LivePoint) -> tuple[int, float]:
    """Sort key: the repetition, then a random number, for which the name of the
    run's folder is the seed: the order stays when a stopped figure is continued.
    """
    stream = Random(point.folder.path.name)  # noqa: S311 - no secret
    return point.repetition, stream.random()


def _points(figure: LiveFigure, request: Request) -> list[LivePoint]:
    """All points, repetition by repetition."""
    top = RunFolder((request.out / RUNS).absolute(), caller())
    count = request.seeds
    if figure.exact:
        count = 1
    first = figure.first_seed
    points = []
    for repetition in range(first, first + count):
        for series, x in figure.points:
            variant = figure.variant(series, x, request.quick)
            experiment = variant.repetition(repetition)
            policy = experiment.policies[0].label
            # Points that play the same get the same folder.
            name = (
                f"{experiment.name}-{policy}-s{experiment.seed}"
                f"-{digest(experiment)}"
            )
            folder = RunFolder(top.path / name, top.owner)
            points.append(
                LivePoint((series, x), repetition, experiment, folder)
            )
    return points


def _figure_folder(figure: AnyFigure, request: Request) -> RunFolder:
    """``OUT/NAME``, or ``OUT/NAME-quick``."""
    name = folder_of(figure)
    if request.quick:
        name = f"{name}-quick"
    return RunFolder((request.out / name).absolute(), caller())


def _simulate(point: LivePoint, backends: Backends) -> RecordedRun:
    folder = _empty_folder(point, SIMULATED)
    backends.simulated(point.experiment, folder)
    return load_run(folder.path)


def _is_kept(point: LivePoint, *, again: bool) -> bool:
    """True where the point has a complete live run; with ``again`` only if that
    is ``ok``.
    """
    path = point.folder.path / LIVE
    # An interrupted run leaves a folder that has no summary, or is
    # incomplete.
    try:
        run = load_run(path)
    except BadInput:
        return False
    if run.summary.status != COMPLETED:
        return False
    return not again or level_of(run) == LEVELS["ok"]


def _run_live(
    point: LivePoint, backends: Backends, advance: Advance
) -> None:
    """Plays a live run; a complete one in its place is set aside, an incomplete
    one removed.
    """
    path = point.folder.path / LIVE
    if path.exists():
        if _is_kept(point, again=False):
            # It is a measurement too, if not a sound one: the number of
            # tries is reported with the result.
            number = _last_aside(point) + 1
            with opened_folder(path.parent) as above:
                os.rename(
                    LIVE,
                    f"{LIVE}.{number}",
                    src_dir_fd=above,
                    dst_dir_fd=above,
                )
        else:
            remove_folder(path)
    folder = _empty_folder(point, LIVE)
    backends.live(point.experiment, folder, advance)


def _last_aside(point: LivePoint) -> int:
    """The number in the name of the complete live run that was set aside last;
    0 where there is none. Earlier ones may have been removed.
    """
    last = 0
    for path in point.folder.path.glob(f"{LIVE}.*"):
        number = path.suffix[1:]
        if number.isdecimal():
            last = max(last, int(number))
    return last


def _empty_folder(point: LivePoint, name: str) -> RunFolder:
    """A new folder of a point; an earlier one of that name is removed."""
    folder = RunFolder(point.folder.path / name, point.folder.owner)
    if folder.path.exists():
        remove_folder(folder.path)
    folder.make()
    return folder


def _outcome(
    point: LivePoint, simulated: RecordedRun, backends: Backends
) -> Outcome:
    """The point's live run beside its simulated one, replayed and audited."""
    # Simulated figures need no audit.
    from testbed.audit import audit

    # The simulator makes the live run's decisions again from its trace: a
    # difference is a decision that depends on more than the trace.
    path = point.folder.path / LIVE
    live = load_run(path)
    folder = _empty_folder(point, REPLAY)
    differs = backends.replayed(point.experiment, path, folder)
    replay = load_run(folder.path)
    failed = []
    for check in audit(path).results:
        if check.status == "failed":
            failed.append(check.name)
    return Outcome(
        live=live,
        simulated=simulated,
        comparison=compare_runs(live, simulated),
        replay_differs=differs,
        accepted_differ=compare_runs(live, replay).accepted_differ,
        audit_failed=tuple(failed),
        attempts=_last_aside(point) + 1,
    )


def write_live(
    reproduced: LiveReproduced, request: Request
) -> tuple[RunFolder, dict[str, Any]]:
    """Writes the figure's folder; returns it and the content of
    ``results.json``.
    """
    # The runs have folders of their own, which figures share.
    done = reproduced.done
    folder = _figure_folder(done.figure, request)
    origin = provenance(
        seeds={
            "first_repetition": done.figure.first_seed,
            "count": done.seeds,
        },
        command=request.command,
        backend=LIVE,
    )
    record = {
        **to_json(done, request.command, origin),
        "runs": runs_of(reproduced),
    }
    folder.write_json(RESULTS, record)
    folder.write_text(TABLE, to_markdown(done))
    drawn = live_pictures(done, reproduced.figure, reproduced.outcomes)
    for kind, content in drawn.items():
        folder.write_bytes(f"{PICTURE}.{kind}", content)
    folder.write_json(PROVENANCE, origin)
    folder.hand_over()
    return folder, record


def runs_of(reproduced: LiveReproduced) -> list[dict[str, Any]]:
    """Every live run with its verdict, as pages and ``--json`` show it. A run
    that several points share is listed once.
    """
    # The first of the points that share a run lists it.
    listed: dict[Path, dict[str, Any]] = {}
    for at, outcomes in reproduced.outcomes.items():
        for outcome in outcomes:
            listed.setdefault(outcome.live.path, _listed_run(at, outcome))
    return list(listed.values())


def _listed_run(at: Point, outcome: Outcome) -> dict[str, Any]:
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
        "dirty": known(outcome.live.provenance, "code.dirty", bool),
        "folder": str(outcome.live.path),
    }
