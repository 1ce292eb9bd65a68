"""EASY over all jobs of the KTH log: its decisions alone, and the whole run
around them.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path

from bench.samples import Result
from jobs.request import JobRequest
from jobs.workload.parallel_jobs import Requests
from jobs.workload.swf import jobs_of, read_swf
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.engine.engine import Engine
from testbed.engine.engine_state import Sink
from testbed.errors import MachineCannot
from testbed.schedulers.actions import Arrived, Ended, Start
from testbed.schedulers.easy import Easy
from testbed.spec.document import find_file
from topologies.datacentre import DataCentre
from topologies.flat import flat

LOG = "KTH-SP2-1996-2.1-cln.swf.gz"
NODES = 100
TARGET = 100_000.0


def run(quick: bool) -> list[Result]:
    """Jobs per second of processor time, without reading the log and making its
    requests.
    """
    repeats = 11
    if quick:
        repeats = 3
    jobs = kth()
    machine = flat(NODES, 1)
    return [
        _row(
            name="EASY's decisions, in a bare event loop",
            run_once=lambda: decide_all(jobs, machine),
            n=len(jobs),
            repeats=repeats,
            what="policy and placements; no checks, no ledger, no simulator, no events",
        ),
        _judged(
            _row(
                name="whole run, nobody listening",
                run_once=partial(_run_whole, jobs, machine, None),
                n=len(jobs),
                repeats=repeats,
                what="engine, capacity check, slots booked, simulator",
            )
        ),
        _row(
            name="whole run, every event made",
            run_once=partial(_run_whole, jobs, machine, _counter()),
            n=len(jobs),
            repeats=repeats,
            what="the same, with all events and reasons for waiting handed to a counter",
        ),
    ]


def _run_whole(
    jobs: list[JobRequest], machine: DataCentre, sink: Sink | None
) -> None:
    Engine(
        datacentre=machine,
        jobs=jobs,
        policy=Easy(),
        backend=SimulatedBackend(machine),
        sink=sink,
    ).run()


def _counter() -> Sink:
    """A sink that counts events by name."""
    seen: dict[str, int] = {}

    def sink(event: events.Event) -> None:
        seen[event.name] = seen.get(event.name, 0) + 1

    return sink


def kth() -> list[JobRequest]:
    """The log's jobs from 0 s on. Raises MachineCannot where the log is not
    found.
    """
    log = read_swf(log_path())
    return list(Requests(jobs_of(log).jobs.from_zero()))


def log_path() -> Path:
    """The log, along TESTBED_DATA. Raises MachineCannot."""
    path = find_file(LOG, Path.cwd())
    if path is None:
        raise MachineCannot(
            f"there is no {LOG}",
            "testbed data list says where it comes from",
        )
    return path


def _row(
    name: str,
    run_once: Callable[[], None],
    n: int,
    repeats: int,
    what: str,
) -> Result:
    """Jobs a second in each of some runs, without a target."""
    samples = []
    for _ in range(repeats):
        began_s = time.process_time()
        run_once()
        samples.append(n / (time.process_time() - began_s))
    seconds = round(n / _median(samples), 3)
    return Result(
        name,
        "jobs/s",
        samples=tuple(samples),
        extra={"timed": what, "jobs": n, "seconds": seconds},
    )


def _judged(row: Result) -> Result:
    return replace(
        row,
        target=f"at least {TARGET:,.0f}",
        meets=_median(row.samples) >= TARGET,
    )


def _median(samples: Sequence[float]) -> float:
    """One of the samples, as their number is odd."""
    return sorted(samples)[len(samples) // 2]


class _Now:
    """As much of a view as EASY looks at."""

    listening = False

    def __init__(self, datacentre: DataCentre) -> None:
        self.datacentre = datacentre
        self.now_s = 0.0
        self.jobs: dict[str, JobRequest] = {}

    def job(self, job_id: str) -> JobRequest:
        return self.jobs[job_id]


def decide_all(jobs: list[JobRequest], datacentre: DataCentre) -> None:
    """A bare event loop: ends before arrivals, one decision on all events of an
    instant.
    """
    view = _Now(datacentre)
    # One function, and names of its own: calls and look-ups of attributes
    # would take a share of the time that is measured.
    decide = Easy().decide
    present = view.jobs
    ends: list[tuple[float, str]] = []
    coming = iter(sorted(jobs, key=lambda job: (job.submit_s, job.id)))
    arrival = next(coming, None)
    while arrival is not None or ends:
        # Ends before arrivals: what they free is there for the arrivals.
        if ends and (arrival is None or ends[0][0] <= arrival.submit_s):
            now_s = view.now_s = ends[0][0]
            over = []
            while ends and ends[0][0] <= now_s:
                over.append(heapq.heappop(ends)[1])
            actions = []
            for left, job_id in zip(
                range(len(over) - 1, -1, -1), over, strict=True
            ):
                del present[job_id]
                actions += decide(view, Ended(job_id, "finished", left > 0))  # type: ignore[arg-type]
        elif arrival is not None:
            now_s = view.now_s = arrival.submit_s
            present[arrival.id] = arrival
            actions = decide(view, Arrived(arrival.id))  # type: ignore[arg-type]
            arrival = next(coming, None)
        else:
            break
        for action in actions:
            if isinstance(action, Start):
                heapq.heappush(
                    ends,
                    (
                        now_s + present[action.job_id].duration_s,
                        action.job_id,
                    ),
                )
    if present:
        raise AssertionError(f"{len(present)} jobs never ran")
