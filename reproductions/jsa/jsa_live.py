"""JSA's Figure 5: system reward on 24 machines, measured on the live network."""

from __future__ import annotations

from reproductions.configuration import Variant
from reproductions.grid_quantities import Measure, Measures
from reproductions.interpretations import JSA as INTERPRETATION
from reproductions.jsa.jsa_rewards import (
    FEW_MACHINES,
    FOUR,
    JSA,
    POLICIES,
    RAN,
    REWARD,
    SIMPLE,
)
from reproductions.live_figure import (
    MEDIAN,
    START_UP,
    SUCCESS,
    WALL,
    LiveFigure,
    simulated,
)
from reproductions.published_figure import Panel
from testbed.record.reading import RecordedRun

# Settings with which a run takes two minutes.
SHORTENED = (
    # Of the trace's jobs of up to 12 tasks 6 % run for longer, one for 13
    # hours: in the end a run would wait for one job alone.
    ("workload.longest", "5 min"),
    # The shortest job takes 20 s, five of wall time.
    ("scale.time", "4"),
)
SIZE = (
    "24 machines of one VM slot in 4 racks, 1.2 and 0.48 Gbit/s above them; "
    "5 batches, live"
)
REDUCED = (
    "Smaller than published: two or three points a curve in place of "
    "five, fewer repetitions than 20, 50 to 150 jobs in place of 50 "
    "to 250, and 3 or 5 VMs a job on average (12 at most), since the "
    "published 15 to 35 are more than 24 machines of one slot have "
    "([35](../decisions/35-jsa-workload.md)); jobs of more than five "
    "minutes are left out, 6 % of the trace's."
)


def rewarded(run: RecordedRun) -> Measures:
    """The share of all rewards that belongs to jobs on time, and the mean time
    that jobs ran.
    """
    total = 0.0
    earned = 0.0
    ran_s = []
    for row in run.rows:
        total += row.value
        if row.met_deadline:
            earned += row.value
        if row.measured_s is not None:
            ran_s.append(row.measured_s)
    # Of nothing both are 0.
    return {
        REWARD.name: earned / (total or 1.0),
        RAN.name: sum(ran_s) / (len(ran_s) or 1),
    }


def _figure(
    *,
    letter: str,
    title: str,
    x_label: str,
    xs: tuple[float, ...],
    setting: str,
    series: tuple[str, ...] = FOUR,
    shown: Measure = SUCCESS,
) -> LiveFigure:
    """One of the four panels; ``setting`` is ``KEY=VALUE`` with a # for x, and
    ``shown`` the measure beside the reward.
    """
    key, _, value = setting.partition("=")

    def variant(one_series: str, x: float, quick: bool) -> Variant:
        swept = (key, value.replace("#", f"{x:g}"))
        values = (*INTERPRETATION.settings, *SHORTENED, swept)
        if quick:
            # Behind the swept setting, which may be the number of jobs too.
            values = (*values, ("workload.jobs", "25"))
        entry = INTERPRETATION.entry(POLICIES[one_series])
        return Variant(FEW_MACHINES, entry, values)

    return LiveFigure(
        name=f"jsa-fig5{letter}",
        title=title,
        source=f"JSA, Fig. 5({letter})",
        x_label=x_label,
        xs=xs,
        series=series,
        variant=variant,
        own=rewarded,
        panels=(
            Panel(REWARD),
            Panel(shown),
            Panel(simulated(REWARD)),
            Panel(simulated(shown)),
        ),
        also=(MEDIAN, START_UP, WALL),
        printed=(REWARD, simulated(REWARD)),
        size=SIZE,
        quick_size="the same with 25 jobs, live",
        reduced=REDUCED,
    )


COUNTS = (50.0, 100.0, 150.0)
MEAN_VMS = (3.0, 5.0)
BOUNDS = (3.0, 7.0)
ALPHAS = (0.01, 0.13)

FIGURE_5A = _figure(
    letter="a",
    title="The number of jobs",
    x_label="jobs (24 machines)",
    xs=COUNTS,
    setting="workload.jobs=#",
)

FIGURE_5B = _figure(
    letter="b",
    title="VMs per job",
    x_label="VMs per job on average",
    xs=MEAN_VMS,
    setting="workload.vms=#",
)

FIGURE_5C = _figure(
    letter="c",
    title="The upper bound of the deadline factor",
    x_label="deadline factor, at most (at least 2)",
    xs=BOUNDS,
    setting="workload.deadline_factor=[2, #]",
)

FIGURE_5D = _figure(
    letter="d",
    title="The speed-up ratio, with and without shortening jobs",
    x_label="speed-up ratio α of every job",
    xs=ALPHAS,
    setting="workload.speedup=[#, #]",
    series=(JSA, SIMPLE),
    shown=RAN,
)
