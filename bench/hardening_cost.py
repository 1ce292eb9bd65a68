"""Time of a job's start, of a program's job by sudo, of a tenant's admission and
of ``testbed exec``, in this checkout and in an earlier one.

The checkouts take turns, so that what else the machine does is the same for
both. Made for the namespaces, users, filters and limits of VMs: ``--before`` is
a checkout of the commit before them, with an environment of its own or a link
to one. Needs root.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import time
from collections import defaultdict
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.progress import Progress, Step
from bench.samples import Result
from testbed.errors import RunFailed

HERE = Path(__file__).resolve().parents[1]
ROUNDS, QUICK_ROUNDS = 3, 1
TURNS = 3
"""Of a benchmark in a round: a median of its five samples still moves by a
third from one turn to the next."""
EXECS = 15
MOST = 1.2
"""At most this times as long as before."""
TIMEOUT_S = 600.0
EXPECTED_S = 60.0
NETWORK = """\
name: hardening-cost
topology: {kind: tree, fanout: [2], links: 100 Mbit/s, slots_per_server: 2}
policies: [vc]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""
VMS = 8
JOBS, EVERY_S = 12, 1
CALLER = 54_321
"""Of a program's job: the user who called sudo, whose folder it is in."""
PROGRAMS = """\
name: programs
topology: {kind: tree, fanout: [4, 2], links: [1 Gbit/s, 1 Gbit/s], slots_per_server: 1}
policies: [vc]
workload:
  kind: jobs
  jobs:
"""
PROGRAM = (
    "    - {{id: j{number}, at: {at_s} s, vms: {vms}, bandwidth: 1 Mbit/s,"
    " duration: 1 s, command: ['true']}}\n"
)
WHAT = ("job start", "program's job by sudo", "32-VM tenant in", "exec")

Samples = dict[tuple[str, str], list[float]]
"""(What, ``before`` or ``now``) -> times in ms."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--before",
        type=Path,
        required=True,
        metavar="CHECKOUT",
        help="the earlier checkout",
    )
    parser.add_argument("--rounds", type=int, default=ROUNDS, metavar="N")


def run(quick: bool, args: argparse.Namespace) -> list[Result]:
    """Per kind a row for each checkout, in ms."""
    rounds = QUICK_ROUNDS if quick else args.rounds
    checkouts = {"before": args.before.resolve(), "now": HERE}
    steps = [
        Step(f"{which}, round {number + 1}", EXPECTED_S)
        for number in range(rounds)
        for which in checkouts
    ]
    progress = Progress(steps)
    samples: Samples = defaultdict(list)
    for _ in range(rounds):
        for which, checkout in checkouts.items():
            with progress.step():
                medians(checkout, which, samples)
    return [
        row(what, which, samples) for what in WHAT for which in checkouts
    ]


def medians(checkout: Path, which: str, samples: Samples) -> None:
    """One turn of a checkout: medians of the benchmarks, and each ``exec``."""
    for what, benchmark in (
        ("job start", "job-start"),
        ("32-VM tenant in", "tenant-in"),
    ):
        for _ in range(TURNS):
            words = ("bench", benchmark, "--quick", "--json")
            (first, *_) = json.loads(command(checkout, *words))["rows"]
            samples[what, which].append(first["median"])
    samples["exec", which] += exec_ms(checkout)
    samples["program's job by sudo", which] += program_ms(checkout)


def program_ms(checkout: Path) -> list[float]:
    """Times of jobs of programs that do nothing, from their submission to their
    end, in a folder of who called sudo.
    """
    # Not in /tmp: VMs have one of their own.
    with TemporaryDirectory(dir="/var/lib") as folder:
        file = Path(folder, "programs.yaml")
        jobs = [
            PROGRAM.format(number=number, at_s=number * EVERY_S, vms=VMS)
            for number in range(JOBS)
        ]
        file.write_text(PROGRAMS + "".join(jobs))
        for path in (Path(folder), file):
            os.chown(path, CALLER, CALLER)
        run = ("run", str(file), "--force")
        command(checkout, "testbed.cli.main", *run, caller=Path(folder))
        (table,) = Path(folder).glob("runs/*/jobs.csv")
        with table.open(newline="") as rows:
            return [
                1e3 * (float(row["end_s"]) - float(row["submit_s"]))
                for row in csv.DictReader(rows)
            ]


def exec_ms(checkout: Path) -> list[float]:
    """Times of a program that does nothing, in a VM of a network that is up."""
    times_ms = []
    with TemporaryDirectory() as folder:
        file = Path(folder, "network.yaml")
        file.write_text(NETWORK)
        verbs = "testbed.cli.main"
        command(checkout, verbs, "up", str(file))
        try:
            tenant = ("--vms", "2", "--bandwidth", "10 Mbit/s")
            command(checkout, verbs, "tenant", "add", "a", *tenant)
            for _ in range(EXECS):
                began = time.perf_counter()
                command(checkout, verbs, "exec", "a.0", "--", "true")
                times_ms.append(1e3 * (time.perf_counter() - began))
        finally:
            command(checkout, verbs, "down")
    return times_ms


def command(
    checkout: Path,
    module: str,
    *arguments: str,
    caller: Path | None = None,
) -> str:
    """Output of a module of a checkout, by sudo in a caller's folder if that is
    given. Raises RunFailed.

    A benchmark whose target is missed is no failure here, nor is a run whose
    bands are.
    """
    variables = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": str(checkout),
    }
    if caller is not None:
        variables |= dict.fromkeys(("SUDO_UID", "SUDO_GID"), str(CALLER))
    done = subprocess.run(
        [
            str(checkout / ".venv/bin/python"),
            "-P",
            "-m",
            module,
            *arguments,
        ],
        cwd=caller or checkout,
        env=variables,
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    missed = done.returncode == 1 and done.stdout
    if done.returncode != 0 and not missed:
        words = " ".join([module, *arguments])
        raise RunFailed(f"{checkout}: {words}: {done.stderr[-500:]}")
    return done.stdout


def row(what: str, which: str, samples: Samples) -> Result:
    """The later checkout's is compared with the earlier one's."""
    times_ms = samples[what, which]
    name = f"{what}, {which}"
    if which == "before":
        return Result(name, "ms", tuple(times_ms))
    ratio = median(times_ms) / median(samples[what, "before"])
    return Result(
        name,
        "ms",
        tuple(times_ms),
        f"median at most {MOST:g} times as before",
        ratio <= MOST,
        {"times": round(ratio, 3)},
    )
