"""JSA's figures under other interpretations of its baselines and bandwidths,
simulated: on Figure 5's machines, and on Figure 4's for what shows there alone.
The order of EDF, Oktopus and PS-P depends on them.

As judged, profiles are linear: running times fall linearly with bandwidth, by
the formula of Section V.A, and jobs take them, but for those under PS-P, whose
independent flows send a fixed volume: they take p·b/b'. In some rows all jobs
do, while schedulers know the linear profile. A workload of kind ``swim`` cannot
have profiles that are p·b/b' themselves.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from reproductions.configuration import RunConfiguration, Variant, settings
from reproductions.extractors import REWARD_METRICS
from reproductions.interpretation_rows import panels_of, rows_of
from reproductions.interpretations import JSA as INTERPRETATION
from reproductions.interpretations import Parameters
from reproductions.jsa.jsa_rewards import (
    EDF,
    FEW_MACHINES,
    FOUR,
    FULL,
    JOBS,
    MET,
    OKTOPUS,
    POLICIES,
    PSP,
    QUICK,
    REWARD,
    TRACE,
    large_run,
)
from reproductions.published_figure import Figure

BLOCK = {"queue": "block"}
LATE = {"late": "run"}
LOCKSTEP = {"coupling": "lockstep"}


@dataclass(frozen=True)
class Alternative:
    """Parameters by series, and workload values, in place of the
    interpretation's.
    """

    parameters: dict[str, Parameters] = field(default_factory=dict)
    workload: Parameters = field(default_factory=dict)


ALTERNATIVES = {
    "as judged": Alternative(),
    "all block": Alternative({EDF: BLOCK, OKTOPUS: BLOCK, PSP: BLOCK}),
    "EDF alone blocks": Alternative({EDF: BLOCK}),
    "late jobs run": Alternative({EDF: LATE, OKTOPUS: LATE, PSP: LATE}),
    "late jobs run, EDF alone blocks": Alternative(
        {EDF: {**LATE, **BLOCK}, OKTOPUS: LATE, PSP: LATE}
    ),
    "100 Mbit/s": Alternative(workload={"bandwidth": "100 Mbit/s"}),
    "300 Mbit/s": Alternative(workload={"bandwidth": "300 Mbit/s"}),
    "all-to-all": Alternative(workload={"pattern": "all-to-all"}),
    "times p·b/b'": Alternative(workload={"volume": "fixed"}),
}
ROWS = rows_of(FOUR, ALTERNATIVES)
COUNTS = (50.0, 100.0, 150.0)
SEEDS = 10

# -- Figure 5's machines -------------------------------------------------------


def _under(
    row: str, count: float, seed: int, quick: bool
) -> RunConfiguration:
    series, name = ROWS[row]
    alternative = ALTERNATIVES[name]
    policy = POLICIES[series]
    jobs = round(count)
    if quick:
        jobs //= 2
    workload = {**INTERPRETATION.workload, **alternative.workload}
    variant = Variant(
        FEW_MACHINES,
        INTERPRETATION.entry(policy, alternative.parameters.get(series)),
        settings(**{**workload, "jobs": jobs}),
    )
    return RunConfiguration(
        variant, seed, REWARD_METRICS, weight=0.01 * jobs, trace=TRACE
    )


INTERPRETATIONS_OF_JSA = Figure(
    name="jsa-interpretations",
    title=(
        "Figure 5 under other interpretations of queues, bandwidths and "
        "times"
    ),
    source="JSA, Fig. 5(a)",
    x_label="jobs (24 machines)",
    xs=COUNTS,
    series=tuple(ROWS),
    configuration=_under,
    panels=panels_of(REWARD, FOUR, ALTERNATIVES),
    also=(MET,),
    size="24 machines of one VM slot in 4 racks, 5 VMs a job; simulated",
    quick_size="the same with half the jobs",
    seeds=SEEDS,
)

# -- Figure 4's machines -------------------------------------------------------


@dataclass(frozen=True)
class LargeAlternative:
    """Parameters by series in place of the interpretation's, values of the
    workload section, and the number of jobs.
    """

    parameters: dict[str, Parameters] = field(default_factory=dict)
    workload: dict[str, str] = field(default_factory=dict)
    jobs: float = JOBS


# Of the jobs of Figure 4(b) the paper has "divided the jobs into five groups".
LARGE_ALTERNATIVES = {
    "as judged": LargeAlternative(),
    "coupled flows of PS-P": LargeAlternative({PSP: LOCKSTEP}),
    "coupled flows of PS-P, times p·b/b'": LargeAlternative(
        {PSP: LOCKSTEP}, workload={"volume": "fixed"}
    ),
    "500 jobs in each group": LargeAlternative(jobs=500.0),
}
LARGE_ROWS = rows_of(FOUR, LARGE_ALTERNATIVES)
# The mean of Figures 4(a), 4(c) and 4(d), and the largest of Figure 4(b).
LARGE_MEAN_VMS = (25.0, 35.0)
LARGE_SEEDS = 5


def _large_under(
    row: str, mean_vms: float, seed: int, quick: bool
) -> RunConfiguration:
    series, name = LARGE_ROWS[row]
    alternative = LARGE_ALTERNATIVES[name]
    return large_run(
        series,
        seed,
        quick=quick,
        jobs=alternative.jobs,
        parameters=alternative.parameters.get(series),
        vms=mean_vms,
        **alternative.workload,
    )


LARGE_INTERPRETATIONS_OF_JSA = Figure(
    name="jsa-large-interpretations",
    title=(
        "Figure 4 under other interpretations of PS-P's flows and of the "
        "number of jobs"
    ),
    source="JSA, Fig. 4(a) to (c)",
    x_label="VMs per job on average",
    xs=LARGE_MEAN_VMS,
    series=tuple(LARGE_ROWS),
    configuration=_large_under,
    panels=panels_of(REWARD, FOUR, LARGE_ALTERNATIVES),
    also=(MET,),
    size=FULL.words,
    quick_size=QUICK.words,
    seeds=LARGE_SEEDS,
)
