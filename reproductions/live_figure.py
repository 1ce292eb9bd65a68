"""Live figures: published evaluations measured on the live network, beside the
simulator.

The measures of a run are taken from its live folder, from its simulated one,
and between the two. An *invalid* live run has measured nothing: its values are
not-a-number, and checks that need them are made without its seed.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise
from random import Random
from typing import Any

from reproductions.configuration import Settings, Variant
from reproductions.grid_quantities import (
    LEVELS,
    Measure,
    Measures,
    is_invalid,
)
from reproductions.published_figure import AnyFigure, Panel
from testbed import events
from testbed.record.comparison import PolicyComparison
from testbed.record.metrics import Spread, spread
from testbed.record.reading import RecordedRun
from testbed.spec.experiment import Experiment
from testbed.sweeps.computing_sources import modules_digest, versions

DIGITS = 12
CHANGE_NOTHING = ("expect", "overrides")
"""Parts of a resolved experiment that change nothing in what is played."""


def digest(experiment: Experiment) -> str:
    """The name that its runs are filed under: a digest of all that is played, of
    the sources that play and measure it, and of the libraries' versions.
    """
    played = dict(experiment.resolved)
    for part in CHANGE_NOTHING:
        played.pop(part, None)
    # Where a trace lies says nothing; its checksum is among the facts.
    facts = dict(experiment.workload_facts)
    facts.pop("file", None)
    played["workload_facts"] = facts
    text = json.dumps(played, sort_keys=True, default=str)
    # A changed program shall not show old runs as its own.
    text += f"{modules_digest(live=True)}{versions()}"
    return hashlib.sha256(text.encode()).hexdigest()[:DIGITS]


@dataclass(frozen=True)
class DrawnOrder(Variant):
    """A variant whose seed draws one of several orders of its jobs: machines
    drift, and no job shall always be the first.

    ``orders``: the settings of each.
    """

    orders: tuple[Settings, ...] = ()

    def to_json(self) -> dict[str, Any]:
        orders = [dict(order) for order in self.orders]
        return {**super().to_json(), "orders": orders}

    def experiment(self, seed: int | None = None) -> Experiment:
        """The experiment in the order that its seed draws.

        Points of one seed are drawn apart, as their orders differ.
        """
        # Without a seed of its own a run has that of the file.
        if seed is None:
            seed = super().experiment().seed
        stream = Random(f"{seed}/{self.orders}")  # noqa: S311 - no secret
        drawn = stream.choice(self.orders)
        settings = (*self.settings, *drawn)
        return Variant(self.file, self.policy, settings).experiment(seed)


@dataclass(frozen=True)
class Outcome:
    """A configuration's live run, its simulated one, and the replay of the live
    one's decisions.

    ``comparison`` is of live and simulated. ``replay_differs``: where the
    replay's decisions first differ from the live run's, in words; empty where
    they do not. ``accepted_differ``: the jobs that only one of live run and
    replay accepted. ``audit_failed``: the checks that the live run's audit
    found violated.
    """

    live: RecordedRun
    simulated: RecordedRun
    comparison: PolicyComparison
    replay_differs: str
    accepted_differ: tuple[str, ...]
    audit_failed: tuple[str, ...]
    attempts: int


Curve = Sequence[tuple[float, float]]
"""Points of a line; between two of them it stays at the former (a step
function).
"""


@dataclass(frozen=True)
class Curves:
    """A panel with a line per series and backend, at one x, of the first
    repetition.
    """

    title: str
    x_label: str
    curve: Callable[[RecordedRun], Curve]
    x: float = 0.0
    limits: tuple[float, float] | None = None
    """The ends of the x axis."""


@dataclass(frozen=True, kw_only=True)
class LiveFigure(AnyFigure):
    """A figure on the live network. ``variant(series, x, quick)`` is played for
    a point.

    ``own`` adds measures to those of every live figure: it is called with the
    live run and with the simulated one, whose measures' names end in ``_sim``.
    ``own_at`` replaces it where several points share a run, which is then
    played once: it is called with the point too. ``reduced``: what is smaller
    than in the paper.
    """

    variant: Callable[[str, float, bool], Variant]
    own: Callable[[RecordedRun], Measures] | None = None
    own_at: Callable[[RecordedRun, str, float], Measures] | None = None
    curves: tuple[Curves, ...] = ()
    reduced: str = ""

    def played(self, *, quick: bool) -> list[Any]:
        return [
            [series, x, self.variant(series, x, quick).to_json()]
            for series, x in self.points
        ]

    def own_of(
        self, series: str, x: float
    ) -> Callable[[RecordedRun], Measures] | None:
        """The function for its own measures at a point, if it has any."""
        # With the point bound, both kinds of functions are called alike.
        own_at = self.own_at
        if own_at is None:
            return self.own
        return lambda run: own_at(run, series, x)

    @property
    def section(self) -> str:
        """Its name with ``-live``: a simulated figure may have the same name."""
        return f"{self.name}-live"

    @property
    def tables(self) -> tuple[Panel, ...]:
        """Everything written down, with all measures that claims are about."""
        shown = super().tables
        names = {panel.measure.name for panel in shown}
        # Claims may be about measures of every live figure, which no figure
        # lists. A dictionary keeps their order.
        missing: dict[Measure, None] = {}
        for claim in self.claims:
            for check in claim.checks:
                measure = check.quantity.measure
                if measure.name not in names:
                    missing[measure] = None
        return (*shown, *map(Panel, missing))


# -- measures ------------------------------------------------------------------

SUCCESS = Measure("success", "jobs within deadline", unit="%", factor=100.0)
ACCEPTED = Measure("accepted", "jobs accepted", unit="%", factor=100.0)
SLOTS = Measure("slots", "VM slots in use", unit="%", factor=100.0)
MEDIAN = Measure("ratio_median", "measured/estimate, median", digits=4)
P95 = Measure("ratio_p95", "measured/estimate, 95th percentile", digits=4)
WORST = Measure("ratio_max", "measured/estimate, greatest", digits=4)
START_UP = Measure(
    "start_s",
    "placement decided to first byte, median",
    unit="ms",
    factor=1000.0,
)

FIDELITY = Measure(
    "fidelity", "fidelity (0 ok, 1 suspect, 2 invalid)", digits=0
)
POINTS = Measure(
    "points",
    "simulated less live: jobs within deadline",
    unit="points",
    digits=2,
)
COMPLETION = Measure(
    "completion",
    "simulated/live running time, median distance",
    unit="%",
    factor=100.0,
    digits=2,
)
REPLAY = Measure(
    "replay", "jobs accepted by live run or replay alone", digits=0
)
REPLAYED = Measure("replayed", "replays with another decision", digits=0)
AUDIT = Measure(
    "audit", "checks that the live run's audit found violated", digits=0
)
WALL = Measure("wall_s", "wall time of the live run", unit="s", digits=0)

# The measures of every live figure.
EVERY_LIVE = (
    SUCCESS,
    ACCEPTED,
    SLOTS,
    MEDIAN,
    P95,
    WORST,
    START_UP,
    FIDELITY,
    POINTS,
    COMPLETION,
    REPLAY,
    REPLAYED,
    AUDIT,
    WALL,
)

# The measures that stand beside those of a figure of reserved transfers.
BESIDE = (
    ACCEPTED,
    MEDIAN,
    P95,
    WORST,
    POINTS,
    COMPLETION,
    START_UP,
    FIDELITY,
    WALL,
)

SIMULATED = "_sim"
KEPT_OF_INVALID = frozenset({FIDELITY.name, AUDIT.name, WALL.name})
"""Names of the measures that an invalid run has all the same."""


def simulated(measure: Measure) -> Measure:
    """The same measure of the simulated run."""
    return replace(
        measure,
        name=measure.name + SIMULATED,
        label=f"{measure.label}, simulated",
    )


def measured(
    outcome: Outcome, own: Callable[[RecordedRun], Measures] | None = None
) -> dict[str, float]:
    """All measures of an outcome, ``own`` among them."""
    # The same functions for both, so that a pair of values is comparable.
    live = of_run(outcome.live)
    in_simulator = of_run(outcome.simulated)
    if own is not None:
        live.update(own(outcome.live))
        in_simulator.update(own(outcome.simulated))
    comparison = outcome.comparison
    measures = {
        **live,
        POINTS.name: _number(comparison.success_points),
        COMPLETION.name: _median(comparison.completion),
        REPLAY.name: float(len(outcome.accepted_differ)),
        REPLAYED.name: float(bool(outcome.replay_differs)),
        FIDELITY.name: level_of(outcome.live),
        AUDIT.name: float(len(outcome.audit_failed)),
        WALL.name: _number(outcome.live.summary.wall_s),
    }
    if is_invalid(measures):
        for name in measures.keys() - KEPT_OF_INVALID:
            measures[name] = math.nan
    for name, value in in_simulator.items():
        measures[name + SIMULATED] = value
    return measures


def level_of(run: RecordedRun) -> float:
    """The fidelity verdict as a number; a run without one counts as invalid."""
    verdict = run.summary.fidelity.verdict
    if verdict is None:
        return LEVELS["invalid"]
    return LEVELS.get(verdict, LEVELS["invalid"])


def of_run(run: RecordedRun) -> dict[str, float]:
    """The measures of a run on either backend, not-a-number where there is
    nothing to average.
    """
    summary = run.summary
    ratios = estimate_ratios(run)
    p95 = math.nan
    greatest = math.nan
    if ratios is not None:
        p95 = ratios.p95
        greatest = ratios.max
    return {
        SUCCESS.name: _number(summary.success_rate),
        ACCEPTED.name: _number(summary.acceptance_rate),
        SLOTS.name: mean_until(slots_in_use(run), last_arrival_s(run)),
        MEDIAN.name: _median(ratios),
        P95.name: p95,
        WORST.name: greatest,
        START_UP.name: _start_up_s(run),
    }


def estimate_ratios(run: RecordedRun) -> Spread | None:
    """Measured over estimate of the network-limited jobs that had a
    reservation.

    A job of one VM moves nothing, and one with a demand curve or a computation
    is limited by more than the network. What a policy charges for resuming
    after a preemption is its own, not the network's: it is taken off.
    """
    # The ratio is of transfers, whose estimate has no such costs in it.
    paid = resume_costs_s(run)
    ratios = []
    for row in run.rows:
        if row.kind != "transfer" or row.n_vms == 1:
            continue
        if row.ratio is None or not row.measured_s:
            continue
        paid_share = paid.get(row.job_id, 0.0) / row.measured_s
        ratios.append(row.ratio * (1.0 - paid_share))
    return spread(ratios)


def resume_costs_s(run: RecordedRun) -> dict[str, float]:
    """The time that the policy charged for resuming and migrating, by job."""
    paid: dict[str, float] = {}
    for event in run.file.events:
        if isinstance(event, events.JobResumed | events.JobMigrated):
            paid[event.job_id] = paid.get(event.job_id, 0.0) + event.cost_s
    return paid


def _start_up_s(run: RecordedRun) -> float:
    """The median time from decision to first byte at a receiver, in wall
    seconds.
    """
    started_s = []
    for event in run.file.events:
        if isinstance(event, events.JobEnded):
            # Jobs that sent nothing have none.
            raw_s = event.detail.get("start_s_raw")
            if raw_s is not None:
                started_s.append(float(raw_s))
    return _median(spread(started_s))


def last_arrival_s(run: RecordedRun) -> float:
    """The submission of the last job; 0 without any."""
    return max((row.submit_s for row in run.rows), default=0.0)


def slots_in_use(run: RecordedRun) -> Curve:
    """The share of all VM slots that running jobs hold, from every change on."""
    # A data centre of no slots has no job, and nothing is in use.
    total = sum(run.started.topology["slots"]) or 1
    holds = {row.job_id: row.n_vms for row in run.rows}
    running: set[str] = set()
    points = [(0.0, 0.0)]
    for event in run.file.events:
        match event:
            case (
                events.JobStarted(job_id=job_id)
                | events.JobResumed(job_id=job_id)
                | events.JobMigrated(job_id=job_id)
            ):
                running.add(job_id)
            case (
                events.JobPreempted(job_id=job_id)
                | events.JobRequeued(job_id=job_id)
                | events.JobEnded(job_id=job_id)
            ):
                running.discard(job_id)
            case _:
                continue
        share = sum(holds[job_id] for job_id in running) / total
        # A migrated job holds as many slots as before.
        if share != points[-1][1]:
            points.append((event.t, share))
    return points


def mean_until(curve: Curve, end_s: float) -> float:
    """The mean of a step function from 0 to ``end_s``."""
    if end_s <= 0:
        return math.nan
    area = 0.0
    # Each step lasts until the next one, the last until the end.
    last_step = (end_s, math.nan)
    for (begin_s, y), (step_end_s, _) in pairwise([*curve, last_step]):
        if begin_s < end_s:
            area += max(0.0, min(step_end_s, end_s) - begin_s) * y
    return area / end_s


def _number(value: float | None) -> float:
    """Not-a-number where there is no value."""
    if value is None:
        return math.nan
    return float(value)


def _median(values: Spread | None) -> float:
    """The median; not-a-number where there are no values."""
    if values is None:
        return math.nan
    return values.median
