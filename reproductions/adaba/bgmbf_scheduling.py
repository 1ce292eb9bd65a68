"""BgMBF's Figures 6 to 8: waiting, slowdown and migrations under five
schedulers.
"""

from __future__ import annotations

from reproductions.adaba.adaba_setup import (
    CPU,
    FULL,
    KTH,
    LOGS,
    NASA,
    QUICK,
    Log,
    both_logs,
    jobs_of,
)
from reproductions.claim_checks import Band, Check, Claim, more, mostly
from reproductions.configuration import Together
from reproductions.grid_quantities import Difference, Gain, Level, Measure
from reproductions.published_figure import Figure, Panel

FCFS, SBF, SDF, BGMBF, BGMBF_SDF = (
    "FCFS",
    "SBF",
    "SDF",
    "BgMBF",
    "BgMBF-SDF",
)
POLICIES = {
    FCFS: "fcfs",
    SBF: "sbf",
    SDF: "sdf",
    BGMBF: "bgmbf",
    BGMBF_SDF: "bgmbf-sdf",
}
FIVE = tuple(POLICIES)
LOADS = (0.3, 0.4, 0.5, 0.6, 0.7, 0.8)

HOURS = 1 / 3600


def _waiting(log: Log) -> Measure:
    return log.measure("queued_s", "mean waiting", "h", HOURS, 2)


def _slowdown(log: Log) -> Measure:
    return log.measure("slowdown", "mean bounded slowdown")


def _migrations(log: Log) -> Measure:
    return log.measure("migrations", "migrations", digits=0)


def _restoring(log: Log) -> Measure:
    return log.measure(
        "restoring_share",
        "20 s a migration over the mean waiting",
        "%",
        100.0,
        0,
    )


ALSO = tuple(
    measure
    for log in LOGS
    for measure in (
        log.measure(
            "wait_s", "mean waiting before the first start", "h", HOURS, 2
        ),
        log.measure(
            "response_s", "mean time from arrival to end", "h", HOURS, 2
        ),
        log.measure("acceptance", "accepted jobs", "%", 100.0),
        log.measure("preemptions", "preemptions", digits=0),
        log.measure("utilisation", "VM use", "%", 100.0),
    )
)


def _logs(series: str, load: float, seed: int, quick: bool) -> Together:
    return both_logs(
        POLICIES[series], "adaba", seed, load, jobs=jobs_of(quick=quick)
    )


def _outperforms(
    measure: Measure, log: Log, what: str
) -> tuple[Claim, ...]:
    """The claims of Figs. 6 and 7, alike of waiting and slowdown."""
    return (
        Claim(
            f"{log.label}: BgMBF significantly outperforms FCFS and SBF on {what}",
            "BgMBF ≪ FCFS, SBF",
            tuple(
                Check(Gain(measure, BGMBF, other, x), Band(high=-50.0))
                for other in (FCFS, SBF)
                for x in LOADS
            ),
            interpretation="at most half of it at every load",
        ),
        Claim(
            f"{log.label}: BgMBF-SDF always performs better than BgMBF on {what}",
            "BgMBF-SDF < BgMBF",
            more(measure, BGMBF, (BGMBF_SDF,), LOADS),
        ),
        Claim(
            f"{log.label}: SBF cannot improve {what} over FCFS",
            "SBF ≥ FCFS",
            mostly([Difference(measure, SBF, FCFS, x) for x in LOADS], 0.0),
            interpretation="SBF is worse at most loads",
        ),
        Claim(
            f"{log.label}: BgMBF-SDF, SDF and BgMBF differ little in {what}",
            "≈",
            tuple(
                Check(
                    Difference(measure, FCFS, series, x),
                    Band(low=0.0, strictly=True),
                )
                for series in (SDF, BGMBF_SDF)
                for x in LOADS
            ),
            interpretation="all three stay below FCFS",
        ),
    )


