"""JSA's Figure 5 under other interpretations of its baselines and bandwidths,
simulated: the order of EDF, Oktopus and PS-P depends on them.

As judged, profiles are linear: running times fall linearly with bandwidth, by
the formula of Section V.A, and jobs take them. Jobs of one row take p·b/b', a
fixed volume's time, while schedulers know the linear profile. A workload of
kind ``swim`` cannot have profiles that are p·b/b' themselves.
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
    MET,
    OKTOPUS,
    POLICIES,
    PSP,
    REWARD,
    TRACE,
)
from reproductions.published_figure import Figure

BLOCK = {"queue": "block"}
LATE = {"late": "run"}


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
    "100 Mbit/s": Alternative(workload={"bandwidth": "100 Mbit/s"}),
    "300 Mbit/s": Alternative(workload={"bandwidth": "300 Mbit/s"}),
    "all-to-all": Alternative(workload={"pattern": "all-to-all"}),
    "times p·b/b'": Alternative(workload={"volume": "fixed"}),
}
ROWS = rows_of(FOUR, ALTERNATIVES)
COUNTS = (50.0, 100.0, 150.0)
SEEDS = 10


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
