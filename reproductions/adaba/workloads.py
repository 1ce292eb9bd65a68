"""The jobs of AdaBa's evaluation: two logs with bandwidths assigned, and random ones for Fig. 4."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Literal, get_args

import numpy as np

from jobs.request import JobRequest
from jobs.workload.distributions import stream
from jobs.workload.parallel_jobs import MEAN_OF_MAX, HoseDemand, ParallelJobs, Requests
from jobs.workload.swf import jobs_of, read_swf
from jobs.workload.traces import published
from testbed.errors import MachineCannot
from testbed.spec.document import find_file

Log = Literal["kth", "nasa"]
LOGS: tuple[Log, ...] = get_args(Log)
FILES: dict[Log, str] = {
    "kth": "KTH-SP2-1996-2.1-cln.swf.gz",
    "nasa": "NASA-iPSC-1993-3.1-cln.swf.gz",
}

Sizes = Literal["uniform", "geometric", "fixed"]
"""The law of VMs per job in random workloads; the paper gives the mean alone."""


def from_log(
    log: Log, first: int, load: float, slots: int, demand: HoseDemand, seed: int
) -> Sequence[JobRequest]:
    """The first jobs of a log at a system load; the seed draws their bandwidths (Section 5.2)."""
    jobs = _read(log, first).at_load(load, slots)
    return Requests(replace(jobs, bandwidth_bps=demand.draw(seed, jobs.processes)))


Demand = Literal["normal", "inverse"]
"""How bandwidths spread around their mean: as Section 5.2 draws them for one size of job, or with
Max_B in inverse proportion to the VMs as well, as it has them for the logs."""


def drawn(
    n_jobs: int,
    mean_bps: float,
    mean_vms: int,
    load: float,
    slots: int,
    sizes: Sizes,
    demand: Demand,
    seed: int,
) -> Sequence[JobRequest]:
    """Random jobs: Poisson arrivals, exponential running times of an hour on average.

    Other seeds draw other jobs; another mean scales the bandwidths of the same ones.
    """
    vms = _sizes(sizes, mean_vms, n_jobs, seed)
    run_s = np.maximum(1.0, stream(seed, "running times").exponential(3600.0, n_jobs))
    submit_s = np.cumsum(stream(seed, "arrivals").exponential(1.0, n_jobs))
    most = 1.0 / vms if demand == "inverse" else np.ones(n_jobs)
    noise = stream(seed, "bandwidth").standard_normal(n_jobs)
    bandwidth = np.clip(MEAN_OF_MAX * most * (1.0 + 0.2 * noise), most / 10.0, most)
    bandwidth *= mean_bps / bandwidth.mean()
    unknown = np.full(n_jobs, -1, dtype=np.int32)
    jobs = ParallelJobs(
        number=np.arange(1, n_jobs + 1),
        submit_s=submit_s,
        processes=vms,
        run_s=run_s,
        stated_s=np.full(n_jobs, np.nan),
        bandwidth_bps=np.rint(bandwidth).astype(np.int64),
        user=unknown,
        queue=unknown,
        line=np.zeros(n_jobs, dtype=np.int32),
    )
    return Requests(jobs.at_load(load, slots))


def _sizes(
    law: Sizes, mean: int, n_jobs: int, seed: int
) -> np.ndarray[tuple[int], np.dtype[np.int32]]:
    source = stream(seed, "sizes")
    if law == "uniform":
        vms = source.integers(1, 2 * mean, n_jobs)
    elif law == "geometric":
        vms = source.geometric(1.0 / mean, n_jobs)
    else:
        vms = np.full(n_jobs, mean)
    return vms.astype(np.int32)


@cache
def _read(log: Log, first: int) -> ParallelJobs:
    name = FILES[log]
    path = find_file(name, Path.cwd())
    if path is None:
        trace = published(name)
        origin = trace.origin if trace is not None else "a public archive"
        raise MachineCannot(
            f"there is no {name} here, along TESTBED_DATA or in the cache",
            f"it is public: {origin}; testbed data check tells whether a copy is the right one",
        )
    return jobs_of(read_swf(path, first=first)).jobs
