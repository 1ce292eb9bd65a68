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
from pathlib import Path

import psutil

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
    return one_by_one(25 if quick else JOBS)


def one_by_one(
    n_jobs: int,
    every_s: float = 0.0,
    say: Callable[[int], None] = lambda _: None,
) -> list[Result]:
    """Jobs over 4 racks of 2 servers, a VM on each; ``every_s`` from one's
    start to the next's.

    ``say`` receives the number of ended jobs.
    """
    started, ended = [], []
    with network(tree([4, 2], [1_000_000_000] * 2, 1)) as emulation:
        backend = LiveBackend(emulation, Scale(), 1, lambda _: None)
        backend.begin()
        placement = Placement(
            emulation.datacentre.trees[0].root,
            tuple((server, 1) for server in range(VMS)),
        )
        before: dict[str, float] = {}
        for k in range(n_jobs):
            backend.wait(k * every_s)
            job = JobRequest(
                id=f"j{k}",
                submit_s=0.0,
                n_vms=VMS,
                bandwidth_bps=RATE_BPS,
                duration_s=0.1,
            )
            backend.start(job, placement, RATE_BPS, "foreground")
            (done,) = backend.wait(None)
            if done.outcome != "finished":
                raise SystemExit(f"job {k}: {done.reason}")
            started.append(float((done.detail or {})["start_s_raw"]))
            ended.append(backend.now_s() - done.at_s)
            if k == WARM - 1:
                before = _counted(emulation)
            say(k + 1)
        after = _counted(emulation)
    grown = {
        key: f"{before[key]:.6g} -> {after[key]:.6g}" for key in before
    }
    flat = all(
        after[key] <= before[key] * (1 + GROWTH_TARGET) for key in before
    )
    median_s = sorted(started)[len(started) // 2]
    return [
        Result(
            f"{VMS}-VM job, placed to first byte",
            "ms",
            samples=tuple(1e3 * s for s in started),
            target=f"median at most {1e3 * TARGET_S:g} ms",
            meets=median_s <= TARGET_S,
        ),
        Result(
            f"{VMS}-VM job, last byte to all removed",
            "ms",
            tuple(1e3 * s for s in ended),
        ),
        Result(
            f"growth from job {WARM} to job {n_jobs}",
            "%",
            samples=tuple(
                100 * (after[key] / before[key] - 1) if before[key] else 0.0
                for key in before
            ),
            target=f"at most {GROWTH_TARGET:.0%} each",
            meets=flat,
            extra=grown,
        ),
    ]


def _counted(emulation: Emulation) -> dict[str, float]:
    """Numbers and sizes of everything that a job makes."""
    testbed = psutil.Process()
    switch = [
        p
        for p in psutil.process_iter(["name"])
        if p.info["name"] == "ovs-vswitchd"
    ]
    mark = f"**/hosenet/{emulation.cgroup.paths[0].name}/**/"
    return {
        "testbed_mib": testbed.memory_info().rss / 2**20,
        "testbed_files": testbed.num_fds(),
        "agents_server_mib": psutil.Process(emulation.agents.pid)
        .memory_info()
        .rss
        / 2**20,
        "controller_mib": psutil.Process(emulation.controller.process.pid)
        .memory_info()
        .rss
        / 2**20,
        "switch_mib": switch[0].memory_info().rss / 2**20
        if switch
        else 0.0,
        "processes": len(testbed.children(recursive=True)),
        "cgroups": sum(1 for path in Path("/sys/fs/cgroup").glob(mark)),
        "namespaces": sum(1 for _ in Path("/run/netns").iterdir()),
        "tc_classes": sum(
            _lines("tc", "class", "show", "dev", dev)
            for dev in _devices(emulation)
        ),
        "flows": sum(
            _lines("ovs-ofctl", "-O", "OpenFlow13", "dump-flows", b.name)
            for b in emulation.plan.bridges
        ),
    }


def _devices(emulation: Emulation) -> list[str]:
    return [
        port.name
        for link in emulation.plan.links
        for port in (link.lower, link.upper)
    ]


def _lines(*argv: str) -> int:
    done = subprocess.run(
        argv, capture_output=True, text=True, timeout=20, check=True
    )
    return len(done.stdout.splitlines())
