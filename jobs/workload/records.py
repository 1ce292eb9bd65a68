"""From a log's records to jobs that can be scheduled; what cannot is counted, by reason."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from jobs.workload.parallel import ParallelJobs
from jobs.workload.swf import Swf

ZeroRun = Literal["raise", "skip"]
"""What becomes of records with a running time of 0 s: raised to 1 s, or left out."""

SHORTEST_S = 1.0

NEEDED = (
    "number", "submit_s", "run_s", "allocated", "requested", "requested_s", "status", "user",
    "queue",
)  # fmt: skip
"""The fields of a record that decide on its job."""


@dataclass(frozen=True)
class Taken:
    """The jobs, how many records were left out, and how many were mended, by reason."""

    jobs: ParallelJobs
    skipped: Mapping[str, int]
    mended: Mapping[str, int]


def jobs_of(
    log: Swf,
    zero_run: ZeroRun = "raise",
    shortest_s: float = 0.0,
    longest_s: float = math.inf,
) -> Taken:
    """The jobs of a log that ran from ``shortest_s`` to ``longest_s`` (docs/decisions/0403).

    Processors are those requested, else those allocated, else 1. A stated time below the true one
    is raised to it: the machine would have ended the job, and it did not.
    """
    records = log.records
    keep, skipped = _usable(records, zero_run, shortest_s, longest_s)
    lines = log.lines
    if not keep.all():
        records, lines = records[keep], lines[keep]
    asked = records["requested"] > 0
    given = records["allocated"] > 0
    processes = np.where(asked, records["requested"], records["allocated"])
    processes = np.where(asked | given, processes, 1)
    run_s = np.maximum(records["run_s"], SHORTEST_S)
    stated = records["requested_s"] > 0
    low = stated & (records["requested_s"] < run_s)
    mended = {
        "processors neither requested nor allocated: 1 taken": ~(asked | given),
        f"running time below {SHORTEST_S:g} s raised to it": records["run_s"] < SHORTEST_S,
        "requested time below the running time raised to it": low,
        "no requested time: the running time taken": ~stated,
    }
    jobs = ParallelJobs(
        number=records["number"].copy(),
        submit_s=records["submit_s"].copy(),
        processes=processes.astype(np.int32),
        run_s=run_s,
        stated_s=np.where(stated, np.maximum(records["requested_s"], run_s), np.nan),
        bandwidth_bps=np.zeros(len(records), dtype=np.int64),
        user=records["user"].copy(),
        queue=records["queue"].copy(),
        line=lines,
    )
    return Taken(jobs, skipped, _counts(mended))


def _usable(
    records: np.ndarray[tuple[int], np.dtype[np.void]],
    zero_run: ZeroRun,
    shortest_s: float,
    longest_s: float,
) -> tuple[npt.NDArray[np.bool_], dict[str, int]]:
    """Which records are jobs with a running time, and why the others are not: the first reason."""
    status, run_s = records["status"], records["run_s"]
    reasons = {
        "part of a job that has a record of its own": np.isin(status, (2, 3, 4)),
        "cancelled before it ran": (status == 5) & (run_s <= 0),
        "running time unknown": run_s < 0,
        "ran for 0 s": (run_s == 0) & (zero_run == "skip"),
        f"ran for less than {shortest_s:g} s": run_s < shortest_s,
        f"ran for more than {longest_s:g} s": run_s > longest_s,
    }
    keep = np.ones(len(records), dtype=np.bool_)
    first: dict[str, npt.NDArray[np.bool_]] = {}
    for reason, holds in reasons.items():
        first[reason] = holds & keep
        keep &= ~holds
    return keep, _counts(first)


def _counts(marked: Mapping[str, npt.NDArray[np.bool_]]) -> dict[str, int]:
    return {reason: int(marks.sum()) for reason, marks in marked.items() if marks.any()}
