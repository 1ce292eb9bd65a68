"""CMBF's worked examples as the paper tells them, and how far a run is from them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from reproductions.live.figure import Curve
from reproductions.quantities import Measure
from testbed import events
from testbed.results.read import Run

CMBF, AMBF, CMCBF, AMCBF = "CMBF", "AMBF", "CMCBF", "AMCBF"
MIN_S = 60.0

LATE = Measure("late", "greatest distance of an end from the example's", "%", 100.0, 2)
MOVED = Measure("moved", "starts, evictions, migrations, tier switches unlike the example's", "",
                1.0, 0)  # fmt: skip
TIERS = Measure("tiers", "moments with others in front or behind", "", 1.0, 0)


@dataclass(frozen=True)
class Example:
    """Ends in minutes, by job; what happens to whom, in order; who is where from when on.

    ``moves`` are ``JOB WHAT`` with ``front`` or ``behind`` where it matters.
    """

    ends: Mapping[str, float]
    moves: tuple[str, ...]
    tiers: Mapping[float, tuple[str, str]]


FIGURE_1 = {
    CMBF: Example(
        {"J1": 20, "J2": 5, "J3": 25, "J4": 10, "J5": 20, "J6": 10},
        ("J1 started", "J2 started", "J5 started", "J6 started", "J5 preempted", "J4 started",
         "J5 migrated", "J3 started"),
        {},
    ),
    AMBF: Example(
        {"J1": 20, "J2": 5, "J3": 25, "J4": 20, "J5": 15, "J6": 10},
        ("J1 started", "J2 started", "J5 started", "J6 started", "J4 started", "J3 started"),
        {},
    ),
}  # fmt: skip
"""J3's length is not told: 5 min in the example file."""

_UP_TO_20 = (
    "J01 started front", "J02 started front", "J03 started front", "J04 started behind",
    "J05 started behind", "J04 preempted", "J05 migrated front", "J06 started front",
    "J07 started behind", "J04 migrated front", "J10 started behind", "J10 switched front",
)  # fmt: skip
_TIERS_TO_15 = {
    0.0: ("J01 J02 J03", "J04 J05"),
    5.0: ("J01 J03 J05 J06", "J07"),
    10.0: ("J04 J05 J06", "J07 J10"),
    15.0: ("J05 J06 J10", ""),
}
_ENDS = {"J01": 10, "J02": 5, "J03": 10, "J04": 15, "J05": 25, "J06": 20, "J07": 12, "J08": 30}

FIGURE_2 = {
    CMCBF: Example(
        {**_ENDS, "J09": 25, "J10": 20 + 1.25 / 0.55},
        (*_UP_TO_20, "J10 switched behind", "J09 started front", "J08 started front"),
        {**_TIERS_TO_15, 20.0: ("J05 J09", "J10"), 25.0: ("J08", "")},
    ),
    AMCBF: Example(
        {**_ENDS, "J09": 26.25, "J10": 21.25},
        (*_UP_TO_20, "J09 started front", "J09 switched behind", "J08 started front"),
        {**_TIERS_TO_15, 20.0: ("J05 J10", ""), 22.0: ("J05 J09", "")},
    ),
}
"""Of the example file's running times; the drawing with the paper's is lost (NOTES of the file).

J10 has 2.75 of its 9 min behind J4, 5 in front; in CMCBF it goes behind J9 for the rest.
"""

EXAMPLES = {"cmbf-fig1": FIGURE_1, "cmcbf-fig2": FIGURE_2}
LOOKED_AT_MIN = 0.5
"""How long after an example's moment a run is looked at: what is decided takes a moment to do."""


def example_of(run: Run) -> Example:
    """The example that a run plays, by its name and its policy."""
    policy = run.started.policy.partition("-")[0].upper()
    return EXAMPLES[run.started.run][policy]


def end_of(job: str) -> Measure:
    """A job's end over the example's."""
    return Measure(f"end_{job}", f"{job}'s end over the example's", "", 1.0, 3)


def measures_of(run: Run) -> dict[str, float]:
    """How far ends and moves are from the example's."""
    example = example_of(run)
    ends = {row.job_id: row.end_s or float("inf") for row in run.rows}
    over = {job: ends[job] / (at * MIN_S) for job, at in example.ends.items()}
    moves = moves_of(run)
    unlike = sum(ours != theirs for ours, theirs in zip(moves, example.moves, strict=False))
    return {
        LATE.name: max(abs(ratio - 1.0) for ratio in over.values()),
        MOVED.name: float(unlike + abs(len(moves) - len(example.moves))),
        **{end_of(job).name: ratio for job, ratio in over.items()},
    }


def moves_of(run: Run) -> list[str]:
    """Everything that was done to jobs, in order."""
    two_tiers = run.started.run == "cmcbf-fig2"
    out = []
    for event in run.file.events:
        match event:
            case events.JobPreempted():
                out.append(f"{event.job_id} preempted")
            case events.JobStarted() | events.JobMigrated() | events.JobTierSwitched():
                what = event.name.removeprefix("job_").removeprefix("tier_")
                out.append(f"{event.job_id} {what}{_side(event.tier) if two_tiers else ''}")
            case events.JobResumed():
                out.append(f"{event.job_id} resumed")
            case _:
                pass
    return out


def _side(tier: str) -> str:
    return " front" if tier == "foreground" else " behind"


def tiers_apart(run: Run) -> dict[str, float]:
    """At how many of the example's moments others are in front or behind."""
    wanted = example_of(run).tiers
    apart = sum(who_is_where(run, at + LOOKED_AT_MIN) != two for at, two in wanted.items())
    return {TIERS.name: float(apart)}


def who_is_where(run: Run, at_min: float) -> tuple[str, str]:
    """Jobs in front and behind at a moment, by name."""
    where: dict[str, str] = {}
    for event in run.file.events:
        if event.t > at_min * MIN_S:
            break
        match event:
            case events.JobStarted() | events.JobMigrated() | events.JobResumed():
                where[event.job_id] = event.tier
            case events.JobTierSwitched():
                where[event.job_id] = event.tier
            case events.JobPreempted() | events.JobEnded():
                where.pop(event.job_id, None)
            case _:
                pass
    front = (job for job, tier in where.items() if tier == "foreground")
    behind = (job for job, tier in where.items() if tier == "background")
    return " ".join(sorted(front)), " ".join(sorted(behind))


def nodes_in_use(run: Run) -> Curve:
    """Foreground VMs that jobs hold, over minutes."""
    sizes = {row.job_id: row.n_vms for row in run.rows}
    instants = sorted({event.t for event in run.file.events})
    points = []
    for at_s in instants:
        front = who_is_where(run, at_s / MIN_S)[0].split()
        points.append((at_s / MIN_S, float(sum(sizes[job] for job in front))))
    return points
