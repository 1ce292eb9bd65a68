"""``testbed simulate`` of DCloud's default day, once per policy: time and
memory.

The whole command is timed: drawing the jobs, the simulation, the run folder,
audit and report.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.own_process import measured
from bench.samples import Result

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
    text = EXPERIMENT.replace("POLICY", policy)
    text = text.replace("HOURS", f"{hours:g}")
    began = time.perf_counter()
    cpu_began = time.process_time()
    simulate(text)
    return time.perf_counter() - began, time.process_time() - cpu_began


def simulate(text: str) -> None:
    """``testbed simulate`` of a file with this text, in this process. Raises
    RuntimeError where it fails.
    """
    # Imported in the time that is measured: the command imports it, too.
    from testbed.cli import main

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "experiment.yaml")
        file.write_text(text)
        runs = str(Path(folder, "runs"))
        code = main.run(["simulate", str(file), "--out", runs, "--json"])
    if code:
        raise RuntimeError(f"testbed simulate ended with exit code {code}")


def run(quick: bool) -> list[Result]:
    """``quick`` plays the first two hours."""
    hours = 24.0
    if quick:
        hours = 2.0
    rows = []
    for policy in LIMITS_S:
        rows += _rows(policy, hours)
    return rows


def _rows(policy: str, hours: float) -> list[Result]:
    measurement = measured(measure, {"policy": policy, "hours": hours})
    took_s, cpu_s = measurement.returned
    limit_s = LIMITS_S[policy]
    # The limit is for the processor's time: the clock of a shared machine
    # counts others too.
    return [
        Result(
            policy,
            "s",
            samples=(cpu_s,),
            target=f"at most {limit_s:g} s",
            meets=cpu_s <= limit_s,
            extra={"on the clock, in s": round(took_s, 2)},
        ),
        Result(
            f"{policy}: memory",
            "MiB",
            samples=(measurement.peak_mib,),
            target=f"at most {PEAK_MIB:g} MiB",
            meets=measurement.peak_mib <= PEAK_MIB,
        ),
    ]
