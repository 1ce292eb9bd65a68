"""AdaBa's and BgMBF's simulations in common: sizes, logs, measures, and the
runs behind a point.
"""

from __future__ import annotations

from dataclasses import dataclass

from reproductions.configuration import (
    RunConfiguration,
    Together,
    Variant,
    settings,
)
from reproductions.extractors import QUEUE_METRICS
from reproductions.grid_quantities import Measure
from reproductions.interpretations import INTERPRETATIONS

JOBS = 1000
QUICK_JOBS = 300


@dataclass(frozen=True)
class Log:
    """A log by its common name; a point's runs play both logs."""

    name: str
    label: str
    file: str

    def measure(
        self,
        name: str,
        label: str,
        unit: str = "",
        factor: float = 1.0,
        digits: int = 1,
    ) -> Measure:
        """A measure of this log's run."""
        return Measure(
            f"{self.name}_{name}",
            f"{label}, {self.label}",
            unit=unit,
            factor=factor,
            digits=digits,
        )


KTH = Log("kth", "KTH", "KTH-SP2-1996-2.1-cln.swf.gz")
NASA = Log("nasa", "NASA", "NASA-iPSC-1993-3.1-cln.swf.gz")
LOGS = (KTH, NASA)

ACCEPTED = Measure("acceptance", "accepted jobs", unit="%", factor=100.0)
CPU = Measure("cpu_s", "processor time of a run", unit="s")


def jobs_of(*, quick: bool) -> int:
    """The number of jobs of a run."""
    return QUICK_JOBS if quick else JOBS


def size_words(*, quick: bool) -> str:
    """The size of a run, in words."""
    jobs = jobs_of(quick=quick)
    return f"fat-tree of 54 servers × 8 slots, links pooled; {jobs:,} jobs"


FULL = f"{size_words(quick=False)} from the beginning of each log"
QUICK = f"{size_words(quick=True)} from the beginning of each log"


def random_jobs(
    embedder: str, seed: int, mean_mbps: float, *, jobs: int
) -> RunConfiguration:
    """Random jobs without a queue, of so much bandwidth per VM on average."""
    values = settings(
        jobs=jobs, **{"bandwidth.mean": f"{mean_mbps:g} Mbit/s"}
    )
    # VC accepts or refuses at once, so that the embedder alone decides.
    variant = Variant(
        "adaba/adaba-random.yaml", "vc", (("embedder", embedder), *values)
    )
    return RunConfiguration(
        variant, seed, QUEUE_METRICS, jobs * _weight(embedder)
    )


def both_logs(
    policy: str, embedder: str, seed: int, load: float, *, jobs: int
) -> Together:
    """Both logs under one policy at one load; measures begin with the log's
    name.
    """
    parts = []
    for log in LOGS:
        run = one_log(
            log=log,
            policy=policy,
            embedder=embedder,
            seed=seed,
            load=load,
            jobs=jobs,
        )
        parts.append((log.name, run))
    return Together(tuple(parts))


def one_log(
    *,
    log: Log,
    policy: str,
    embedder: str,
    seed: int,
    load: float,
    jobs: int,
) -> RunConfiguration:
    """The first jobs of a log; the seed draws their bandwidths. BgMBF's
    migrations are free.
    """
    values = settings(path=log.file, first=jobs, load=load)
    entry = INTERPRETATIONS["adaba"].entry(policy)
    variant = Variant(
        "adaba/bgmbf-logs.yaml", entry, (("embedder", embedder), *values)
    )
    weight = jobs * load * _weight(embedder)
    if policy.startswith("bgmbf"):
        # Each decision looks for jobs to evict and to move.
        weight *= 8.0
    return RunConfiguration(
        variant, seed, QUEUE_METRICS, weight=weight, trace=log.file
    )


def _weight(embedder: str) -> float:
    """The computing time with an embedder over that with the others, about."""
    return 2.0 if embedder == "greedy" else 1.0
