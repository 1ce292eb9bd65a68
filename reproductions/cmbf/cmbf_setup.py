"""CMBF's simulations in common: models, policies, measures, sizes, and the run
behind a point.
"""

from __future__ import annotations

from typing import Literal

from reproductions.configuration import (
    Extractor,
    RunConfiguration,
    Variant,
    settings,
)
from reproductions.extractors import NODE_METRICS
from reproductions.grid_quantities import Measure
from reproductions.interpretations import INTERPRETATIONS

NODES = 320
ModelName = Literal["feitelson", "jann"]
JOBS: dict[ModelName, int] = {"feitelson": 20_000, "jann": 10_000}

FCFS = "FCFS"
EASY = "EASY"
CMBF = "CMBF"
AMBF = "AMBF"
CMCBF = "CMCBF"
AMCBF = "AMCBF"
SIX = (FCFS, EASY, CMBF, AMBF, CMCBF, AMCBF)
POLICIES = {name: name.lower() for name in SIX}

LABELS: dict[ModelName, str] = {
    "feitelson": "FWorkload",
    "jann": "JWorkload",
}
# The number of jobs of a figure over that of a quick run.
QUICK_SHARE = 10

RESPONSE = Measure("response_s", "mean response time", unit="s", digits=0)
SLOWDOWN = Measure("slowdown", "mean bounded slowdown", digits=2)
MIGRATIONS = Measure("migrations", "migrations a job", digits=3)
USE = Measure(
    "utilisation", "CPU use by the jobs' own work", unit="%", factor=100.0
)
BUSY = Measure(
    "busy",
    "CPU use, what is lost behind others included",
    unit="%",
    factor=100.0,
)
CPU = Measure("cpu_s", "processor time of a run", unit="s")


def jobs_of(model: ModelName, *, quick: bool) -> int:
    """The number of jobs of a run."""
    if quick:
        return JOBS[model] // QUICK_SHARE
    return JOBS[model]


def size_words(*models: ModelName, quick: bool) -> str:
    """The size of a run, in words."""
    counts = []
    for model in models:
        jobs = jobs_of(model, quick=quick)
        counts.append(f"{jobs:,} jobs of {LABELS[model]}")
    return f"{NODES} nodes; {', '.join(counts)}"


def nodes(
    model: ModelName,
    series: str,
    seed: int,
    load: float,
    *,
    quick: bool,
    cpu_low: float = 0.4,
    cpu_error: float | None = 0.0,
    migration_cost_s: float | None = None,
    overestimate: float | None = None,
    by_statements: bool = False,
    extractor: Extractor = NODE_METRICS,
) -> RunConfiguration:
    """One policy over jobs of one model at one load, on 320 nodes (Sections 5.1
    and 5.2).

    ``cpu_low``: the least share of a node's CPU that a process uses; the
    greatest is all of it. ``cpu_error``: the greatest error of the schedulers'
    estimates of that share; None where they have no estimates. With
    ``overestimate`` users state their running time times a factor, uniform from
    1 to this; EASY plans with what they state where ``by_statements``.
    """
    policy = POLICIES[series]
    jobs = jobs_of(model, quick=quick)
    by_cpu = policy in ("cmcbf", "amcbf")
    use = f"low: {cpu_low}"
    if cpu_error:
        use = f"{use}, error: {cpu_error}"
    values = settings(jobs=jobs, load=load, cpu=f"{{{use}}}")
    parameters = {}
    if overestimate is not None:
        values = (*values, *settings(overestimate=overestimate))
    if by_statements:
        parameters["estimates"] = "user"
    # The other policies have no such parameter.
    if migration_cost_s is not None and policy not in ("fcfs", "easy"):
        parameters["migration_cost"] = f"{migration_cost_s:g} s"
    if by_cpu and cpu_error is None:
        parameters["cpu"] = "unknown"
    entry = INTERPRETATIONS["cmbf"].entry(policy, parameters)
    weight = jobs * load
    if policy == "fcfs":
        # Its queue is the longest.
        weight *= 4.0
    elif by_cpu:
        # Two tiers on a node: rates follow from the CPU use of both.
        weight *= 8.0
    variant = Variant(f"cmbf/cmbf-{model}.yaml", entry, values)
    return RunConfiguration(variant, seed, extractor, weight)
