"""A 32-VM tenant in (flows confirmed by barrier on all switches, limits
applied), and re-rated.
"""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from bench.live_network import network
from bench.samples import Result
from testbed.backends.emu.emulation import Emulation
from testbed.embedding.placement import Placement
from testbed.plan.network_plan import TenantPlan, tenant_plan
from topologies.fat_tree import fat_tree

VMS = 32
RATE_BPS = 20_000_000
IN_TARGET_S = 0.060
RERATE_TARGET_S = 0.010


def run(quick: bool) -> list[Result]:
    """A tenant on every slot of a fat-tree k=4 (36 bridges), again and again."""
    repeats = 25
    if quick:
        repeats = 5
    times = Times()
    with network(fat_tree(4, 1_000_000_000, 2)) as emulation:
        for i in range(repeats):
            _in_and_out(emulation, _tenant(emulation, i), times)
    return [
        _row(f"{VMS}-VM tenant in", times.in_s, IN_TARGET_S),
        _row(f"{VMS}-VM tenant re-rated", times.rerated_s, RERATE_TARGET_S),
        Result(
            f"{VMS}-VM tenant out",
            "ms",
            tuple(1e3 * s for s in times.out_s),
        ),
    ]


@dataclass
class Times:
    """Times of all tenants, in s."""

    in_s: list[float] = field(default_factory=list)
    rerated_s: list[float] = field(default_factory=list)
    out_s: list[float] = field(default_factory=list)


def _tenant(emulation: Emulation, number: int) -> TenantPlan:
    """Two VMs on each of the 16 servers."""
    servers = range(emulation.datacentre.n_servers)
    vms_on = tuple((server, 2) for server in servers)
    root = emulation.datacentre.trees[0].root
    return tenant_plan(
        datacentre=emulation.datacentre,
        network=emulation.plan,
        placement=Placement(root, vms_on),
        slots=emulation.plan.slots,
        tenant_id=number + 1,
        job_id=f"t{number}",
        rate_bps=RATE_BPS,
    )


def _in_and_out(
    emulation: Emulation, tenant: TenantPlan, times: Times
) -> None:
    start = time.perf_counter()
    emulation.admit(tenant)
    times.in_s.append(time.perf_counter() - start)
    # Down and up again: the next tenant begins alike.
    for rate_bps in (RATE_BPS // 2, RATE_BPS):
        start = time.perf_counter()
        tenant = emulation.rerate(tenant, rate_bps)
        times.rerated_s.append(time.perf_counter() - start)
    start = time.perf_counter()
    emulation.dismiss(tenant)
    times.out_s.append(time.perf_counter() - start)


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
