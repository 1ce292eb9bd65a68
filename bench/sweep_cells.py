"""Sweeps of 1,000 and 10,000 tiny cells: cost beside the cells themselves, and
the driver's memory.

A cell is one job in the simulator. A sweep's cost per cell is the driver's
processor time for the whole sweep (keys, store, tables, picture), less what
cells took in the same process, over their number; its time on the clock is
shown beside. Each size has a process of its own, whose peak memory is the
driver's.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from bench.samples import Result

SIZES = (1000, 10_000)
BOUND_MS = 5.0
FLAT_MIB = 16.0
"""The most that the driver's memory may grow by from the smaller sweep to the
larger.
"""
FILE = """\
name: tiny
topology: {kind: tree, fanout: [2, 2], links: 1 Gbit/s, slots_per_server: 2}
policies: [vc, fcfs]
workload:
  kind: jobs
  jobs:
    - {id: a, vms: 3, bandwidth: 400 Mbit/s, duration: 6 s}
"""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--processes",
        type=int,
        default=1,
        help="cells at a time (default 1)",
    )


def run(quick: bool, args: argparse.Namespace) -> list[Result]:
    """Each size in a process of its own; ``quick``: a tenth of the cells."""
    sizes = [size // 10 if quick else size for size in SIZES]
    small, large = (_apart(size, args.processes) for size in sizes)
    grown_mib = large["peak_mib"] - small["peak_mib"]
    rows = [
        Result(
            f"beside the cells, {sizes[0]:,}",
            "ms/cell",
            (small["beside_ms"],),
            extra=small,
        ),
        Result(
            f"beside the cells, {sizes[1]:,}",
            "ms/cell",
            samples=(large["beside_ms"],),
            target=f"<= {BOUND_MS:g}",
            meets=large["beside_ms"] <= BOUND_MS,
            extra=large,
        ),
    ]
    flat = Result(
        "driver's memory, larger less smaller",
        "MiB",
        samples=(grown_mib,),
        target=f"<= {FLAT_MIB:g}",
        meets=grown_mib <= FLAT_MIB,
    )
    return [*rows, flat]


def _apart(cells: int, processes: int) -> dict[str, Any]:
    command = [
        sys.executable,
        "-m",
        "bench.sweep_cells",
        str(cells),
        str(processes),
    ]
    done = subprocess.run(
        command, stdout=subprocess.PIPE, text=True, timeout=3600, check=True
    )
    measurements: dict[str, Any] = json.loads(done.stdout)
    return measurements


def measured(cells: int, processes: int) -> dict[str, Any]:
    """A sweep of so many cells, and a second one that finds them all."""
    from testbed.spec.sweep_section import read_option
    from testbed.sweeps.sweep_folder import SweepOptions, run_sweep
    from testbed.sweeps.sweep_plan import Asked, plan_sweep

    over = ("workload.jobs[0].vms=1,2,3,4,5", f"seed=1..{cells // 10}")
    with tempfile.TemporaryDirectory() as name:
        plan = plan_sweep(
            Path("tiny.yaml"), FILE, Asked(tuple(map(read_option, over)))
        )
        options = SweepOptions(Path(name), processes)
        took_s, cpu_s = [], []
        for _ in range(2):
            began_s, cpu = time.perf_counter(), time.process_time()
            run_sweep(plan, options, lambda _: None, lambda _: None)
            took_s.append(time.perf_counter() - began_s)
            cpu_s.append(time.process_time() - cpu)
        stored = options.store.glob("??/*.jsonl")
        inside_s = [
            json.loads(path.read_text().splitlines()[1])["cpu_s"]
            for path in stored
        ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "cells": len(inside_s),
        "beside_ms": 1e3
        * (cpu_s[0] - (sum(inside_s) if processes == 1 else 0.0))
        / cells,
        "cell_ms": 1e3 * sum(inside_s) / cells,
        "sweep_on_the_clock_ms": 1e3 * took_s[0] / cells,
        "found_again_ms": 1e3 * cpu_s[1] / cells,
        "peak_mib": peak / 1024,
    }


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps(measured(int(sys.argv[1]), int(sys.argv[2])))
    )
