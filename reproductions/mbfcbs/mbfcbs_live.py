"""MBFCBS's small cluster live: four hosts of four cores, ten to forty leases."""

from __future__ import annotations

from typing import Any

from jobs.request import JobRequest
from reproductions.cell import Measures
from reproductions.claims import Band, Claim, more
from reproductions.figure import Panel
from reproductions.live.claims import OURS, audited, held, replays_alike, sound, worlds_agree
from reproductions.live.figure import LiveFigure
from reproductions.live.measures import FIDELITY, SUCCESS, WALL, simulated
from reproductions.live.trial import Trial
from reproductions.mbfcbs.cell import LeaseMeter
from reproductions.mbfcbs.cluster import ACCEPTED, BUSY, COUNTS, DEFAULT, MBFCBS, USE, USE_EARLY
from reproductions.quantities import Measure
from testbed import events
from testbed.results.read import Run

POLICIES = {
    MBFCBS: "mbfcbs",
    DEFAULT: "{name: mbfcbs, preemption: false, earliest: false, depth: 1}",
}
SERIES = tuple(POLICIES)
MARGIN_MIN = 3.0

LATE = Measure("late_s", "greatest delay of an advance lease's start", "min", 1 / 60.0, 2)
TWICE = Measure("twice", "best-effort leases preempted twice", digits=0)
KILLED = Measure("killed", "leases that were killed", digits=0)
NOTHING = Band(high=0.0)


def measures(run: Run) -> Measures:
    """What was accepted and used; what must not be."""
    submitted = [event for event in run.file.events if isinstance(event, events.JobSubmitted)]
    leases = [request_of(event.to_json()["job"]) for event in submitted]
    meter = LeaseMeter(leases, sum(run.started.topology["slots"]))
    started: dict[str, float] = {}
    for event in run.file.events:
        meter(event)
        if isinstance(event, events.JobStarted):
            started.setdefault(event.job_id, event.t)
    late = [
        started[lease.id] - lease.wanted_s
        for lease in leases
        if lease.wanted_s is not None and lease.id in started
    ]
    found = meter.measures()
    return {
        **{measure.name: found[measure.name] for measure in (ACCEPTED, USE, USE_EARLY)},
        LATE.name: max(late, default=0.0),
        TWICE.name: float(sum(row.preemptions > 1 for row in run.rows)),
        KILLED.name: float(sum(row.outcome == "killed" for row in run.rows)),
    }


def request_of(job: dict[str, Any]) -> JobRequest:
    """What of a lease's record counts here."""
    return JobRequest(
        job["id"],
        job["submit_s"],
        job["n_vms"],
        job["bandwidth_bps"],
        job["duration_s"],
        kind=job["kind"],
        cores=job["cores"],
        lease=job["lease"],
        wanted_s=job["wanted_s"],
    )


def _trial(series: str, x: float, quick: bool) -> Trial:  # noqa: ARG001 - one size
    settings = (
        ("workload.jobs", f"{x:g}"),
        ("workload.load", f"{0.04 * x:g}"),
        ("workload.shortest", "1 min"),  # as in the simulated figures
    )
    return Trial("leases-live.yaml", POLICIES[series], settings)


LEASES = LiveFigure(
    name="mbfcbs-leases",
    title="Leases on four hosts",
    source="MBFCBS, Figs. 4 and 5",
    x_label="leases",
    xs=COUNTS,
    series=SERIES,
    trial=_trial,
    own=measures,
    panels=(
        Panel(ACCEPTED),
        Panel(USE),
        Panel(simulated(ACCEPTED)),
        Panel(simulated(USE)),
    ),
    claims=(
        Claim("MBFCBS accepts more leases than Haizea's default", "more",
              more(ACCEPTED, MBFCBS, (DEFAULT,), BUSY),
              reading="from 20 leases on: ten are a load of 0.4",
              remark="sets of leases differ by more than the policies do on one of them; over ten,"
              " simulated, it comes out (mbfcbs-fig4), and each live run accepts what its simulated"
              " one does"),
        Claim("MBFCBS uses the cluster better", "more",
              more(USE, MBFCBS, (DEFAULT,), BUSY), reading="from 20 leases on",
              remark="not over ten sets either, simulated (mbfcbs-fig5): with few leases the use is"
              " that of whatever ends last"),
        Claim("No advance lease starts later than it was booked for, but for what a start takes",
              OURS, held(LATE, Band(high=MARGIN_MIN), SERIES, COUNTS),
              reading="three minutes are a quarter of a second of wall time"),
        Claim("A best-effort lease gives way once at most", "once",
              held(TWICE, NOTHING, SERIES, COUNTS)),
        Claim("No lease is cut short", OURS, held(KILLED, NOTHING, SERIES, COUNTS)),
        sound(SERIES, COUNTS),
        audited(SERIES, COUNTS),
        worlds_agree(SERIES, COUNTS),
        replays_alike(SERIES, COUNTS),
    ),
    also=(USE_EARLY, simulated(USE_EARLY), SUCCESS, simulated(SUCCESS), LATE, TWICE, KILLED,
          FIDELITY, WALL),
    printed=(ACCEPTED, simulated(ACCEPTED), USE, simulated(USE), LATE, FIDELITY),
    size="4 hosts of 4 cores of a twentieth of a processor, an hour in 5 s, live",
    quick_size="the same",
    reduced="Three sets of leases, where the simulated figures have ten.",
    seeds=3,
)  # fmt: skip

MBFCBS_LIVE = (LEASES,)
