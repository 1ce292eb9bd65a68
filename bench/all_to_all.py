"""Measured over estimated time of a shuffle: each VM of a job sends to each
other, to one after another or to all at once.

Jobs of 3 to 6 VMs with 5 to 40 Mbit/s, one after another, on servers below four
racks. Drops are those of the receivers' caps, where several senders meet.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from itertools import product

from bench.live_network import class_count, network, play, spread
from bench.samples import Result
from jobs.request import TRANSFER, JobRequest
from testbed.backends.emu.emulation import Emulation
from testbed.plan.agent_plans import agent_plans, with_volume
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
    """Rows of all cases. The worst ratio counts: it is what a user sees once."""
    repeats = REPEATS
    if quick:
        repeats = 3
    cases = []
    for (vms, mbps), order in product(VMS_AND_MBPS, ORDERS):
        cases.append(Case(vms, mbps, order))
    number = 0
    with network(tree([4, 2], [1_000_000_000] * 2, 1)) as emulation:
        # All cases in turn: what disturbs for a while disturbs each.
        for _ in range(repeats):
            for case in cases:
                number += 1
                _shuffle(emulation, number, case)
    return [_row(case) for case in cases]


@dataclass
class Case:
    """A job's size and order, and what came of its shuffles."""

    vms: int
    mbps: int
    order: str
    ratios: list[float] = field(default_factory=list)
    drops: int = 0


def _row(case: Case) -> Result:
    worst = max(abs(ratio - 1) for ratio in case.ratios)
    return Result(
        f"{case.vms} VMs, {case.mbps} Mbit/s each, {case.order}",
        "ratio",
        samples=tuple(case.ratios),
        target="every one within 1 % of 1",
        meets=worst <= WITHIN,
        extra={"drops": case.drops},
    )


def _shuffle(emulation: Emulation, number: int, case: Case) -> None:
    """Plays a shuffle of a case; adds its ratio, and the packets that
    receivers' caps dropped, to the case.
    """
    rate_bps = case.mbps * 1_000_000
    job = _job(number, case, rate_bps)
    tenant = spread(emulation, number, rate_bps, case.vms)
    tenant = with_volume(tenant, job, SCALE, rate_bps)
    plans = agent_plans(
        job=job,
        tenant=tenant,
        scale=SCALE,
        seed=number,
        granted_bps=rate_bps,
    )
    emulation.admit(tenant)
    measured_s, _ = play(emulation, tenant, plans, 60.0)
    case.ratios.append(measured_s / DURATION_S)
    # Several senders meet at a receiver's cap, which is the switch's port
    # towards it; a sender's own queue only holds its TCP back.
    for vm in tenant.vms:
        case.drops += class_count(vm.slot.port.name, VM_MINOR).drops
    emulation.dismiss(tenant)


def _job(number: int, case: Case, rate_bps: int) -> JobRequest:
    return JobRequest(
        id=f"shuffle{number}",
        submit_s=0.0,
        n_vms=case.vms,
        bandwidth_bps=rate_bps,
        duration_s=DURATION_S,
        demand=replace(
            TRANSFER, pattern="all-to-all", at_once=ORDERS[case.order]
        ),
    )
