"""Measured over estimated time of a shuffle: each VM of a job sends to each
other, to one after another or to all at once.

Jobs of 3 to 6 VMs with 5 to 40 Mbit/s, one after another, on servers below four
racks. Drops are those of the receivers' caps, where several senders meet.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import product

from bench.live_network import class_count, network, play, spread
from bench.samples import Result
from jobs.request import TRANSFER, JobRequest
from testbed.backends.emu.emulation import Emulation
from testbed.plan.agent_plans import agent_plans, sending
from testbed.plan.limits import VM_MINOR
from testbed.spec.experiment import Scale
from topologies.tree import tree

VMS_AND_MBPS = ((3, 5), (6, 10), (4, 20), (6, 40))
ORDERS = {"in turn": False, "at once": True}
DURATION_S = 4.0
WITHIN = 0.01
REPEATS = 10
SCALE = Scale()


def run(quick: bool) -> list[Result]:
    """All sizes in turn, as often as asked; the worst is what a person sees
    once.
    """
    cases = list(product(VMS_AND_MBPS, ORDERS))
    ratios: dict[object, list[float]] = {case: [] for case in cases}
    drops = dict.fromkeys(cases, 0)
    number = 0
    with network(tree([4, 2], [1_000_000_000] * 2, 1)) as emulation:
        for _ in range(3 if quick else REPEATS):
            for (vms, mbps), order in cases:
                number += 1
                ratio, dropped = _shuffle(
                    emulation, number, vms, mbps, at_once=ORDERS[order]
                )
                ratios[(vms, mbps), order].append(ratio)
                drops[(vms, mbps), order] += dropped
    results = []
    for (vms, mbps), order in cases:
        measured = ratios[(vms, mbps), order]
        results.append(
            Result(
                f"{vms} VMs, {mbps} Mbit/s each, {order}",
                "ratio",
                samples=tuple(measured),
                target="every one within 1 % of 1",
                meets=all(abs(ratio - 1) <= WITHIN for ratio in measured),
                extra={"drops": drops[(vms, mbps), order]},
            )
        )
    return results


def _shuffle(
    emulation: Emulation,
    number: int,
    vms: int,
    mbps: int,
    *,
    at_once: bool,
) -> tuple[float, int]:
    """Measured over estimated time, and packets that receivers' caps dropped."""
    rate_bps = mbps * 1_000_000
    demand = replace(TRANSFER, pattern="all-to-all", at_once=at_once)
    job = JobRequest(
        id=f"shuffle{number}",
        submit_s=0.0,
        n_vms=vms,
        bandwidth_bps=rate_bps,
        duration_s=DURATION_S,
        demand=demand,
    )
    tenant = spread(emulation, number, rate_bps, vms)
    tenant = sending(tenant, job, SCALE, rate_bps)
    plans = agent_plans(
        job=job,
        tenant=tenant,
        scale=SCALE,
        seed=number,
        granted_bps=rate_bps,
    )
    emulation.admit(tenant)
    measured_s, _ = play(emulation, tenant, plans, 60.0)
    # Several senders meet at a receiver's cap, which is the switch's port
    # towards it; a sender's own queue only holds its TCP back.
    drops = 0
    for vm in tenant.vms:
        drops += class_count(vm.slot.port.name, VM_MINOR).drops
    emulation.dismiss(tenant)
    return measured_s / DURATION_S, drops
