"""A 32-VM tenant in (flows confirmed by barrier on all switches, limits
applied), and re-rated.
"""

from __future__ import annotations

import time

from bench.live_network import network
from bench.samples import Result
from testbed.embedding.placement import Placement
from testbed.plan.network_plan import tenant_plan
from topologies.fat_tree import fat_tree

VMS = 32
RATE_BPS = 20_000_000
IN_TARGET_S = 0.060
RERATE_TARGET_S = 0.010


def run(quick: bool) -> list[Result]:
    """A tenant on every slot of a fat-tree k=4 (36 bridges), again and again."""
    repeats = 5 if quick else 25
    taken_in, rerated, taken_out = [], [], []
    with network(fat_tree(4, 1_000_000_000, 2)) as emulation:
        slots = emulation.plan.slots
        placement = Placement(
            emulation.datacentre.trees[0].root,
            tuple(
                (server, 2)
                for server in range(emulation.datacentre.n_servers)
            ),
        )
        for i in range(repeats):
            tenant = tenant_plan(
                datacentre=emulation.datacentre,
                network=emulation.plan,
                placement=placement,
                slots=slots,
                tenant_id=i + 1,
                job_id=f"t{i}",
                rate_bps=RATE_BPS,
            )
            start = time.perf_counter()
            emulation.admit(tenant)
            taken_in.append(time.perf_counter() - start)
            for rate_bps in (RATE_BPS // 2, RATE_BPS):
                start = time.perf_counter()
                tenant = emulation.rerate(tenant, rate_bps)
                rerated.append(time.perf_counter() - start)
            start = time.perf_counter()
            emulation.dismiss(tenant)
            taken_out.append(time.perf_counter() - start)
    return [
        _row(f"{VMS}-VM tenant in", taken_in, IN_TARGET_S),
        _row(f"{VMS}-VM tenant re-rated", rerated, RERATE_TARGET_S),
        Result(
            f"{VMS}-VM tenant out", "ms", tuple(1e3 * s for s in taken_out)
        ),
    ]


def _row(name: str, samples_s: list[float], target_s: float) -> Result:
    median_s = sorted(samples_s)[len(samples_s) // 2]
    target = f"median under {1e3 * target_s:g} ms"
    return Result(
        name,
        "ms",
        samples=tuple(1e3 * s for s in samples_s),
        target=target,
        meets=median_s < target_s,
    )
