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
from typing import TYPE_CHECKING, Any

from bench.samples import Result

if TYPE_CHECKING:
    from testbed.sweeps.sweep_folder import SweepOptions
    from testbed.sweeps.sweep_plan import SweepPlan

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
    n_small, n_large = SIZES
    if quick:
        n_small //= 10
        n_large //= 10
    small = _apart(n_small, args.processes)
    large = _apart(n_large, args.processes)
    grown_mib = large["peak_mib"] - small["peak_mib"]
    return [
        Result(
            f"beside the cells, {n_small:,}",
            "ms/cell",
            (small["beside_ms"],),
            extra=small,
        ),
        Result(
            f"beside the cells, {n_large:,}",
            "ms/cell",
            samples=(large["beside_ms"],),
            target=f"<= {BOUND_MS:g}",
            meets=large["beside_ms"] <= BOUND_MS,
            extra=large,
        ),
        Result(
            "driver's memory, larger less smaller",
            "MiB",
            samples=(grown_mib,),
            target=f"<= {FLAT_MIB:g}",
            meets=grown_mib <= FLAT_MIB,
        ),
    ]


def _apart(cells: int, processes: int) -> dict[str, Any]:
    """The figures of a sweep in a process of its own."""
    arguments = ["bench.sweep_cells", str(cells), str(processes)]
    done = subprocess.run(
        [sys.executable, "-m", *arguments],
        stdout=subprocess.PIPE,
        text=True,
        timeout=3600,
        check=True,
    )
    figures: dict[str, Any] = json.loads(done.stdout)
    return figures


def measured(cells: int, processes: int) -> dict[str, Any]:
    """Costs of a sweep, and of a second one that finds all results stored."""
    from testbed.spec.sweep_section import read_option
    from testbed.sweeps.sweep_folder import SweepOptions
    from testbed.sweeps.sweep_plan import PlanOptions, plan_sweep

    over = ("workload.jobs[0].vms=1,2,3,4,5", f"seed=1..{cells // 10}")
    asked = PlanOptions(tuple(map(read_option, over)))
    with tempfile.TemporaryDirectory() as name:
        plan = plan_sweep(Path("tiny.yaml"), FILE, asked)
        options = SweepOptions(Path(name), processes)
        took_s, cpu_s = _sweep_s(plan, options)
        # The same plan again: all cells are found in the store.
        _, found_cpu_s = _sweep_s(plan, options)
        inside_s = _cells_s(options.store)
    beside_s = cpu_s
    if processes == 1:
        # The cells ran in this process: their time is in the sweep's.
        beside_s -= sum(inside_s)
    peak_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return {
        "cells": len(inside_s),
        "beside_ms": 1e3 * beside_s / cells,
        "cell_ms": 1e3 * sum(inside_s) / cells,
        "sweep_on_the_clock_ms": 1e3 * took_s / cells,
        "found_again_ms": 1e3 * found_cpu_s / cells,
        "peak_mib": peak_kib / 1024,
    }


def _sweep_s(plan: SweepPlan, options: SweepOptions) -> tuple[float, float]:
    """Seconds of a sweep: on the clock, and of this process."""
    from testbed.sweeps.sweep_folder import run_sweep

    began_s = time.perf_counter()
    began_cpu_s = time.process_time()
    run_sweep(plan, options, lambda _: None, lambda _: None)
    cpu_s = time.process_time() - began_cpu_s
    return time.perf_counter() - began_s, cpu_s


def _cells_s(store: Path) -> list[float]:
    """Processor time of each cell, as the store has it."""
    times_s = []
    for path in store.glob("??/*.jsonl"):
        record = json.loads(path.read_text().splitlines()[1])
        times_s.append(record["cpu_s"])
    return times_s


if __name__ == "__main__":
    sys.stdout.write(
        json.dumps(measured(int(sys.argv[1]), int(sys.argv[2])))
    )
