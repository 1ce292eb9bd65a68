"""A million Feitelson-style jobs under EASY, drawn, run and forgotten: peak
memory and time.
"""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace

from bench.samples import Result

JOBS = 1_000_000
QUICK_JOBS = 100_000
TARGET_MB = 500.0

_CHILD = """
import json, resource, sys, time
from jobs.workload.parallel_jobs import Requests
from testbed import events
from testbed.backends.sim.simulator import SimulatedBackend
from testbed.engine.engine import Engine
from testbed.schedulers.easy import Easy
from testbed.spec.workload_models import FeitelsonWorkload
from topologies.flat import flat

count = int(sys.argv[1])
machine = flat(320, 1)
jobs = FeitelsonWorkload(kind="feitelson", jobs=count).draw(1, 320, 0.8).at_load(0.8, 320)
drawn_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
ended = 0

def sink(event):
    global ended
    ended += isinstance(event, events.JobEnded) and event.outcome == "finished"

began_s = time.process_time()
Engine(
    datacentre=machine,
    jobs=Requests(jobs),
    policy=Easy(),
    backend=SimulatedBackend(machine),
    sink=sink,
).run()
took_s = time.process_time() - began_s
peak_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
print(json.dumps({"ended": ended, "s": took_s, "drawn_mb": drawn_mb, "peak_mb": peak_mb}))
"""


def run(quick: bool) -> list[Result]:
    """Peak memory of a process that draws and runs all jobs; each event goes to
    a counter.
    """
    if quick:
        return [_row(_counted(QUICK_JOBS))]
    row = _row(_counted(JOBS))
    return [replace(row, meets=row.samples[0] <= TARGET_MB)]


def _counted(count: int) -> dict[str, float]:
    """The child's figures of so many jobs. Raises AssertionError where some
    never finished.
    """
    done = subprocess.run(
        [sys.executable, "-c", _CHILD, str(count)],
        capture_output=True,
        text=True,
        timeout=3600,
        check=True,
    )
    counted: dict[str, float] = json.loads(done.stdout)
    if counted["ended"] != count:
        raise AssertionError(
            f"{count - counted['ended']} jobs never finished"
        )
    return counted


def _row(counted: dict[str, float]) -> Result:
    count = counted["ended"]
    return Result(
        "peak memory, EASY",
        "MB",
        samples=(counted["peak_mb"],),
        target=f"at most {TARGET_MB:g} MB for {JOBS:,} jobs",
        extra={
            "jobs": count,
            "after drawing [MB]": round(counted["drawn_mb"], 1),
            "processor time [s]": round(counted["s"], 1),
            "jobs/s": round(count / counted["s"]),
        },
    )
