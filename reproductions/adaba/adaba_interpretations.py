"""AdaBa's and BgMBF's figures under other interpretations of the network, of the
jobs, of evictions and of migrations.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from reproductions.adaba.adaba_acceptance import (
    EMBEDDERS,
    FIRST,
    KTH_ACCEPTED,
    NASA_ACCEPTED,
)
from reproductions.adaba.adaba_acceptance import SERIES as FOUR
from reproductions.adaba.adaba_setup import (
    ACCEPTED,
    CPU,
    JOBS,
    KTH,
    LOGS,
    NASA,
    QUICK_JOBS,
    jobs_of,
)
from reproductions.adaba.bgmbf_scheduling import (
    POLICIES,
    SERIES,
    migrated_jobs,
    migrations,
    slowdown,
    vm_use,
    waiting,
)
from reproductions.configuration import (
    RunConfiguration,
    Settings,
    Together,
    Variant,
    settings,
)
from reproductions.extractors import QUEUE_METRICS
from reproductions.interpretation_rows import panels_of, rows_of
from reproductions.interpretations import INTERPRETATIONS, Parameters
from reproductions.published_figure import Figure

TREE: Settings = (("topology.network", "tree"),)
SERVERS = "54 servers × 8 slots"


def _both_logs(
    *,
    entry: str,
    embedder: str,
    alternative: Settings,
    load: float,
    seed: int,
    quick: bool,
) -> Together:
    """Both logs under a policy's entry, with other settings than the
    interpretation's; measures begin with the log's name.
    """
    jobs = jobs_of(quick=quick)
    parts = []
    for log in LOGS:
        values = settings(path=log.file, first=jobs, load=load)
        variant = Variant(
            "adaba/bgmbf-logs.yaml",
            entry,
            (("embedder", embedder), *values, *alternative),
        )
        run = RunConfiguration(
            variant, seed, QUEUE_METRICS, weight=jobs * load, trace=log.file
        )
        parts.append((log.name, run))
    return Together(tuple(parts))


# -- AdaBa ---------------------------------------------------------------------

# Settings in place of the interpretation's.
PLACED: dict[str, Settings] = {
    "as judged": (),
    "tree": TREE,
    "load 0.8": settings(load=0.8),
    "16 VMs a job": settings(mean_vms=16),
    "sigma 50 %": settings(**{"bandwidth.sigma": "50 %"}),
}
# First fit is in one sentence of the text, and not in the picture.
FIVE = (*FOUR, FIRST)
ROWS = rows_of(FIVE, PLACED)
# Where little is asked for, where curves are to bend, and the highest.
MEANS = (50.0, 400.0, 700.0)


def _placed(
    row: str, mean_mbps: float, seed: int, quick: bool
) -> RunConfiguration:
    series, name = ROWS[row]
    jobs = jobs_of(quick=quick)
    values = settings(
        jobs=jobs, **{"bandwidth.mean": f"{mean_mbps:g} Mbit/s"}
    )
    variant = Variant(
        "adaba/adaba-random.yaml",
        "vc",
        (("embedder", EMBEDDERS[series]), *values, *PLACED[name]),
    )
    return RunConfiguration(variant, seed, QUEUE_METRICS, float(jobs))


INTERPRETATIONS_OF_ADABA = Figure(
    name="adaba-interpretations",
    title=(
        "Accepted jobs under other interpretations of network, load, size "
        "and bandwidths"
    ),
    source="AdaBa, Fig. 4",
    x_label="mean bandwidth per VM [Mbit/s]",
    xs=MEANS,
    series=tuple(ROWS),
    configuration=_placed,
    panels=panels_of(ACCEPTED, FIVE, PLACED),
    also=(CPU,),
    size=f"{SERVERS}; {JOBS:,} random jobs",
    quick_size=f"{SERVERS}; {QUICK_JOBS:,} random jobs",
    seeds=4,
)

# Settings in place of the interpretation's, where jobs are a log's.
LOGGED: dict[str, Settings] = {
    "as judged": (),
    "tree": TREE,
    "bandwidths without a cap": settings(**{"bandwidth.max_b_cap": "none"}),
    "sigma 50 %": settings(**{"bandwidth.sigma": "50 %"}),
}
LOGGED_ROWS = rows_of(FOUR, LOGGED)
LOGGED_LOADS = (0.2, 0.6, 1.0)


def _logged(row: str, load: float, seed: int, quick: bool) -> Together:
    series, name = LOGGED_ROWS[row]
    return _both_logs(
        entry="vc",
        embedder=EMBEDDERS[series],
        alternative=LOGGED[name],
        load=load,
        seed=seed,
        quick=quick,
    )


LOGS_OF_ADABA = Figure(
    name="adaba-log-interpretations",
    title="Accepted jobs of two logs under other networks and bandwidths",
    source="AdaBa, Fig. 5",
    x_label="system load",
    xs=LOGGED_LOADS,
    series=tuple(LOGGED_ROWS),
    configuration=_logged,
    panels=(
        *panels_of(KTH_ACCEPTED, FOUR, LOGGED),
        *panels_of(NASA_ACCEPTED, FOUR, LOGGED),
    ),
    also=(CPU,),
    size=f"{SERVERS}; the first {JOBS:,} jobs of each log",
    quick_size=f"{SERVERS}; the first {QUICK_JOBS:,} jobs of each log",
    seeds=4,
)

# -- BgMBF ---------------------------------------------------------------------


@dataclass(frozen=True)
class Alternative:
    """Parameters by policy, and settings, in place of the interpretation's."""

    parameters: dict[str, Parameters] = field(default_factory=dict)
    settings: Settings = ()


