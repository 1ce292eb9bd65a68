"""A network that stays up, with 50 tenants that come, go and are measured:
processor time and memory of the first quarter against the last.

A fat-tree of k = 4. In each round the oldest tenants go, new ones come, and a
tenant is measured. What is expected was fixed before: processor time and memory
of keeper, controller and switch in the last quarter are those of the first
within the bounds below, and the cleanup journal stays small and is written
anew. Times by the clock follow what else the machine does: they stand beside
its load, and not judged. Needs root.
"""

from __future__ import annotations

import argparse
import os
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from itertools import count, pairwise
from pathlib import Path
from random import Random
from statistics import fmean, median
from tempfile import TemporaryDirectory

import psutil

from bench.progress import Progress
from bench.samples import Result
from testbed.backends.emu.cleanup_journal import (
    COMPACT_AFTER,
    journal_paths,
)
from testbed.errors import RunFailed
from testbed.standing.keeper_protocol import ShowSwitches, ask
from testbed.standing.network_state import SwitchState
from testbed.standing.standing_network import StandingNetwork, up

MINUTES = 60.0
QUICK_MINUTES = 3.0
TENANTS = 50
VMS = 2
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
MOST_TIMES = 1.25
"""Processor time of a verb: at most this many times that of the first quarter."""
MOST_MIB: Mapping[str, float] = {
    "keeper": 8.0,
    "controller": 8.0,
    "switch": 16.0,
}
"""Growth of a process's memory, in MiB."""
JOURNAL_KIB = 256.0
"""Size of the journal, at any time."""
COMPACTED_BY_S = 3_600.0
"""A soak of this length or more sees the journal written anew: with 5 tenants
that go in a round of 6 s, 500 things are gone after 100 rounds.
"""

Samples = dict[str, list[tuple[float, float]]]
"""What was sampled -> (time since the start in s, value): ``add`` a verb's time
in ms, ``add processor`` processor time of one in ms, a mean over the round's;
``keeper`` MiB, ``journal`` KiB, ``journal file`` its inode, ``load`` processes
that run or want to.
"""


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
    minutes = args.minutes
    if quick:
        minutes = QUICK_MINUTES
    duration_s = 60 * minutes
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
        self._processes = testbed_processes(network)
        self._rng = rng
        self._names = (f"t{number}" for number in count())
        self._present: list[str] = []
        for _ in range(TENANTS):
            self._add()
        self._began = time.monotonic()

    def go_on(self, duration_s: float) -> None:
        """Plays rounds until the time is over; prints every half minute what is
        left.
        """
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
        # Removed first: there are never more tenants than at the beginning.
        self._timed("remove", self._remove, COME_AND_GO)
        self._timed("add", self._add, COME_AND_GO)
        self._timed("measure", self._measure, 1)
        for process, members in self._processes.items():
            self._sample(process, resident_mib(members))
        (journal,) = journal_paths()
        written = journal.stat()
        self._sample("journal", written.st_size / 1024)
        self._sample("journal file", written.st_ino)
        self._sample("load", os.getloadavg()[0])

    def _timed(
        self, verb: str, act: Callable[[], None], times: int
    ) -> None:
        """Carries out a verb some times; samples each time on the clock, and
        the mean processor time.
        """
        # The kernel tells processor time in ticks of 10 ms.
        before_s = processor_s(self._processes)
        for _ in range(times):
            began = time.monotonic()
            act()
            self._sample(verb, 1e3 * (time.monotonic() - began))
        used_s = processor_s(self._processes) - before_s
        self._sample(f"{verb} processor", 1e3 * used_s / times)

    def _sample(self, what: str, value: float) -> None:
        self.samples[what].append((self._passed_s(), value))

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
            self._sample("ratio", pair.ratio)


Processes = Mapping[str, Sequence[psutil.Process]]
"""``keeper``, ``controller`` and ``switch``, each with its processes."""


def testbed_processes(network: StandingNetwork) -> Processes:
    """Processes of the network. The soak ends where one of them has ended."""
    keeper = psutil.Process(network.pid)
    # The keeper's descendants: another network's controller is not counted.
    controllers = []
    for child in keeper.children(recursive=True):
        if "controller.launch" in " ".join(child.cmdline()):
            controllers.append(child)
    switches = []
    for switch in ask(ShowSwitches(), tuple[SwitchState, ...]):
        if switch.pid is not None:
            switches.append(psutil.Process(switch.pid))
    return {
        "keeper": [keeper],
        "controller": controllers,
        "switch": switches,
    }


