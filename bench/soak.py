"""A network that stays up, with 50 tenants that come, go and are measured: time
and memory of the first quarter against the last.

A fat-tree of k = 4. In each round the oldest tenants go, new ones come, and a
tenant is measured. What is expected was fixed before: times and memory of the
last quarter are those of the first within the bounds below, and the cleanup
journal stays small. Needs root.
"""

from __future__ import annotations

import argparse
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count
from pathlib import Path
from random import Random
from statistics import median
from tempfile import TemporaryDirectory

import psutil

from bench.progress import Progress
from bench.samples import Result
from testbed.backends.emu.cleanup_journal import journal_paths
from testbed.errors import RunFailed
from testbed.standing.keeper_protocol import ShowSwitches, ask
from testbed.standing.network_state import SwitchState
from testbed.standing.standing_network import StandingNetwork, up

MINUTES, QUICK_MINUTES = 60.0, 3.0
TENANTS, VMS = 50, 2
COME_AND_GO = 5
"""Tenants that go, and as many that come, in a round."""
MEASURED_S = 1
RATE = "4 Mbit/s"
NETWORK = """\
name: soak
topology: {kind: fat-tree, k: 4, links: 100 Mbit/s, slots_per_server: 8}
policies: [{name: fcfs, embedder: oktopus}]
workload: {kind: jobs, jobs: [{id: a, vms: 2, bandwidth: 1 Mbit/s, duration: 5 s}]}
"""

TELL_EVERY_S = 30.0
VERBS = ("add", "measure", "remove")
MOST_TIMES, LEAST_MS = 1.25, 5.0
"""A verb's median time: at most this many times as long, or this much longer."""
MOST_MIB: Mapping[str, float] = {
    "keeper": 8.0,
    "controller": 8.0,
    "switch": 16.0,
}
"""Growth of a process's memory, in MiB."""
JOURNAL_KIB = 256.0
"""Size of the journal, at any time."""

Samples = dict[str, list[tuple[float, float]]]
"""Verb, process or ``journal`` -> (time since the start in s, ms, MiB or KiB)."""


def add_options(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--minutes",
        type=float,
        default=MINUTES,
        metavar="N",
        help=f"how long tenants come and go (default {MINUTES:g})",
    )
    parser.add_argument("--seed", type=int, default=1, help="default 1")


def run(quick: bool, args: argparse.Namespace) -> list[Result]:
    """A row per verb and per process, and the journal's."""
    duration_s = 60 * (QUICK_MINUTES if quick else args.minutes)
    rng = Random(args.seed)  # noqa: S311 - no secret
    with TemporaryDirectory() as folder:
        file = Path(folder, "network.yaml")
        file.write_text(NETWORK)
        with up(file, prefix="hs") as network:
            soak = Soak(network, rng)
            soak.go_on(duration_s)
    return rows(soak.samples, duration_s)


class Soak:
    """A network's tenants, and the samples taken of them."""

    def __init__(self, network: StandingNetwork, rng: Random) -> None:
        self.samples: Samples = defaultdict(list)
        self._network = network
        self._rng = rng
        self._names = (f"t{number}" for number in count())
        self._present: list[str] = []
        for _ in range(TENANTS):
            self._add()
        self._began = time.monotonic()

    def go_on(self, duration_s: float) -> None:
        """Rounds until the time is over; says every half minute what is left."""
        noted_s = 0.0
        while self._passed_s() < duration_s:
            self._round()
            if self._passed_s() - noted_s > TELL_EVERY_S:
                noted_s = self._passed_s()
                minutes, seconds = divmod(round(duration_s - noted_s), 60)
                n_rounds = len(self.samples["measure"])
                Progress.say(
                    f"[{n_rounds} rounds, some {minutes}:{seconds:02} left]"
                )

    def _round(self) -> None:
        for _ in range(COME_AND_GO):
            self._timed("remove", self._remove)
            self._timed("add", self._add)
        self._timed("measure", self._measure)
        for what, size in sizes(self._network).items():
            self.samples[what].append((self._passed_s(), size))

    def _timed(self, verb: str, act: Callable[[], None]) -> None:
        began = time.monotonic()
        act()
        took_ms = 1e3 * (time.monotonic() - began)
        self.samples[verb].append((self._passed_s(), took_ms))

    def _passed_s(self) -> float:
        return time.monotonic() - self._began

    def _add(self) -> None:
        name = next(self._names)
        self._network.tenants.add(name, vms=VMS, bandwidth=RATE)
        self._present.append(name)

    def _remove(self) -> None:
        self._network.tenants.remove(self._present.pop(0))

    def _measure(self) -> None:
        name = self._rng.choice(self._present)
        for pair in self._network.measure(name, MEASURED_S):
            self.samples["ratio"].append((self._passed_s(), pair.ratio))


def sizes(network: StandingNetwork) -> dict[str, float]:
    """Memory of the processes in MiB, and the journal's size in KiB."""
    keeper = psutil.Process(network.pid)
    controllers = [
        child
        for child in keeper.children(recursive=True)
        if "controller.launch" in " ".join(child.cmdline())
    ]
    switches = [
        psutil.Process(switch.pid)
        for switch in ask(ShowSwitches(), tuple[SwitchState, ...])
        if switch.pid is not None
    ]
    (journal,) = journal_paths()
    return {
        "keeper": resident_mib([keeper]),
        "controller": resident_mib(controllers),
        "switch": resident_mib(switches),
        "journal": journal.stat().st_size / 1024,
    }


def resident_mib(processes: Iterable[psutil.Process]) -> float:
    return sum(process.memory_info().rss for process in processes) / 2**20


def quarters(
    samples: Sequence[tuple[float, float]], duration_s: float
) -> tuple[float, float]:
    """Medians of the first and of the last quarter of the time."""
    first = [value for at_s, value in samples if at_s < duration_s / 4]
    last = [value for at_s, value in samples if at_s >= duration_s * 3 / 4]
    if not first or not last:
        raise RunFailed(
            "a quarter of the soak had no round", "give it more --minutes"
        )
    return median(first), median(last)


def rows(samples: Samples, duration_s: float) -> list[Result]:
    """Every kind's quarters against its bound."""
    results = []
    for verb in VERBS:
        first, last = quarters(samples[verb], duration_s)
        flat = last <= max(MOST_TIMES * first, first + LEAST_MS)
        target = f"last quarter at most {MOST_TIMES:g} times the first"
        results.append(
            row(verb, "ms", samples, (first, last), target, flat)
        )
    for process, most_mib in MOST_MIB.items():
        first, last = quarters(samples[process], duration_s)
        flat = last - first <= most_mib
        target = f"last quarter at most {most_mib:g} MiB above the first"
        between = (first, last)
        results.append(row(process, "MiB", samples, between, target, flat))
    between = quarters(samples["journal"], duration_s)
    small = max(size for _, size in samples["journal"]) <= JOURNAL_KIB
    target = f"at most {JOURNAL_KIB:g} KiB"
    results.append(row("journal", "KiB", samples, between, target, small))
    ratios = tuple(ratio for _, ratio in samples["ratio"])
    results.append(Result("measured over reserved", "ratio", ratios))
    return results


def row(
    what: str,
    unit: str,
    samples: Samples,
    between: tuple[float, float],
    target: str,
    meets: bool,
) -> Result:
    values = tuple(value for _, value in samples[what])
    first, last = between
    extra = {
        "first_quarter": round(first, 2),
        "last_quarter": round(last, 2),
    }
    return Result(what, unit, values, target, meets, extra)
