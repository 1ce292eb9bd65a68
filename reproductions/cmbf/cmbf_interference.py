"""CMBF's Section 3: the effect of two VMs on a node on each other, measured
live.

``cmbf-interference.yaml`` has three jobs. ``alone`` runs before or after the
others; ``front`` is the same job with ``rear`` in its background, which could
use the whole processor. The CPU time of ``rear`` follows from its end: after
the end of ``front`` it has the processor to itself.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

from reproductions.configuration import Settings
from reproductions.grid_quantities import Measure
from reproductions.live_figure import (
    FIDELITY,
    WALL,
    DrawnOrder,
    LiveFigure,
    simulated,
)
from reproductions.published_figure import Panel
from testbed import events
from testbed.record.metrics import JobRow
from testbed.record.reading import RecordedRun

LOSS = Measure(
    "loss",
    "loss of the foreground process",
    unit="%",
    factor=100.0,
    digits=2,
)
SHARE = Measure(
    "share", "CPU share of the background process", unit="%", factor=100.0
)
IDLE_USED = Measure(
    "idle_used",
    "share of idle cycles that the background process uses",
    unit="%",
    factor=100.0,
)

# The share of idle CPU below which no share of it is measured.
LEAST_IDLE = 0.01


def interference(run: RecordedRun) -> dict[str, float]:
    """The foreground's loss, and the CPU that the background VM made use of
    meanwhile.
    """
    rows = {row.job_id: row for row in run.rows}
    alone = rows["alone"]
    foreground = rows["front"]
    rear = rows["rear"]
    if not alone.measured_s or foreground.measured_s is None:
        return dict.fromkeys(
            (LOSS.name, SHARE.name, IDLE_USED.name), math.nan
        )
    # Its bursts' share of the time that it ran: its waits are never exact.
    idle = 1.0 - _use(run) * foreground.duration_s / foreground.measured_s
    share = background_share(foreground, rear)
    # Where next to nothing is idle, there is no share to measure.
    idle_used = math.nan
    if idle > LEAST_IDLE:
        idle_used = share / idle
    return {
        LOSS.name: foreground.measured_s / alone.measured_s - 1.0,
        SHARE.name: share,
        IDLE_USED.name: idle_used,
    }


def background_share(foreground: JobRow, rear: JobRow) -> float:
    """The work of ``rear`` while the foreground ran, over the time that this
    took.
    """
    if (
        foreground.end_s is None
        or rear.end_s is None
        or rear.start_s is None
    ):
        return math.nan
    both_s = foreground.end_s - rear.start_s
    # Where it ended first it has done all its work by then.
    left_s = max(0.0, rear.end_s - foreground.end_s)
    done_s = rear.duration_s - left_s
    return done_s / both_s


def _use(run: RecordedRun) -> float:
    """The stated CPU use of the foreground jobs when alone."""
    for event in run.file.events:
        if isinstance(event, events.JobSubmitted):
            job: Mapping[str, Any] = event.to_json()["job"]
            if job["id"] == "front":
                return float(job["cpu_use"])
    return math.nan


# -- the figure ----------------------------------------------------------------

BURSTS = "bursts of 10 ms"
USES = (10.0, 30.0, 50.0, 70.0, 90.0, 96.0, 100.0)
WALL_S = 6.0
QUICK_S = 3.0
# Seconds of the experiment in one of wall time, as its file sets.
TIME_SCALE = 30.0


def _interference(series: str, x: float, quick: bool) -> DrawnOrder:  # noqa: ARG001 - one series
    """At one CPU use: alone, and with a background VM that has as much to do.

    Alone first or last, as the seed draws: machines drift.
    """
    wall_s = QUICK_S if quick else WALL_S
    return DrawnOrder(
        "cmbf/cmbf-interference.yaml",
        "{name: cmcbf, cpu: unknown, migration_cost: 0 s}",
        orders=(
            _jobs(x, wall_s, first="alone"),
            _jobs(x, wall_s, first="front"),
        ),
    )


def _jobs(x: float, wall_s: float, first: str) -> Settings:
    """The file's jobs at ``x`` % CPU use, each of ``wall_s`` of wall time."""
    duration = f"duration: {TIME_SCALE * wall_s:g} s"
    bursts = f'[python3, ./apps/bursts.py, "{x / 100:g}", "{wall_s:g}"]'
    program = (
        f"{duration}, kind: compute, vms: 1, cpu: {x:g} %, "
        f"command: {bursts}"
    )
    alone = ""
    both = ", after: alone"
    if first == "front":
        alone = ", after: rear"
        both = ""
    jobs = (
        f"{{id: alone, {program}{alone}}}",
        f"{{id: front, {program}{both}}}",
        f"{{id: rear, {duration}, kind: compute, vms: 1{both}}}",
    )
    return (("workload.jobs", f"[{', '.join(jobs)}]"),)


STUDY = LiveFigure(
    name="cmbf-interference",
    title="A background VM: what it costs, what it gets",
    source="CMBF, Section 3",
    x_label="CPU use of the foreground process, alone [%]",
    xs=USES,
    series=(BURSTS,),
    variant=_interference,
    own=interference,
    panels=(
        Panel(LOSS),
        Panel(IDLE_USED),
        Panel(SHARE),
        Panel(simulated(LOSS)),
        Panel(simulated(IDLE_USED)),
        Panel(simulated(SHARE)),
    ),
    also=(FIDELITY, WALL),
    printed=(
        LOSS,
        simulated(LOSS),
        IDLE_USED,
        simulated(IDLE_USED),
        SHARE,
        FIDELITY,
    ),
    size=(
        "two VMs on one processor, CPU weights 10,000 to 1; in the "
        "foreground bursts of computing with waits between, in the "
        "background computing all the time; 6 s, live"
    ),
    quick_size="the same for 3 s, live",
    seeds=1,
)
