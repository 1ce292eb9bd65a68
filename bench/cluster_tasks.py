"""A sweep's cost on Dask, and on processes without it: per task, per message,
of the driver's memory, and of starting workers.

Tasks that compute nothing, on two worker processes here; each measurement in a
process of its own.
"""

from __future__ import annotations

import importlib
import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any
from unittest.mock import patch

from bench.own_process import Measured, measured
from bench.samples import Result
from testbed.sweeps import dask_executor
from testbed.sweeps.cluster import executor
from testbed.sweeps.tasks import Context, Executor, FileRef

COUNTS = (1_000, 10_000)
MESSAGES = 500
STARTS = 5
QUICK_STARTS = 2
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
        summary = {str(n): 0.5 for n in range(20)}
        return {"result": {"number": self.number, "summary": summary}}


def drawn(count: int) -> Iterator[Nothing]:
    """Tasks that are made when they are wanted."""
    for number in range(count):
        yield Nothing(number)


def spread(count: int, most_in_batch: int) -> dict[str, float]:
    """Seconds until two Dask workers are ready, of all tasks after that, and
    until the workers have ended.
    """
    distributed = importlib.import_module("distributed")
    started = partial(
        distributed.LocalCluster,
        n_workers=2,
        threads_per_worker=1,
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs=logging.CRITICAL,
        memory_limit=None,
    )
    began_s = time.perf_counter()
    with (
        patch.object(dask_executor, "MOST_IN_BATCH", most_in_batch),
        started() as cluster,
    ):
        with executor(cluster.scheduler_address, 2, print) as runs:
            timed = _timed(runs, count, began_s)
        done_s = time.perf_counter()
    return {**timed, "end_s": time.perf_counter() - done_s}


def local(count: int) -> dict[str, float]:
    """The same of two processes without Dask."""
    began_s = time.perf_counter()
    with executor(None, 2, print) as processes:
        timed = _timed(processes, count, began_s)
        done_s = time.perf_counter()
    return {**timed, "end_s": time.perf_counter() - done_s}


def _timed(runs: Executor, count: int, began_s: float) -> dict[str, float]:
    # The first two tasks, one a process, wait until the processes have
    # started: what follows is the cost of tasks alone.
    n_back = len(list(runs.results(drawn(2))))
    ready_s = time.perf_counter()
    # Counted one by one: the driver's memory is measured, too.
    for _ in runs.results(drawn(count)):
        n_back += 1
    done_s = time.perf_counter()
    if n_back != count + 2:
        raise AssertionError(f"{n_back - 2} of {count} tasks came back")
    return {"start_s": ready_s - began_s, "tasks_s": done_s - ready_s}


def run(quick: bool) -> list[Result]:
    """Rows: time per task with Dask and without at both counts, per batch, and
    of starts and ends.
    """
    counts: Sequence[int] = COUNTS
    starts = STARTS
    if quick:
        counts = COUNTS[:1]
        starts = QUICK_STARTS
    results = []
    for count in counts:
        results += _tasks(count)
    # A batch of one task is a message for each of them.
    single = measured(spread, {"count": MESSAGES, "most_in_batch": 1})
    single_ms = single.returned["tasks_s"] / MESSAGES * 1e3
    results.append(Result("per batch of one task", "ms", (single_ms,)))
    single_task = {"count": 1, "most_in_batch": 1}
    results += _ends("two workers", starts, spread, single_task)
    results += _ends("two processes", starts, local, {"count": 1})
    return results


def _tasks(count: int) -> list[Result]:
    """Rows of ``count`` tasks with Dask and without, in batches of the
    product's size.
    """
    most = dask_executor.MOST_IN_BATCH
    dask = measured(spread, {"count": count, "most_in_batch": most})
    without_dask = measured(local, {"count": count})
    return [
        _per_task(f"per task of {count:,}", count, dask),
        _per_task(f"without Dask, of {count:,}", count, without_dask),
    ]


def _per_task(name: str, count: int, took: Measured) -> Result:
    per_task_ms = took.returned["tasks_s"] / count * 1e3
    extra = {"tasks": count, "driver's peak [MiB]": round(took.peak_mib, 1)}
    return Result(
        name,
        "ms",
        samples=(per_task_ms,),
        target=f"at most {TARGET_MS:g} ms",
        meets=per_task_ms <= TARGET_MS,
        extra=extra,
    )


def _ends(
    of: str,
    repeats: int,
    function: Callable[..., dict[str, float]],
    arguments: dict[str, int],
) -> list[Result]:
    """Rows of starts, until two tasks are done, and of ends, after the last
    task.
    """
    began_s = []
    ended_s = []
    for _ in range(repeats):
        times = measured(function, arguments).returned
        began_s.append(times["start_s"])
        ended_s.append(times["end_s"])
    return [
        Result(f"start of {of}", "s", tuple(began_s)),
        Result(f"end of {of}", "s", tuple(ended_s)),
    ]