BACKFILLING = ("bgmbf", "bgmbf-sdf")
SORTED = ("sbf", "sdf")


def _each(
    policies: Sequence[str], **parameters: str
) -> dict[str, Parameters]:
    """The same parameters for several policies."""
    return dict.fromkeys(policies, parameters)


SCHEDULED = {
    "as judged": Alternative(),
    "evicts as few as needed": Alternative(
        _each(BACKFILLING, evict="needed")
    ),
    "20 s a migration": Alternative(
        _each(BACKFILLING, migration_cost="20 s")
    ),
    "sorted queues skip": Alternative(_each(SORTED, skip="true")),
    "tree": Alternative(settings=TREE),
}
SCHEDULES = rows_of(SERIES, SCHEDULED)
LOADS = (0.3, 0.5, 0.7, 0.8)


def _scheduled(row: str, load: float, seed: int, quick: bool) -> Together:
    series, name = SCHEDULES[row]
    alternative = SCHEDULED[name]
    policy = POLICIES[series]
    entry = INTERPRETATIONS["adaba"].entry(
        policy, alternative.parameters.get(policy)
    )
    return _both_logs(
        entry=entry,
        embedder="adaba",
        alternative=alternative.settings,
        load=load,
        seed=seed,
        quick=quick,
    )


INTERPRETATIONS_OF_BGMBF = Figure(
    name="bgmbf-interpretations",
    title=(
        "Five schedulers under other interpretations of evictions, "
        "migrations and network"
    ),
    source="BgMBF, Figs. 6 to 8",
    x_label="system load",
    xs=LOADS,
    series=tuple(SCHEDULES),
    configuration=_scheduled,
    panels=(
        *panels_of(waiting(KTH), SERIES, SCHEDULED),
        *panels_of(waiting(NASA), SERIES, SCHEDULED),
    ),
    also=(
        *map(migrations, LOGS),
        *map(migrated_jobs, LOGS),
        *map(slowdown, LOGS),
        *map(vm_use, LOGS),
        CPU,
    ),
    size=f"{SERVERS}; the first {JOBS:,} jobs of each log",
    quick_size=f"{SERVERS}; the first {QUICK_JOBS:,} jobs of each log",
    seeds=4,
)
