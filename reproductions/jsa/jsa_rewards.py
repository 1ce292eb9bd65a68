"""JSA's Figure 4: system reward against jobs, VMs, deadlines and speed-up
(simulated).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from reproductions.configuration import RunConfiguration, Variant, settings
from reproductions.extractors import REWARD_METRICS
from reproductions.grid_quantities import Measure
from reproductions.interpretations import JSA as INTERPRETATION
from reproductions.interpretations import Parameters
from reproductions.published_figure import Figure, Panel

JSA = "JSA"
SIMPLE = "SimpleJSA"
EDF = "EDF"
OKTOPUS = "Oktopus"
PSP = "PS-P"
POLICIES = {
    JSA: "jsa",
    SIMPLE: "simple-jsa",
    EDF: "edf",
    OKTOPUS: "oktopus-batch",
    PSP: "ps-p",
}
FOUR = (JSA, EDF, OKTOPUS, PSP)

PUBLISHED_RUNS = 20
# The experiment of the 24 machines of Figure 5.
FEW_MACHINES = "jsa/jsa-fig5.yaml"
TRACE = "FB-2009_samples_24_times_1hr_0.tsv.gz"
JOBS = 2500.0

REWARD = Measure("reward", "system reward ratio", unit="%", factor=100.0)
MET = Measure("met", "jobs within deadline", unit="%", factor=100.0)
RAN = Measure("ran_s", "mean running time", "s")
WAITED = Measure("wait_s", "mean waiting time of jobs that start", "s")


@dataclass(frozen=True)
class Size:
    """A data centre and its share of the published number of jobs."""

    fanout: tuple[int, int, int]
    jobs: float
    words: str


FULL = Size(
    (2, 20, 40),
    1.0,
    "1,600 machines, 6,400 VM slots, 5:1 at racks and above; 5 batches",
)
QUICK = Size(
    (2, 5, 40),
    0.25,
    "400 machines, 1,600 VM slots, a quarter of the jobs; 5 batches",
)


def large_run(
    series: str,
    seed: int,
    *,
    quick: bool,
    jobs: float = JOBS,
    parameters: Parameters | None = None,
    **workload: object,
) -> RunConfiguration:
    """The run of a series on Figure 4's machines, with values of the workload
    section in place of the file's and ``parameters`` in place of the
    interpretation's.
    """
    size = QUICK if quick else FULL
    count = round(jobs * size.jobs)
    variant = Variant(
        "jsa/jsa-simulations.yaml",
        INTERPRETATION.entry(POLICIES[series], parameters),
        (
            ("topology.fanout", str(list(size.fanout))),
            *INTERPRETATION.settings,
            *settings(jobs=count, **workload),
        ),
    )
    seconds = 3.0 * count / JOBS
    if series == PSP:
        # Its flows change their rates with every arrival and every end.
        seconds *= 2.0
    return RunConfiguration(
        variant, seed, REWARD_METRICS, weight=seconds, trace=TRACE
    )


_simulated = partial(
    Figure, size=FULL.words, quick_size=QUICK.words, seeds=PUBLISHED_RUNS
)

COUNTS = (500.0, 1000.0, 1500.0, 2000.0, 2500.0)


def _counted(
    series: str, x: float, seed: int, quick: bool
) -> RunConfiguration:
    return large_run(series, seed, quick=quick, jobs=x)


FIGURE_4A = _simulated(
    name="jsa-fig4a",
    title="The number of jobs",
    source="JSA, Fig. 4(a)",
    x_label="jobs (1,600 machines)",
    xs=COUNTS,
    series=FOUR,
    configuration=_counted,
    panels=(Panel(REWARD), Panel(MET)),
    also=(RAN,),
)

MEAN_VMS = (15.0, 20.0, 25.0, 30.0, 35.0)


def _sized(
    series: str, x: float, seed: int, quick: bool
) -> RunConfiguration:
    return large_run(series, seed, quick=quick, vms=x)


FIGURE_4B = _simulated(
    name="jsa-fig4b",
    title="VMs per job, in stratified samples of the trace",
    source="JSA, Fig. 4(b)",
    x_label="VMs per job on average",
    xs=MEAN_VMS,
    series=FOUR,
    configuration=_sized,
    panels=(Panel(REWARD), Panel(MET)),
    also=(RAN, WAITED),
)

BOUNDS = (3.0, 4.0, 5.0, 6.0, 7.0)


def _due(series: str, x: float, seed: int, quick: bool) -> RunConfiguration:
    return large_run(
        series, seed, quick=quick, deadline_factor=f"[2, {x:g}]"
    )


FIGURE_4C = _simulated(
    name="jsa-fig4c",
    title="The upper bound of the deadline factor",
    source="JSA, Fig. 4(c)",
    x_label="deadline factor, at most (at least 2)",
    xs=BOUNDS,
    series=FOUR,
    configuration=_due,
    panels=(Panel(REWARD), Panel(MET)),
    also=(RAN,),
)

ALPHAS = (0.01, 0.04, 0.07, 0.10, 0.13)


def _sped(
    series: str, x: float, seed: int, quick: bool
) -> RunConfiguration:
    return large_run(series, seed, quick=quick, speedup=f"[{x}, {x}]")


FIGURE_4D = _simulated(
    name="jsa-fig4d",
    title="The speed-up ratio, with and without shortening jobs",
    source="JSA, Fig. 4(d)",
    x_label="speed-up ratio α of every job",
    xs=ALPHAS,
    series=(JSA, SIMPLE),
    configuration=_sped,
    panels=(Panel(REWARD), Panel(RAN)),
    also=(MET, WAITED),
)
