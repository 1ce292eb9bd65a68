"""DCloud's Figure 10: two programs with less and less bandwidth, on the live
network, with p measured.

A repetition is one run: both programs are profiled at b, twice with the whole
input and once with a fifth of it, and then run at each b'.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import MappingProxyType

from reproductions.configuration import Settings, Variant
from reproductions.grid_quantities import Measure, Measures
from reproductions.live_figure import (
    FIDELITY,
    WALL,
    LiveFigure,
    simulated,
)
from reproductions.published_figure import Panel
from testbed.errors import RunFailed
from testbed.record.metrics import JobRow
from testbed.record.reading import RecordedRun
from testbed.sweeps.measured_scaling import Repetition, repetitions_of

NETWORK = "network-limited"
CPU = "CPU-limited"
PROGRAMS = MappingProxyType({NETWORK: "sort", CPU: "wordcount"})
SERIES = tuple(PROGRAMS)
XS = (750.0, 600.0, 450.0, 300.0, 150.0)
SAMPLE_SHARE = 0.2

TREE: Settings = ()
FAT_TREE: Settings = (
    (
        "topology",
        "{kind: fat-tree, k: 4, links: 1 Gbit/s, slots_per_server: 2}",
    ),
)
STRICT: Settings = ()
SHARING: Settings = (("enforcement", "work-conserving"),)
# Megabytes of each job of the file, in its order.
QUICK_INPUTS = (1.2, 6, 6, 6, 0.8, 4, 4, 4)

MEASURED = Measure("measured_s", "running time", "s", digits=3)
ESTIMATE = Measure("scaled_s", "estimate p·b/b'", "s", digits=3)
RATIO = Measure("scaling_ratio", "measured / (p·b/b')", digits=4)
PROFILED = Measure("profiled_s", "p, median of the profile", "s", digits=3)
SAMPLED = Measure(
    "sampled_error",
    "p from a fifth of the input, less p, over p",
    unit="%",
    factor=100.0,
)
MEASURES = (MEASURED, ESTIMATE, RATIO, PROFILED, SAMPLED)


def scaling_measures(run: RecordedRun, series: str, x: float) -> Measures:
    """Measures of a program at ``x`` Mbit/s, with the p of the same run.

    Not-a-number where a program of the run has failed.
    """
    name = PROGRAMS[series]
    granted_bps = round(x * 1e6)
    try:
        own = _repetition(run.rows, name)
    except RunFailed:
        return {measure.name: math.nan for measure in MEASURES}
    # p is of this very run: the rule is judged, not the stability of the
    # machine between runs.
    estimate_s = own.estimate_s(granted_bps)
    measured_s = own.runs[granted_bps].time_s
    sampled_s = _sample_s(run.rows, name) / SAMPLE_SHARE
    return {
        MEASURED.name: measured_s,
        ESTIMATE.name: estimate_s,
        RATIO.name: measured_s / estimate_s,
        PROFILED.name: own.profiled_s,
        SAMPLED.name: sampled_s / own.profiled_s - 1.0,
    }


def _repetition(rows: Sequence[JobRow], name: str) -> Repetition:
    """A program's profile and times. Raises RunFailed."""
    for repetition in repetitions_of(rows):
        if repetition.application == name:
            return repetition
    raise RunFailed(f"{name} was never started")


def _sample_s(rows: Sequence[JobRow], name: str) -> float:
    """The running time with the small input."""
    for row in rows:
        if row.job_id == f"{name}-sample" and row.measured_s is not None:
            return row.measured_s
    return math.nan


def _quick() -> Settings:
    """Settings of a smaller input for each job, whose size is an argument of its
    program.
    """
    inputs = []
    for index, megabytes in enumerate(QUICK_INPUTS):
        key = f"workload.jobs[{index}].command[3]"
        inputs.append((key, f'"{megabytes}"'))
    return tuple(inputs)


def figure_10(
    *,
    suffix: str,
    title: str,
    size: str,
    network: Settings,
    enforcement: Settings,
) -> LiveFigure:
    """Figure 10 on a network, under a kind of enforcement.

    Where unused bandwidth is lent the estimate is only a bound: nothing else
    is on the network, so that a program may be far below it.
    """

    def variant(series: str, x: float, quick: bool) -> Variant:  # noqa: ARG001
        # Neither program nor bandwidth changes the run: all points are in
        # it.
        settings = (*network, *enforcement)
        if quick:
            settings = (*settings, *_quick())
        return Variant("dcloud/dcloud-fig10.yaml", "scripted", settings)

    return LiveFigure(
        name=f"dcloud-fig10{suffix}",
        title=title,
        source="DCloud, Fig. 10",
        x_label="bandwidth granted to each VM, b' [Mbit/s]",
        xs=XS,
        series=SERIES,
        variant=variant,
        own_at=scaling_measures,
        panels=(
            Panel(MEASURED),
            Panel(ESTIMATE),
            Panel(RATIO),
            Panel(simulated(MEASURED)),
            Panel(simulated(ESTIMATE)),
            Panel(simulated(RATIO)),
        ),
        also=(PROFILED, SAMPLED, FIDELITY, WALL),
        printed=(RATIO, MEASURED, ESTIMATE, PROFILED, SAMPLED, FIDELITY),
        size=f"{size}; the sort on 4 VMs, the word count on 3, live",
        quick_size="the same with a third of the input, live",
        seeds=5,
    )


FIGURES_10 = (
    figure_10(
        suffix="",
        title="Two programs with less bandwidth, p measured",
        size="16 servers of 2 VMs, every link 1 Gbit/s, 4:1",
        network=TREE,
        enforcement=STRICT,
    ),
    figure_10(
        suffix="-fat-tree",
        title="Two programs with less bandwidth, on a fat-tree",
        size="a fat-tree of 4-port switches, 16 servers of 2 VMs",
        network=FAT_TREE,
        enforcement=STRICT,
    ),
    figure_10(
        suffix="-sharing",
        title="Two programs with less bandwidth, what is unused lent",
        size="16 servers of 2 VMs, 4:1, work-conserving",
        network=TREE,
        enforcement=SHARING,
    ),
    figure_10(
        suffix="-fat-tree-sharing",
        title="Two programs with less bandwidth, lent on a fat-tree",
        size="a fat-tree of 4-port switches, work-conserving",
        network=FAT_TREE,
        enforcement=SHARING,
    ),
)
