"""A live job of 8 VMs from its placement to its first byte, and 200 of them in
a row.

Placement decided, limits and addresses and confirmed flows in, agents forked
into their namespaces and control groups, connected, started, first byte at a
receiver. Beside it what the machine has more of after the last job than after
the tenth: memory of our processes and of the switch, open files, control
groups, tc classes, flows.
"""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from bench.live_cost import named
from bench.live_network import network
from bench.samples import Result
from jobs.request import JobRequest
from testbed.backends.emu.emulation import Emulation
from testbed.backends.emu.live_backend import LiveBackend
from testbed.embedding.placement import Placement
from testbed.spec.experiment import Scale
from topologies.tree import tree

VMS = 8
JOBS = 200
WARM = 10
RATE_BPS = 50_000_000
TARGET_S = 0.150
GROWTH_TARGET = 0.05


def run(quick: bool) -> list[Result]:
    """Jobs one right after another."""
    if quick:
        return one_by_one(25)
    return one_by_one(JOBS)


@dataclass
class Series:
    """All jobs: times from their placement to the first byte, and from the last
    byte to the end, in s; counts after the tenth and after the last job.
    """

    started_s: list[float] = field(default_factory=list)
    ended_s: list[float] = field(default_factory=list)
    before: dict[str, float] = field(default_factory=dict)
    after: dict[str, float] = field(default_factory=dict)


def one_by_one(
    n_jobs: int,
    every_s: float = 0.0,
    say: Callable[[int], None] = lambda _: None,
) -> list[Result]:
    """Jobs over 4 racks of 2 servers, a VM on each; ``every_s`` from one's
    start to the next's.

    ``say`` receives the number of ended jobs.
    """
    series = Series()
    with network(tree([4, 2], [1_000_000_000] * 2, 1)) as emulation:
        backend = LiveBackend(emulation, Scale(), 1, lambda _: None)
        backend.begin()
        placement = Placement(
            emulation.datacentre.trees[0].root,
            tuple((server, 1) for server in range(VMS)),
        )
        for k in range(n_jobs):
            backend.wait(k * every_s)
            _play_job(backend, placement, k, series)
            # The first jobs load and make what all others use.
            if k == WARM - 1:
                series.before = _counted(emulation)
            say(k + 1)
        series.after = _counted(emulation)
    return _rows(series)


def _play_job(
    backend: LiveBackend, placement: Placement, number: int, series: Series
) -> None:
    job = JobRequest(
        id=f"j{number}",
        submit_s=0.0,
        n_vms=VMS,
        bandwidth_bps=RATE_BPS,
        duration_s=0.1,
    )
    backend.start(job, placement, RATE_BPS, "foreground")
    (done,) = backend.wait(None)
    if done.outcome != "finished":
        raise SystemExit(f"job {number}: {done.reason}")
    detail = done.detail or {}
    series.started_s.append(float(detail["start_s_raw"]))
    series.ended_s.append(backend.now_s() - done.at_s)


def _rows(series: Series) -> list[Result]:
    n_jobs = len(series.started_s)
    # A sample, also of an even number of jobs.
    median_s = sorted(series.started_s)[n_jobs // 2]
    return [
        Result(
            f"{VMS}-VM job, placed to first byte",
            "ms",
            samples=tuple(1e3 * s for s in series.started_s),
            target=f"median at most {1e3 * TARGET_S:g} ms",
            meets=median_s <= TARGET_S,
        ),
        Result(
            f"{VMS}-VM job, last byte to all removed",
            "ms",
            tuple(1e3 * s for s in series.ended_s),
        ),
        _growth(series),
    ]


def _growth(series: Series) -> Result:
    """Growth of all that is counted, from the tenth job to the last."""
    flat = True
    grown_percent = []
    extra = {}
    for key, before in series.before.items():
        after = series.after[key]
        if after > before * (1 + GROWTH_TARGET):
            flat = False
        percent = 0.0
        if before:
            percent = 100 * (after / before - 1)
        grown_percent.append(percent)
        extra[key] = f"{before:.6g} -> {after:.6g}"
    return Result(
        f"growth from job {WARM} to job {len(series.started_s)}",
        "%",
        samples=tuple(grown_percent),
        target=f"at most {GROWTH_TARGET:.0%} each",
        meets=flat,
        extra=extra,
    )


def _counted(emulation: Emulation) -> dict[str, float]:
    """Numbers and sizes of everything that a job makes."""
    testbed = psutil.Process()
    switch_mib = 0.0
    if switches := named("ovs-vswitchd"):
        switch_mib = _resident_mib(switches[0])
    groups = f"**/hosenet/{emulation.cgroup.paths[0].name}/**/"
    return {
        "testbed_mib": _resident_mib(testbed.pid),
        "testbed_files": testbed.num_fds(),
        "agents_server_mib": _resident_mib(emulation.agents.pid),
        "controller_mib": _resident_mib(emulation.controller.process.pid),
        "switch_mib": switch_mib,
        "processes": len(testbed.children(recursive=True)),
        "cgroups": len(list(Path("/sys/fs/cgroup").glob(groups))),
        "namespaces": len(list(Path("/run/netns").iterdir())),
        "tc_classes": _tc_classes(emulation),
        "flows": _flows(emulation),
    }


def _resident_mib(pid: int) -> float:
    return psutil.Process(pid).memory_info().rss / 2**20


def _tc_classes(emulation: Emulation) -> int:
    """Classes of all ports between switches."""
    count = 0
    for link in emulation.plan.links:
        for port in (link.lower, link.upper):
            count += _lines("tc", "class", "show", "dev", port.name)
    return count


def _flows(emulation: Emulation) -> int:
    dump = ("ovs-ofctl", "-O", "OpenFlow13", "dump-flows")
    count = 0
    for bridge in emulation.plan.bridges:
        count += _lines(*dump, bridge.name)
    return count


def _lines(*argv: str) -> int:
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=20, check=True
    )
    return len(done.stdout.splitlines())
