"""A live figure from its trials to its files: what is missing is run, the rest is read.

Below ``OUT/live/`` every trial has a folder, named after the experiment, its policy, its seed and
the digest of what is played: figures that share a point share its run. In it ``live`` is the live
run: it is kept, and never run again while it is complete. ``simulated`` and ``replay`` take seconds
and are made anew each time. A live run that is run again all the same (one not ``ok``, if so
asked) moves to ``live.1``, ``live.2`` …
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from reproductions.figure import Point, Reproduced
from reproductions.live.draw import pictures
from reproductions.live.figure import LiveFigure, Outcome
from reproductions.live.measures import level_of, measured
from reproductions.live.trial import digest
from reproductions.play import PICTURE, RESULTS, TABLE, Request
from reproductions.quantities import Grid
from reproductions.record import to_json, to_markdown
from reproductions.sweep import Progress, Report
from testbed.errors import BadInput
from testbed.results.audit import audit
from testbed.results.comparison import compare
from testbed.results.folder import PROVENANCE, RunFolder, caller
from testbed.results.provenance import provenance
from testbed.results.reading import Run, load_run
from testbed.spec.experiment import Experiment

RUNS = "live"
LIVE, SIMULATED, REPLAY = "live", "simulated", "replay"
COMPLETED = "completed"
SET_UP_S = 8.0
"""About how long a live run takes beside its jobs: network up, rehearsal, network down."""

Advance = Callable[[float], None]
"""Told how many seconds of the experiment have passed."""


class Worlds(Protocol):
    """Who plays: the live network, the simulator, and the simulator with a live run's answers."""

    def ready(self, experiment: Experiment) -> None:
        """Raises MachineCannot where this machine has no live network to offer."""

    def live(self, experiment: Experiment, folder: RunFolder, advance: Advance) -> None:
        """One live run into an empty folder. Whatever stops it, nothing but the folder is left."""

    def simulated(self, experiment: Experiment, folder: RunFolder) -> None:
        """The same file in the simulator."""

    def replayed(self, experiment: Experiment, live: Path, folder: RunFolder) -> str:
        """The live run's decisions again; where they first differ, or nothing."""


@dataclass(frozen=True)
class Piece:
    """A trial of a figure at one repetition, and where its runs are."""

    point: Point
    repetition: int
    experiment: Experiment
    folder: RunFolder

    @property
    def label(self) -> str:
        series, x = self.point
        return f"{series} at {x:g}, seed {self.experiment.seed}"


@dataclass(frozen=True)
class LiveReproduced:
    """A live figure with all that its runs came to."""

    done: Reproduced
    figure: LiveFigure
    outcomes: Mapping[Point, tuple[Outcome, ...]]


def reproduce_live(
    figure: LiveFigure, request: Request, worlds: Worlds, report: Report, *, again: bool = False
) -> LiveReproduced:
    """Run what is missing, one trial after another; simulate and replay all; measure.

    ``again``: live runs whose verdict is not ``ok`` are run again. Raises what stops it; complete
    runs stay.
    """
    pieces = _pieces(figure, request)
    ahead = [_simulate(piece, worlds) for piece in pieces]
    missing = [piece for piece in pieces if not _kept(piece, again=again)]
    for piece in missing[:1]:
        worlds.ready(piece.experiment)
    walls = {id(p): SET_UP_S + run.summary.span_s / p.experiment.scale.time
             for p, run in zip(pieces, ahead, strict=True)}  # fmt: skip
    total_s = sum(walls[id(piece)] for piece in missing)
    gone_s, kept = 0.0, len(pieces) - len(missing)
    report(Progress(kept, len(pieces), 0.0, total_s, kept))
    for number, piece in enumerate(missing, kept):
        began_s, time_scale = gone_s, piece.experiment.scale.time

        def advance(
            now_s: float, number: int = number, began_s: float = began_s, scale: float = time_scale
        ) -> None:
            report(Progress(number, len(pieces), began_s + now_s / scale, total_s, kept))

        _run_live(piece, worlds, advance)
        gone_s += walls[id(piece)]
        report(Progress(number + 1, len(pieces), gone_s, total_s, kept))
    outcomes: dict[Point, tuple[Outcome, ...]] = {}
    for piece, simulated in zip(pieces, ahead, strict=True):
        found = _outcome(piece, simulated, worlds)
        outcomes[piece.point] = (*outcomes.get(piece.point, ()), found)
    grid = Grid(
        {
            point: tuple(measured(outcome, figure.own) for outcome in own)
            for point, own in outcomes.items()
        }
    )
    seeds = max(piece.repetition for piece in pieces)
    return LiveReproduced(Reproduced(figure, seeds, request.quick, grid), figure, outcomes)


