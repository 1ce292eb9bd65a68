"""A sweep's cost on Dask: per task, per message, of the driver's memory, and of
starting workers.

Tasks that compute nothing, on two worker processes here; each measurement in a
process of its own.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from bench.own_process import measured
from bench.samples import Result
from testbed.sweeps import dask_executor
from testbed.sweeps.cluster import executor
from testbed.sweeps.tasks import Context, FileRef

COUNTS = (1_000, 10_000)
MESSAGES = 500
STARTS, QUICK_STARTS = 5, 2
TARGET_MS = 5.0


@dataclass(frozen=True)
class Nothing:
    """A task without work, as large as a cell."""

    number: int
    live = False

    @property
    def key(self) -> str:
        return f"{self.number:064x}"

    @property
    def files(self) -> Mapping[str, FileRef]:
        return {}

    def run(self, _context: Context) -> Mapping[str, Any]:
        return {
            "result": {
                "number": self.number,
                "summary": {str(n): 0.5 for n in range(20)},
            }
        }


def drawn(count: int) -> Iterator[Nothing]:
    """Tasks that are made when they are wanted."""
    for number in range(count):
        yield Nothing(number)


def spread(count: int, most_in_batch: int) -> dict[str, float]:
    """Seconds that workers took to be there, and that tasks took from then on,
    all of them.
    """
    began_s = time.perf_counter()
    with (
        patch.object(dask_executor, "MOST_IN_BATCH", most_in_batch),
        executor(None, 2, print) as here,
    ):
        # The first two tasks are those for which the workers are started.
        found = sum(1 for _ in here.results(drawn(2)))
        ready_s = time.perf_counter()
        found += sum(1 for _ in here.results(drawn(count)))
        done_s = time.perf_counter()
    if found != count + 2:
        raise AssertionError(f"{found - 2} of {count} tasks came back")
    ended_s = time.perf_counter()
    return {
        "start_s": ready_s - began_s,
        "tasks_s": done_s - ready_s,
        "end_s": ended_s - done_s,
    }


def run(quick: bool) -> list[Result]:
    """Per task in batches, at both counts with the driver's peak memory; per
    batch; the start.
    """
    results = []
    for count in COUNTS[: 1 if quick else 2]:
        one = measured(
            spread,
            {"count": count, "most_in_batch": dask_executor.MOST_IN_BATCH},
        )
        per_task_ms = one.returned["tasks_s"] / count * 1e3
        extra = {"tasks": count, "driver's peak [MiB]": round(one.peak_mib, 1)}
        target = f"at most {TARGET_MS:g} ms"
        results.append(
            Result(f"per task of {count:,}", "ms", (per_task_ms,), target,
                   per_task_ms <= TARGET_MS, extra)
        )  # fmt: skip
    single = measured(spread, {"count": MESSAGES, "most_in_batch": 1})
    results.append(
        Result(
            "per batch of one task",
            "ms",
            (single.returned["tasks_s"] / MESSAGES * 1e3,),
        )
    )
    starts = [
        measured(spread, {"count": 1, "most_in_batch": 1}).returned
        for _ in range(QUICK_STARTS if quick else STARTS)
    ]
    for name, key in (
        ("start of two workers", "start_s"),
        ("their end", "end_s"),
    ):
        results.append(Result(name, "s", tuple(one[key] for one in starts)))
    return results
