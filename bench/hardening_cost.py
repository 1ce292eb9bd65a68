"""Time of a job's start, of a tenant's admission and of ``testbed exec``, in
this checkout and in an earlier one.

The checkouts take turns, so that what else the machine does is the same for
both. Made for the namespaces, users, filters and limits of VMs: ``--before`` is
a checkout of the commit before them, with an environment of its own or a link
to one. Needs root.
"""

from __future__ import annotations

import argparse
import json
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
EXECS = 15
MOST = 1.2
"""At most this times as long as before."""
TIMEOUT_S = 600.0
EXPECTED_S = 25.0
NETWORK = """\
name: hardening-cost
topology: {kind: tree, fanout: [2], links: 100 Mbit/s, slots_per_server: 2}
policies: [vc]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""
WHAT = ("job start", "32-VM tenant in", "exec")

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
        printed = command(checkout, "bench", benchmark, "--quick", "--json")
        samples[what, which].append(
            json.loads(printed)["rows"][0]["median"]
        )
    samples["exec", which] += exec_ms(checkout)


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


def command(checkout: Path, module: str, *arguments: str) -> str:
    """Output of a module of a checkout. Raises RunFailed.

    A benchmark whose target is missed is no failure here.
    """
    done = subprocess.run(
        [str(checkout / ".venv/bin/python"), "-m", module, *arguments],
        cwd=checkout,
        env={
            "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
            "PYTHONPATH": str(checkout),
        },
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    missed = module == "bench" and done.returncode == 1 and done.stdout
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
