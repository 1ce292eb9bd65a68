"""``testbed simulate`` of DCloud's default day, once per policy: time and memory.

The whole command is timed: drawing the jobs, the simulation, the run folder, audit and report.
"""

from __future__ import annotations

import tempfile
import time
from dataclasses import replace
from pathlib import Path

from bench.figures import Result
from bench.variants import measured, variants

LIMITS_S = {"dcloud": 45.0, "vc": 10.0, "bl": 120.0}
PEAK_MIB = 1024.0

EXPERIMENT = """\
name: default-day
seed: 1
topology: {kind: tree, fanout: [20, 20, 20], links: [50 Gbit/s, 5 Gbit/s, 1 Gbit/s],
  slots_per_server: 4}
policies: [POLICY]
workload: {kind: poisson, hours: HOURS}
"""


def measure(policy: str, hours: float) -> tuple[float, float]:
    """Seconds for the whole command: on the wall's clock, and of the processor."""
    began, cpu_began = time.perf_counter(), time.process_time()
    from testbed.cli import main

    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "default-day.yaml")
        path.write_text(EXPERIMENT.replace("POLICY", policy).replace("HOURS", f"{hours:g}"))
        code = main.run(["simulate", str(path), "--out", str(Path(folder, "runs")), "--json"])
    if code:
        raise RuntimeError(f"testbed simulate ended with exit code {code}")
    return time.perf_counter() - began, time.process_time() - cpu_began


def run(quick: bool) -> list[Result]:
    """With Numba and without; ``quick`` plays the first two hours.

    The limits of time are for the program as it is installed, which is with Numba.
    """
    hours = 2.0 if quick else 24.0
    rows = []
    for name, fast in variants().items():
        for policy, limit_s in LIMITS_S.items():
            found = measured(measure, {"policy": policy, "hours": hours}, fast=fast)
            took_s, cpu_s = found.returned
            rows += _rows(
                f"{policy}, {name}", took_s, cpu_s, found.peak_mib, limit_s if fast else None
            )
    return rows


def _rows(
    name: str, took_s: float, cpu_s: float, peak_mib: float, limit_s: float | None
) -> list[Result]:
    """The limit is for the processor's time: the clock of a shared machine counts others too."""
    extra = {"on the clock, in s": round(took_s, 2)}
    took = Result(name, "s", (cpu_s,), extra=extra)
    if limit_s is not None:
        took = replace(took, target=f"at most {limit_s:g} s", meets=cpu_s <= limit_s)
    return [
        took,
        Result(
            f"{name}: memory", "MiB", (peak_mib,), f"at most {PEAK_MIB:g} MiB", peak_mib <= PEAK_MIB
        ),
    ]
