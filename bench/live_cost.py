"""Processor time and memory of a live run's processes, sampled by a process of
its own.

``python -m bench.live_cost PID`` watches the testbed whose process is PID: two
seconds later it takes the processor time of each kind of its processes, in
pieces, then the agents' memory, and prints both as JSON. Being a process of its
own, it adds nothing to what it reports.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from testbed import events

KINDS = (
    "testbed",
    "switches",
    "switch databases",
    "controller",
    "agents",
    "fork server",
)
BUSIEST = "busiest switch"
MACHINE = "whole machine"
AFTER_S = 2.0
PIECE_S = 2.0
PROC = Path("/proc")


@dataclass(frozen=True)
class Cost:
    """Processors and memory of a live run while all its jobs ran.

    ``cores``: by kind of process, the share of one processor in each piece of
    the time; of the switches together, and of the busiest of them.
    ``agents_pss_bytes``: each agent's proportional set size. ``jobs_ended``:
    jobs that were over before the last piece was.
    """

    cores: dict[str, list[float]] = field(default_factory=dict)
    processes: dict[str, int] = field(default_factory=dict)
    agents_pss_bytes: list[int] = field(default_factory=list)
    jobs_ended: int = 0


class CostSampler:
    """Event sink that starts sampling this process's run once ``n_jobs`` jobs
    run.

    ``pieces``: samples of :data:`PIECE_S` before the first job is to end.
    """

    def __init__(self, n_jobs: int, pieces: int) -> None:
        self._argv = [
            sys.executable,
            "-m",
            __name__,
            str(os.getpid()),
            str(pieces),
        ]
        self._waiting_for = n_jobs
        self._ended = 0
        self._process: subprocess.Popen[str] | None = None
        self.cost = Cost()

    def __enter__(self) -> CostSampler:
        return self

    def __exit__(
        self, failed: type[BaseException] | None, *_: object
    ) -> None:
        process = self._process
        if process is None:
            return
        if failed is not None:
            process.kill()
        printed, _unread = process.communicate()
        if failed is None and process.returncode == 0:
            self.cost = Cost(**json.loads(printed), jobs_ended=self._ended)

    def __call__(self, event: events.Event) -> None:
        match event:
            case events.JobStarted():
                self._waiting_for -= 1
                # From the last start on all jobs run at the same time.
                if self._waiting_for == 0:
                    self._process = subprocess.Popen(
                        self._argv, stdout=subprocess.PIPE, text=True
                    )
            case events.JobEnded() if (
                self._process is not None and self._process.poll() is None
            ):
                self._ended += 1
            case _:
                pass


def cpu_s(pid: int) -> float:
    """Processor time of all threads of a process that live, in s; 0 where it
    has ended.

    From the scheduler's nanoseconds: hundreds of agents would each round to
    ticks of 10 ms.
    """
    total_ns = 0
    with suppress(OSError):
        for thread in (PROC / str(pid) / "task").iterdir():
            with suppress(OSError):
                text = (thread / "schedstat").read_text(encoding="ascii")
                total_ns += int(text.split()[0])
    return total_ns / 1e9


def pss_bytes(pid: int) -> int:
    """Proportional set size: a page that n processes share counts an nth. 0
    where it has ended.
    """
    with suppress(OSError):
        text = (PROC / str(pid) / "smaps_rollup").read_text("ascii")
        for line in text.splitlines():
            if line.startswith("Pss:"):
                return int(line.split()[1]) << 10
    return 0


def named(name: str) -> list[int]:
    """Processes of a name."""
    processes = psutil.process_iter(["name"])
    return [
        process.pid for process in processes if process.info["name"] == name
    ]


def processes_of(testbed_pid: int) -> dict[str, list[int]]:
    """Kind -> the processes of a live run. Only one runs on a machine at a
    time.
    """
    pids_of: dict[str, list[int]] = {kind: [] for kind in KINDS}
    pids_of["testbed"] = [testbed_pid]
    pids_of["switches"] = named("ovs-vswitchd")
    pids_of["switch databases"] = named("ovsdb-server")
    for child in psutil.Process(testbed_pid).children():
        with suppress(psutil.Error):
            arguments = child.cmdline()
            if "controller.launch" in arguments:
                pids_of["controller"].append(child.pid)
            elif "jobs.live.forkserver" in arguments:
                pids_of["fork server"].append(child.pid)
                pids_of["agents"] += [
                    agent.pid for agent in child.children()
                ]
    return pids_of


def shares(
    pids: Iterable[int], before: dict[int, float], after: dict[int, float]
) -> list[float]:
    """Processor time between two samples of each process that was in both, in
    s.
    """
    used_s = []
    for pid in pids:
        if pid in before and pid in after:
            # It falls where a thread has ended between the two.
            used_s.append(max(0.0, after[pid] - before[pid]))
    return used_s


def main(testbed_pid: int, pieces: int) -> None:
    """Sample, and print a :class:`Cost` as JSON."""
    time.sleep(AFTER_S)
    of_kind = processes_of(testbed_pid)
    cost = {
        "cores": _sampled_cores(of_kind, pieces),
        "processes": {kind: len(pids) for kind, pids in of_kind.items()},
        # Last, as it takes the kernel a walk over each agent's pages.
        "agents_pss_bytes": _present_pss(of_kind["agents"]),
    }
    sys.stdout.write(json.dumps(cost) + "\n")


def _sampled_cores(
    of_kind: dict[str, list[int]], pieces: int
) -> dict[str, list[float]]:
    """Processors that each kind used in each piece of the time."""
    cores: dict[str, list[float]] = defaultdict(list)
    # The first call begins the interval of the next one.
    psutil.cpu_times_percent(interval=None)
    at = time.monotonic()
    before = _used_s(of_kind)
    for _ in range(pieces):
        time.sleep(PIECE_S)
        now = time.monotonic()
        after = _used_s(of_kind)
        for kind, pids in of_kind.items():
            used = shares(pids, before, after)
            cores[kind].append(sum(used) / (now - at))
            # One daemon is one thread: it is full where the busiest is.
            if kind == "switches":
                cores[BUSIEST].append(max(used, default=0.0) / (now - at))
        idle = psutil.cpu_times_percent(interval=None).idle
        cores[MACHINE].append((1 - idle / 100) * (os.cpu_count() or 1))
        at = now
        before = after
    return cores


def _used_s(of_kind: dict[str, list[int]]) -> dict[int, float]:
    """Processor time so far of each process."""
    used_s = {}
    for pids in of_kind.values():
        for pid in pids:
            used_s[pid] = cpu_s(pid)
    return used_s


def _present_pss(pids: Iterable[int]) -> list[int]:
    """Proportional set sizes of the processes that have not ended."""
    sizes = []
    for pid in pids:
        if size := pss_bytes(pid):
            sizes.append(size)
    return sizes


if __name__ == "__main__":
    main(*map(int, sys.argv[1:]))
