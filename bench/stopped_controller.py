"""Time of verbs on a network whose controller is stopped by a signal (SIGSTOP),
alone and beside busy loops.

None of them needs the controller's answer to say that there is none. Needs
root.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import psutil

from bench.progress import Progress, Step
from bench.samples import Result
from jobs.python_child import python_command
from testbed.errors import RunFailed

NETWORK = """\
name: stopped-controller
topology: {kind: tree, fanout: [2], links: 100 Mbit/s, slots_per_server: 4}
policies: [vc]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""
TENANT = ("--vms", "2", "--bandwidth", "10 Mbit/s")
ROUNDS = 5
QUICK_ROUNDS = 1
LOOPS_PER_PROCESSOR = 4
BUSY = "while True: pass"
TARGET_S = 5.0
TIMEOUT_S = 120.0
EXPECTED_S = 15.0
# What each may say: done, or what could not be done.
VERBS: dict[str, tuple[tuple[str, ...], tuple[int, ...]]] = {
    "tenant add": (("tenant", "add", "b", *TENANT), (4,)),
    "status": (("status", "--json"), (0,)),
    "tenant list": (("tenant", "list"), (0,)),
    "exec": (("exec", "a.0", "--", "true"), (0,)),
    "verify": (("verify",), (0, 1)),
    "tenant remove": (("tenant", "remove", "a"), (4,)),
}


def run(quick: bool) -> list[Result]:
    """A row for each verb, alone and beside busy loops."""
    rounds = ROUNDS
    if quick:
        rounds = QUICK_ROUNDS
    loops = LOOPS_PER_PROCESSOR * (os.cpu_count() or 1)
    places = {"alone": 0, f"beside {loops} busy loops": loops}
    progress = Progress([Step(place, EXPECTED_S) for place in places])
    results = []
    for place, number in places.items():
        with progress.step():
            times_s = measured(rounds, number)
        for verb, samples in times_s.items():
            results.append(row(f"{verb}, {place}", samples))
    return results


def measured(rounds: int, loops: int) -> dict[str, list[float]]:
    """Seconds of each verb, in order. Raises RunFailed for a wrong answer."""
    times_s: dict[str, list[float]] = {verb: [] for verb in VERBS}
    with TemporaryDirectory() as folder, network(Path(folder)) as pid:
        for _ in range(rounds):
            answered(("tenant", "add", "a", *TENANT), (0,))
            with stopped(pid), busy(loops):
                for verb, (arguments, codes) in VERBS.items():
                    began_s = time.monotonic()
                    answered(arguments, codes)
                    times_s[verb].append(time.monotonic() - began_s)
            # The controller catches up, and the keeper with it.
            until_untroubled()
            # Removed already, if the verb was carried out afterwards.
            if "a" in tenants():
                answered(("tenant", "remove", "a"), (0,))
    return times_s


@contextmanager
def network(folder: Path) -> Iterator[int]:
    """One that is up, and its controller's process."""
    file = folder / "network.yaml"
    file.write_text(NETWORK)
    answered(("up", str(file)), (0,))
    try:
        yield _controller_pid()
    finally:
        answered(("down",), (0,))


def _controller_pid() -> int:
    """The controller's process, which is a child of the keeper's."""
    keeper = psutil.Process(int(status()["pid"]))
    for child in keeper.children():
        if "controller.launch" in child.cmdline():
            return child.pid
    raise RunFailed("the keeper has no controller")


@contextmanager
def stopped(pid: int) -> Iterator[None]:
    os.kill(pid, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(pid, signal.SIGCONT)


@contextmanager
def busy(number: int) -> Iterator[None]:
    with ExitStack() as stack:
        for _ in range(number):
            loop = subprocess.Popen([sys.executable, "-S", "-c", BUSY])
            stack.callback(loop.wait)
            stack.callback(loop.kill)
        yield


def answered(arguments: tuple[str, ...], codes: tuple[int, ...]) -> str:
    """Output of a verb. Raises RunFailed for another exit code than these."""
    done = subprocess.run(
        python_command("testbed.cli.main", *arguments),
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        timeout=TIMEOUT_S,
        check=False,
    )
    if done.returncode not in codes:
        words = " ".join(arguments)
        raise RunFailed(
            f"testbed {words}: exit code {done.returncode}: {done.stderr}"
        )
    return done.stdout


def status() -> dict[str, Any]:
    record: dict[str, Any] = json.loads(
        answered(("status", "--json"), (0,))
    )
    return record


def tenants() -> list[str]:
    return [tenant["name"] for tenant in status()["tenants"]]


def until_untroubled() -> None:
    """Waits until the controller has caught up."""
    until_s = time.monotonic() + TIMEOUT_S
    while status()["trouble"]:
        if time.monotonic() > until_s:
            raise RunFailed(f"trouble remains: {status()['trouble']}")
        time.sleep(0.1)


def row(name: str, times_s: list[float]) -> Result:
    return Result(
        name,
        "s",
        samples=tuple(times_s),
        target=f"each at most {TARGET_S:g} s",
        meets=max(times_s) <= TARGET_S,
    )