def _pieces(figure: LiveFigure, request: Request) -> list[Piece]:
    """All trials, repetition by repetition."""
    top = RunFolder((request.out / RUNS).absolute(), caller())
    found = []
    for repetition in range(1, (1 if figure.exact else request.seeds) + 1):
        for series, x in figure.points:
            experiment = figure.trial(series, x, request.quick).experiment(repetition)
            policy = experiment.policies[0].label
            label = f"{experiment.name}-{policy}-s{experiment.seed}-{digest(experiment)}"
            own = RunFolder(top.path / label, top.owner)
            found.append(Piece((series, x), repetition, experiment, own))
    return found


def _folder(figure: LiveFigure, request: Request) -> RunFolder:
    name = f"{figure.name}-quick" if request.quick else figure.name
    return RunFolder((request.out / name).absolute(), caller())


def _simulate(piece: Piece, worlds: Worlds) -> Run:
    folder = _empty(piece, SIMULATED)
    worlds.simulated(piece.experiment, folder)
    return load_run(folder.path)


def _kept(piece: Piece, *, again: bool) -> bool:
    """Whether a complete live run is there (and need not be run again for not being ``ok``)."""
    path = piece.folder.path / LIVE
    try:
        run = load_run(path)
    except BadInput:
        return False
    if run.summary.status != COMPLETED:
        return False
    return not (again and level_of(run) > 0)


def _run_live(piece: Piece, worlds: Worlds, advance: Advance) -> None:
    path = piece.folder.path / LIVE
    if path.exists():
        if _kept(piece, again=False):
            # It is a measurement, if a spoilt one: how often it took is told with the result.
            path.rename(path.with_name(f"{LIVE}.{_earlier(piece) + 1}"))
        else:
            shutil.rmtree(path)
    worlds.live(piece.experiment, _empty(piece, LIVE), advance)


def _earlier(piece: Piece) -> int:
    """How many complete live runs were set aside."""
    return sum(1 for _ in piece.folder.path.glob(f"{LIVE}.[0-9]*"))


def _empty(piece: Piece, name: str) -> RunFolder:
    folder = RunFolder(piece.folder.path / name, piece.folder.owner)
    if folder.path.exists():
        shutil.rmtree(folder.path)
    folder.make()
    return folder


def _outcome(piece: Piece, simulated: Run, worlds: Worlds) -> Outcome:
    path = piece.folder.path / LIVE
    live = load_run(path)
    again = _empty(piece, REPLAY)
    differs = worlds.replayed(piece.experiment, path, again)
    accepted = compare(live, load_run(again.path)).accepted_differ
    failed = tuple(check.name for check in audit(path).results if check.status == "failed")
    return Outcome(
        live, simulated, compare(live, simulated), differs, accepted, failed, 1 + _earlier(piece)
    )


def write_live(found: LiveReproduced, request: Request) -> tuple[RunFolder, dict[str, Any]]:
    """The figure's folder (``OUT/NAME``), and what its JSON says."""
    folder = _folder(found.figure, request)
    where = provenance(seeds={"count": found.done.seeds}, command=request.command, backend=LIVE)
    record = {**to_json(found.done, request.command, where), "runs": runs_of(found)}
    folder.write_json(RESULTS, record)
    folder.write_text(TABLE, to_markdown(found.done))
    for kind, content in pictures(found.done, found.figure, found.outcomes).items():
        folder.write_bytes(f"{PICTURE}.{kind}", content)
    folder.write_json(PROVENANCE, where)
    folder.hand_over()
    return folder, record


def runs_of(found: LiveReproduced) -> list[dict[str, Any]]:
    """Every live run with its verdict: what the page and ``--json`` say of them."""
    return [
        {
            "series": series,
            "x": x,
            "seed": outcome.live.summary.seed,
            "verdict": outcome.live.summary.fidelity.verdict,
            "reasons": list(outcome.live.summary.fidelity.reasons),
            "audit": list(outcome.audit_failed) or "passed",
            "attempts": outcome.attempts,
            "jobs": outcome.live.summary.jobs,
            "wall_s": outcome.live.summary.wall_s,
            "replay": outcome.replay_differs or "every decision the same",
            "commit": _commit(outcome.live),
            "folder": str(outcome.live.path),
        }
        for (series, x), own in found.outcomes.items()
        for outcome in own
    ]


def _commit(run: Run) -> str | None:
    code = (run.provenance or {}).get("code", {})
    return code.get("commit") if isinstance(code, dict) else None