def _figure_6_claims() -> tuple[Claim, ...]:
    kth, nasa = _waiting(KTH), _waiting(NASA)
    return (
        *_outperforms(kth, KTH, "waiting"),
        *_outperforms(nasa, NASA, "waiting"),
        Claim(
            "NASA: SDF waits less than BgMBF and BgMBF-SDF",
            "SDF < BgMBF-SDF, BgMBF",
            tuple(
                c
                for other in (BGMBF, BGMBF_SDF)
                for c in more(nasa, other, (SDF,), LOADS)
            ),
        ),
        Claim(
            "KTH: SDF waits more than BgMBF and BgMBF-SDF",
            "SDF > BgMBF, BgMBF-SDF",
            more(kth, SDF, (BGMBF, BGMBF_SDF), LOADS),
        ),
        Claim(
            "The mean waiting is of the order of 10,000 s",
            "10⁴ s",
            tuple(
                Check(Level(kth, BGMBF, x), Band(1e3 * HOURS, 1e5 * HOURS))
                for x in LOADS
            ),
            interpretation="BgMBF on KTH, from 1,000 to 100,000 s",
        ),
    )


FIGURE_6 = Figure(
    name="bgmbf-fig6",
    title="Waiting under five schedulers",
    source="BgMBF, Fig. 6",
    x_label="system load",
    xs=LOADS,
    series=FIVE,
    configuration=_logs,
    panels=tuple(Panel(_waiting(log)) for log in LOGS),
    claims=_figure_6_claims(),
    also=(*ALSO, CPU),
    size=FULL,
    quick_size=QUICK,
)

FIGURE_7 = Figure(
    name="bgmbf-fig7",
    title="Bounded slowdown under five schedulers",
    source="BgMBF, Fig. 7",
    x_label="system load",
    xs=LOADS,
    series=FIVE,
    configuration=_logs,
    panels=tuple(Panel(_slowdown(log)) for log in LOGS),
    claims=tuple(
        claim
        for log in LOGS
        for claim in _outperforms(_slowdown(log), log, "slowdown")
    ),
    also=(CPU,),
    size=FULL,
    quick_size=QUICK,
)


def _figure_8_claims() -> tuple[Claim, ...]:
    kth, nasa = _migrations(KTH), _migrations(NASA)
    fewer = [
        Difference(measure, BGMBF, BGMBF_SDF, x)
        for measure in (kth, nasa)
        for x in LOADS
    ]
    return (
        *(
            Claim(
                f"{log.label}: at most {most} migrations",
                f"≤ {most}",
                tuple(
                    Check(
                        Level(_migrations(log), series, x),
                        Band(high=float(most)),
                    )
                    for series in (BGMBF, BGMBF_SDF)
                    for x in LOADS
                ),
            )
            for log, most in ((KTH, 350), (NASA, 200))
        ),
        Claim(
            "BgMBF-SDF migrates fewer jobs than BgMBF in most cases",
            "fewer",
            mostly(fewer[: len(LOADS)], 0.0)
            + mostly(fewer[len(LOADS) :], 0.0),
            interpretation="at most loads, on either log",
        ),
        Claim(
            "All migrations together, at 20 s each, cost far less than the mean waiting",
            "o(10³) ≪ o(10⁴) s",
            tuple(
                Check(Level(_restoring(log), BGMBF, x), Band(high=50.0))
                for log in LOGS
                for x in LOADS
            ),
            interpretation="their sum is at most half of one job's mean waiting, BgMBF",
        ),
    )


FIGURE_8 = Figure(
    name="bgmbf-fig8",
    title="Migrations of BgMBF and BgMBF-SDF",
    source="BgMBF, Fig. 8",
    x_label="system load",
    xs=LOADS,
    series=(BGMBF, BGMBF_SDF),
    configuration=_logs,
    panels=tuple(Panel(_migrations(log)) for log in LOGS),
    claims=_figure_8_claims(),
    also=(*(_restoring(log) for log in LOGS), *ALSO, CPU),
    size=FULL,
    quick_size=QUICK,
)
