"""MBFCBS's small cluster live: four hosts of four cores, ten to forty leases."""

from __future__ import annotations

from reproductions.configuration import Variant, settings
from reproductions.extractors import lease_measures
from reproductions.grid_quantities import Measure, Measures
from reproductions.live_figure import (
    FIDELITY,
    SUCCESS,
    WALL,
    LiveFigure,
    simulated,
)
from reproductions.mbfcbs.mbfcbs_leases import (
    ACCEPTED,
    SMALL_COUNTS,
    SMALL_POLICIES,
    USE,
    USE_EARLY,
)
from reproductions.occupancy import Occupancy
from reproductions.published_figure import Panel
from testbed import events
from testbed.record.reading import RecordedRun

SERIES = tuple(SMALL_POLICIES)

LATE = Measure(
    "late_s",
    "greatest delay of an advance lease's start",
    unit="min",
    factor=1 / 60.0,
    digits=2,
)
TWICE = Measure("twice", "best-effort leases preempted twice", digits=0)
KILLED = Measure("killed", "leases that were killed", digits=0)


def measures(run: RecordedRun) -> Measures:
    """Acceptance and use; and delays, second preemptions and kills, which the
    policy rules out.
    """
    held_slots = Occupancy()
    records = {}
    for event in run.file.events:
        held_slots(event)
        if isinstance(event, events.JobSubmitted):
            records[str(event.job["id"])] = event.job
    cores = sum(run.started.topology["slots"])
    measures = lease_measures(run.rows, records, held_slots, cores)
    late_s = []
    twice = 0
    killed = 0
    for row in run.rows:
        twice += row.preemptions > 1
        killed += row.outcome == "killed"
        # Only advance reservations want a start.
        wanted_s = records[row.job_id]["wanted_s"]
        if row.start_s is not None and wanted_s is not None:
            late_s.append(row.start_s - wanted_s)
    return {
        ACCEPTED.name: measures[ACCEPTED.name],
        USE.name: measures[USE.name],
        USE_EARLY.name: measures[USE_EARLY.name],
        LATE.name: max(late_s, default=0.0),
        TWICE.name: float(twice),
        KILLED.name: float(killed),
    }


def _variant(series: str, x: float, quick: bool) -> Variant:  # noqa: ARG001 - one size
    # As simulated.
    values = settings(jobs=int(x), load=f"{0.04 * x:g}", shortest="1 min")
    return Variant(
        "mbfcbs/leases-live.yaml", SMALL_POLICIES[series], values
    )


LEASES = LiveFigure(
    name="mbfcbs-leases",
    title="Leases on four hosts",
    source="MBFCBS, Figs. 4 and 5",
    x_label="leases",
    xs=SMALL_COUNTS,
    series=SERIES,
    variant=_variant,
    own=measures,
    panels=(
        Panel(ACCEPTED),
        Panel(USE),
        Panel(simulated(ACCEPTED)),
        Panel(simulated(USE)),
    ),
    also=(
        USE_EARLY,
        simulated(USE_EARLY),
        SUCCESS,
        simulated(SUCCESS),
        LATE,
        TWICE,
        KILLED,
        FIDELITY,
        WALL,
    ),
    printed=(
        ACCEPTED,
        simulated(ACCEPTED),
        USE,
        simulated(USE),
        LATE,
        FIDELITY,
    ),
    size=(
        "4 hosts of 4 cores of a twentieth of a processor, an hour in 5 s, "
        "live"
    ),
    quick_size="the same",
    reduced="Fewer sets of leases than in the simulated figures.",
    seeds=3,
)