def processor_s(processes: Processes) -> float:
    """Processor time that all of them have used since they began."""
    used_s = 0.0
    for members in processes.values():
        for process in members:
            times = process.cpu_times()
            used_s += times.user + times.system
    return used_s


def resident_mib(processes: Iterable[psutil.Process]) -> float:
    return sum(process.memory_info().rss for process in processes) / 2**20


def quarters(
    samples: Sequence[tuple[float, float]],
    duration_s: float,
    middle: Callable[[Sequence[float]], float] = median,
) -> tuple[float, float]:
    """The middle value of the first and of the last quarter of the time."""
    first = [value for at_s, value in samples if at_s < duration_s / 4]
    last = [value for at_s, value in samples if at_s >= duration_s * 3 / 4]
    if not first or not last:
        raise RunFailed(
            "a quarter of the soak had no round", "give it more --minutes"
        )
    return middle(first), middle(last)


def rows(samples: Samples, duration_s: float) -> list[Result]:
    """Every kind's quarters against its bound."""
    results = []
    for verb in VERBS:
        results += verb_rows(verb, samples, duration_s)
    for process, most_mib in MOST_MIB.items():
        first, last = quarters(samples[process], duration_s)
        flat = last - first <= most_mib
        target = f"last quarter at most {most_mib:g} MiB above the first"
        between = (first, last)
        results.append(
            row(
                what=process,
                unit="MiB",
                samples=samples,
                between=between,
                target=target,
                meets=flat,
            )
        )
    results += journal_rows(samples, duration_s)
    ratios = tuple(ratio for _, ratio in samples["ratio"])
    results.append(Result("measured over reserved", "ratio", ratios))
    return results


def verb_rows(
    verb: str, samples: Samples, duration_s: float
) -> list[Result]:
    """Processor time of a verb, judged, and its time beside the machine's load."""
    processor = f"{verb} processor"
    # A mean, as a median of few ticks is one of them.
    first, last = quarters(samples[processor], duration_s, fmean)
    flat = last <= MOST_TIMES * first
    target = f"last quarter at most {MOST_TIMES:g} times the first"
    judged = row(
        what=processor,
        unit="ms",
        samples=samples,
        between=(first, last),
        target=target,
        meets=flat,
    )

    between = quarters(samples[verb], duration_s)
    by_clock = row(
        what=verb,
        unit="ms",
        samples=samples,
        between=between,
        target="",
        meets=None,
    )
    load_first, load_last = quarters(samples["load"], duration_s)
    by_clock.extra["load_first_quarter"] = round(load_first, 2)
    by_clock.extra["load_last_quarter"] = round(load_last, 2)
    return [judged, by_clock]


def journal_rows(samples: Samples, duration_s: float) -> list[Result]:
    """The journal's size, and how often it was written anew."""
    most_kib = max(size for _, size in samples["journal"])
    size = row(
        what="journal",
        unit="KiB",
        samples=samples,
        between=quarters(samples["journal"], duration_s),
        target=f"at most {JOURNAL_KIB:g} KiB",
        meets=most_kib <= JOURNAL_KIB,
    )
    n_anew = _times_anew(samples["journal file"])
    meets = None
    if duration_s >= COMPACTED_BY_S:
        meets = n_anew >= 1
    anew = Result(
        "journal anew",
        "times",
        samples=(n_anew,),
        target=f"at least 1 in an hour (after {COMPACT_AFTER} things gone)",
        meets=meets,
    )
    return [size, anew]


def _times_anew(files: Sequence[tuple[float, float]]) -> int:
    """Times that the journal was written anew, which makes another file of it."""
    n_anew = 0
    for (_, before), (_, after) in pairwise(files):
        if after != before:
            n_anew += 1
    return n_anew


def row(
    what: str,
    unit: str,
    samples: Samples,
    between: tuple[float, float],
    target: str,
    meets: bool | None,
) -> Result:
    values = tuple(value for _, value in samples[what])
    first, last = between
    extra = {
        "first_quarter": round(first, 2),
        "last_quarter": round(last, 2),
    }
    return Result(
        what, unit, samples=values, target=target, meets=meets, extra=extra
    )
