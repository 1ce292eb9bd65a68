"""Time of a job's start, of a program's job by sudo, of a tenant's admission and
of ``testbed exec``, in this checkout and in an earlier one.

The checkouts take turns, so that other work of the machine disturbs both alike.
Made for the namespaces, users, filters and limits of VMs: ``--before`` is a
checkout of the commit before them. Each checkout has a ``.venv``, or a link to
one. Needs root.
"""

from __future__ import annotations

import argparse
import csv
import json
import os
import subprocess
import time
from collections import defaultdict
from itertools import product
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory

from bench.progress import Progress, Step
from bench.samples import Result
from testbed.errors import RunFailed

CHECKOUT = Path(__file__).resolve().parents[1]
ROUNDS = 3
TURNS = 3
"""Runs of a benchmark in a round: the median of the five samples of one run
still moves by a third from one run to the next."""
EXECS = 15
MOST = 1.2
"""The most that it may take, as a multiple of the time before."""
TIMEOUT_S = 600.0
EXPECTED_S = 60.0
NETWORK = """\
name: hardening-cost
topology: {kind: tree, fanout: [2], links: 100 Mbit/s, slots_per_server: 2}
policies: [vc]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""
VMS = 8
JOBS = 12
EVERY_S = 1
CALLER = 54_321
"""User id of the one who called sudo; the experiment is in a folder of that
user's."""
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
"""(One of WHAT, ``before`` or ``now``) -> times in ms."""


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
    """A row for each of WHAT and each checkout, in ms."""
    rounds = args.rounds
    if quick:
        rounds = 1
    checkouts = {"before": args.before.resolve(), "now": CHECKOUT}
    turns = list(product(range(1, rounds + 1), checkouts))
    steps = []
    for number, which in turns:
        steps.append(Step(f"{which}, round {number}", EXPECTED_S))
    progress = Progress(steps)
    samples: Samples = defaultdict(list)
    for _, which in turns:
        with progress.step():
            medians(checkouts[which], which, samples)
    rows = []
    for what, which in product(WHAT, checkouts):
        rows.append(row(what, which, samples))
    return rows


def medians(checkout: Path, which: str, samples: Samples) -> None:
    """Adds a checkout's samples of one round: medians of two benchmarks, times
    of ``exec`` and of jobs of a program.
    """
    for what, benchmark in (
        ("job start", "job-start"),
        ("32-VM tenant in", "tenant-in"),
    ):
        for _ in range(TURNS):
            output = command(
                checkout, "bench", benchmark, "--quick", "--json"
            )
            (first, *_) = json.loads(output)["rows"]
            samples[what, which].append(first["median"])
    samples["exec", which] += exec_ms(checkout)
    samples["program's job by sudo", which] += program_ms(checkout)


def program_ms(checkout: Path) -> list[float]:
    """Times from submission to end of jobs whose program does nothing.

    A job is rejected while the one before still has all slots; such jobs are
    left out.
    """
    # Not in /tmp: VMs have one of their own.
    with TemporaryDirectory(dir="/var/lib") as name:
        folder = Path(name)
        file = folder / "programs.yaml"
        file.write_text(_programs())
        # Both belong to the caller, as those of one who called sudo.
        for path in (folder, file):
            os.chown(path, CALLER, CALLER)
        words = ("run", str(file), "--force")
        command(checkout, "testbed.cli.main", *words, caller=folder)
        (table,) = folder.glob("runs/*/jobs.csv")
        return _finished_ms(table)


def _programs() -> str:
    """The experiment: jobs one after another, each on all slots."""
    text = PROGRAMS
    for number in range(JOBS):
        at_s = number * EVERY_S
        text += PROGRAM.format(number=number, at_s=at_s, vms=VMS)
    return text


def _finished_ms(table: Path) -> list[float]:
    times_ms = []
    with table.open(newline="") as rows:
        for row in csv.DictReader(rows):
            if row["outcome"] == "finished":
                took_s = float(row["end_s"]) - float(row["submit_s"])
                times_ms.append(1e3 * took_s)
    return times_ms


def exec_ms(checkout: Path) -> list[float]:
    """Times of a program that does nothing, in a VM of a network that is up."""
    times_ms = []
    verbs = "testbed.cli.main"
    tenant = ("a", "--vms", "2", "--bandwidth", "10 Mbit/s")
    program = ("a.0", "--", "true")
    with TemporaryDirectory() as folder:
        file = Path(folder, "network.yaml")
        file.write_text(NETWORK)
        command(checkout, verbs, "up", str(file))
        try:
            command(checkout, verbs, "tenant", "add", *tenant)
            for _ in range(EXECS):
                began = time.perf_counter()
                command(checkout, verbs, "exec", *program)
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
    """Output of a checkout's module, run in its folder or, as by sudo, in that of
    a caller. Raises RunFailed.

    A benchmark whose target is missed is no failure here, nor is a run whose
    results are outside their bands.
    """
    variables = {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "PYTHONPATH": str(checkout),
    }
    if caller is not None:
        variables["SUDO_UID"] = str(CALLER)
        variables["SUDO_GID"] = str(CALLER)
    python = str(checkout / ".venv/bin/python")
    words = " ".join([module, *arguments])
    try:
        done = subprocess.run(
            [python, "-P", "-m", module, *arguments],
            cwd=caller or checkout,
            env=variables,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=TIMEOUT_S,
            check=False,
        )
    except (OSError, subprocess.SubprocessError) as error:
        raise RunFailed(f"{checkout}: {words}: {error}") from error
    # An error may have exit code 1 too, but prints nothing on standard output.
    missed = done.returncode == 1 and done.stdout
    if done.returncode != 0 and not missed:
        raise RunFailed(f"{checkout}: {words}: {done.stderr[-500:]}")
    return done.stdout


def row(what: str, which: str, samples: Samples) -> Result:
    """The row of a checkout's samples; ``now`` is compared with ``before``."""
    times_ms = samples[what, which]
    name = f"{what}, {which}"
    if which == "before":
        return Result(name, "ms", tuple(times_ms))
    ratio = median(times_ms) / median(samples[what, "before"])
    return Result(
        name,
        "ms",
        samples=tuple(times_ms),
        target=f"median at most {MOST:g} times as before",
        meets=ratio <= MOST,
        extra={"times": round(ratio, 3)},
    )
