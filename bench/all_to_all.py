"""Measured over estimated time of a shuffle: each VM of a job sends to each
other, one by one.

Jobs of 3 to 6 VMs with 5 to 40 Mbit/s, one after another, on servers below four
racks.
"""

from __future__ import annotations

from dataclasses import replace

from bench.live_network import network
from bench.samples import Result
from jobs.request import TRANSFER, JobRequest
from testbed.backends.emu.live_backend import LiveBackend
from testbed.embedding.placement import Placement
from testbed.errors import RunFailed
from testbed.spec.experiment import Scale
from topologies.tree import tree

VMS_AND_MBPS = ((3, 5), (6, 10), (4, 20), (6, 40))
DURATION_S = 4.0
WITHIN = 0.01
REPEATS = 10


def run(quick: bool) -> list[Result]:
    """All sizes in turn, as often as asked; the worst is what a person sees
    once.
    """
    demand = replace(TRANSFER, pattern="all-to-all")
    ratios: dict[tuple[int, int], list[float]] = {
        size: [] for size in VMS_AND_MBPS
    }
    again = dict.fromkeys(VMS_AND_MBPS, 0)
    with network(tree([4, 2], [1_000_000_000] * 2, 1)) as emulation:
        backend = LiveBackend(emulation, Scale(), 1, lambda _: None)
        backend.begin()
        root = emulation.datacentre.trees[0].root
        for repeat in range(3 if quick else REPEATS):
            for vms, mbps in VMS_AND_MBPS:
                name, rate_bps = f"j{repeat}-{vms}-{mbps}", mbps * 1_000_000
                job = JobRequest(
                    name, 0.0, vms, rate_bps, DURATION_S, demand=demand
                )
                placement = Placement(
                    root, tuple((server, 1) for server in range(vms))
                )
                backend.start(job, placement, rate_bps, "foreground")
                (done,) = backend.wait(None)
                if done.outcome != "finished" or done.measured_s is None:
                    raise RunFailed(f"{name}: {done.reason}")
                ratios[vms, mbps].append(done.measured_s / DURATION_S)
                again[vms, mbps] += (done.detail or {})["retransmits"]
    return [
        Result(
            f"{vms} VMs, {mbps} Mbit/s each",
            "ratio",
            tuple(each),
            "every one within 1 % of 1",
            all(abs(ratio - 1) <= WITHIN for ratio in each),
            {"retransmits": again[vms, mbps]},
        )
        for (vms, mbps), each in ratios.items()
    ]
