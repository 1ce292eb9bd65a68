"""``testbed simulate`` of JSA and its baselines: 2,500 jobs on 1,600 machines, the whole command.

Reading the trace, the simulation, the run folder, audit and report. The trace is looked for along
TESTBED_DATA.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.dcloud_variants import measured, variants
from bench.figures import Result

LIMIT_S = 20.0
BASELINES = ("simple-jsa", "edf", "oktopus-batch", "ps-p")

EXPERIMENT = """\
name: jsa-run
seed: 1
topology: {kind: tree, fanout: [2, 20, 40], links: [32 Gbit/s, 8 Gbit/s, 1 Gbit/s],
  slots_per_server: 4}
policies: [POLICY]
workload: {kind: swim, path: FB-2009_samples_24_times_1hr_0.tsv.gz, jobs: 2500}
"""


def measure(policy: str, repeats: int) -> list[float]:
    """Seconds for the whole command, each time."""
    began = time.perf_counter()
    from testbed.cli import main

    took = []
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "jsa-run.yaml")
            path.write_text(EXPERIMENT.replace("POLICY", policy))
            code = main.run(["simulate", str(path), "--out", str(Path(folder, "runs")), "--json"])
        if code:
            raise RuntimeError(f"testbed simulate ended with exit code {code}")
        # The first run counts with the imports that the command needs.
        took.append(time.perf_counter() - began)
        began = time.perf_counter()
    return took


def run(quick: bool) -> list[Result]:
    """JSA several times; each baseline once. With Numba and without."""
    rows = []
    for name, fast in variants().items():
        for policy in ("jsa", *(() if quick else BASELINES)):
            repeats = 3 if policy == "jsa" and not quick else 1
            found = measured(measure, {"policy": policy, "repeats": repeats}, fast=fast)
            samples = tuple(found.returned)
            meets = max(samples) <= LIMIT_S if policy == "jsa" else None
            target = f"at most {LIMIT_S:g} s" if policy == "jsa" else ""
            extra = {"peak_mib": round(found.peak_mib)}
            rows.append(Result(f"{policy}, {name}", "s", samples, target, meets, extra))
    return rows
