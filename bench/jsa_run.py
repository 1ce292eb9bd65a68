"""``testbed simulate`` of JSA and its baselines: 2,500 jobs on 1,600 machines,
the whole command.

Reading the trace, the simulation, the run folder, audit and report. The trace
is looked for along TESTBED_DATA.
"""

from __future__ import annotations

import tempfile
import time
from pathlib import Path

from bench.own_process import measured
from bench.samples import Result

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


def measure(policy: str, repeats: int) -> dict[str, list[float]]:
    """Seconds for the whole command, each time, and those that the processor
    spent on it.
    """
    began, began_cpu = time.perf_counter(), time.process_time()
    from testbed.cli import main

    took: dict[str, list[float]] = {"wall": [], "cpu": []}
    for _ in range(repeats):
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "jsa-run.yaml")
            path.write_text(EXPERIMENT.replace("POLICY", policy))
            code = main.run(
                [
                    "simulate",
                    str(path),
                    "--out",
                    str(Path(folder, "runs")),
                    "--json",
                ]
            )
        if code:
            raise RuntimeError(
                f"testbed simulate ended with exit code {code}"
            )
        # The first run counts with the imports that the command needs.
        took["wall"].append(time.perf_counter() - began)
        took["cpu"].append(time.process_time() - began_cpu)
        began, began_cpu = time.perf_counter(), time.process_time()
    return took


def run(quick: bool) -> list[Result]:
    """JSA several times; each baseline once."""
    rows = []
    for policy in ("jsa", *(() if quick else BASELINES)):
        repeats = 3 if policy == "jsa" and not quick else 1
        measurement = measured(
            measure, {"policy": policy, "repeats": repeats}
        )
        samples = tuple(measurement.returned["wall"])
        meets = max(samples) <= LIMIT_S if policy == "jsa" else None
        target = f"at most {LIMIT_S:g} s" if policy == "jsa" else ""
        cpu_s = [
            round(seconds, 2) for seconds in measurement.returned["cpu"]
        ]
        extra = {
            "processor_s": cpu_s,
            "peak_mib": round(measurement.peak_mib),
        }
        rows.append(
            Result(
                policy,
                "s",
                samples=samples,
                target=target,
                meets=meets,
                extra=extra,
            )
        )
    return rows
