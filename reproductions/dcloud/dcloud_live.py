"""DCloud's Figure 11: a day of arrivals on 16 servers, measured on the live
network.
"""

from __future__ import annotations

from itertools import pairwise

from reproductions.configuration import Variant
from reproductions.interpretations import DCLOUD as INTERPRETATION
from reproductions.live_figure import (
    ACCEPTED,
    COMPLETION,
    FIDELITY,
    MEDIAN,
    P95,
    POINTS,
    SLOTS,
    START_UP,
    SUCCESS,
    WALL,
    WORST,
    Curve,
    Curves,
    LiveFigure,
    mean_until,
    simulated,
    slots_in_use,
)
from reproductions.published_figure import Panel
from testbed.record.metrics import JobRow
from testbed.record.reading import RecordedRun

DCLOUD, VC, BL = "DCloud", "VC", "BL"
POLICIES = {DCLOUD: "dcloud", VC: "vc", BL: "bl"}
AS_G = (
    # Durations as in every figure; slower, since many are short.
    ("workload.duration", "{mean: 1 h}"),
    ("scale.time", "200"),
)
X = 10.0
XS = (X,)
HOUR_S = 3600.0
HOURS = 24


def deadline_over_finish(run: RecordedRun) -> Curve:
    """Figure 11(a): by ratio of deadline to finish time, the share of jobs at
    or below it.
    """
    ratios = sorted(_ratio(row) for row in run.rows)
    return [
        (ratio, 100.0 * (i + 1) / len(ratios))
        for i, ratio in enumerate(ratios)
    ]


def _ratio(row: JobRow) -> float:
    """0 where the job was not accepted, or did not finish (BL kills it at its
    deadline).
    """
    if row.response_s is None or row.deadline_s is None:
        return 0.0
    return row.deadline_s / row.response_s


def slots_by_hour(run: RecordedRun) -> Curve:
    """Figure 11(b): the share of VM slots in use, the mean of every hour."""
    curve = slots_in_use(run)
    until = [
        hour * mean_until(curve, hour * HOUR_S)
        for hour in range(1, HOURS + 1)
    ]
    means = [b - a for a, b in pairwise([0.0, *until])]
    return [
        *((float(hour), 100.0 * mean) for hour, mean in enumerate(means)),
        (HOURS, 100.0 * means[-1]),
    ]


def _variant(series: str, x: float, quick: bool) -> Variant:  # noqa: ARG001 - one x
    less = (("workload.hours", "2"),) if quick else ()
    return Variant(
        "dcloud/dcloud-fig11.yaml",
        INTERPRETATION.entry(POLICIES[series]),
        (*INTERPRETATION.settings, *AS_G, *less),
    )


FIGURE_11 = LiveFigure(
    name="dcloud-fig11",
    title="A day of arrivals on 16 servers",
    source="DCloud, Fig. 11",
    x_label="jobs an hour",
    xs=XS,
    series=(DCLOUD, VC, BL),
    variant=_variant,
    curves=(
        Curves(
            "share of jobs [%]",
            "deadline / finish time, at most",
            deadline_over_finish,
            X,
            (0.0, 20.0),
        ),
        Curves(
            "VM slots in use, by hour [%]",
            "time [h]",
            slots_by_hour,
            X,
            (0.0, 24.0),
        ),
    ),
    panels=(
        Panel(SUCCESS, {(DCLOUD, X): 55.0, (VC, X): 37.0, (BL, X): 4.0}),
        Panel(SLOTS),
        Panel(simulated(SUCCESS)),
        Panel(simulated(SLOTS)),
    ),
    also=(
        ACCEPTED,
        MEDIAN,
        P95,
        WORST,
        POINTS,
        COMPLETION,
        START_UP,
        FIDELITY,
        WALL,
    ),
    printed=(
        SUCCESS,
        simulated(SUCCESS),
        SLOTS,
        simulated(SLOTS),
        MEDIAN,
        P95,
        WORST,
        FIDELITY,
    ),
    size="16 servers of 2 VMs, every link 1 Gbit/s, 4:1; 24 h of arrivals, live",
    quick_size="the same with 2 h of arrivals, live",
    seeds=1,
)
