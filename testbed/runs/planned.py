"""What a run would install, as text: from a dry run and the pure plan. No root, no effects."""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from testbed import events
from testbed.embedding.placement import Placement
from testbed.plan.berths import berths
from testbed.plan.network import (
    NetworkPlan,
    Slot,
    TenantPlan,
    check_reachable,
    network_plan,
    scaled_bps,
    tenant_plan,
)
from testbed.plan.text import network_text, tenant_text
from testbed.runs.play import dry_run
from testbed.spec.experiment import Experiment, PolicySpec


@dataclass(frozen=True)
class PlannedTenant:
    """One job's tenant: a line about it, and the text that is installed for it."""

    job_id: str
    summary: str
    text: str


@dataclass(frozen=True)
class Planned:
    """Everything one policy would install, in order."""

    policy: str
    network_text: str
    tenants: tuple[PlannedTenant, ...]
    refused: tuple[tuple[str, str], ...]

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def planned(experiment: Experiment, policy: PolicySpec) -> Planned:
    """Dry-run a policy and write down flows and tc text of every tenant. Raises BadInput."""
    check_reachable(experiment.datacentre, experiment.jobs)
    history = dry_run(experiment, policy)
    room = berths([history], [int(count) for count in experiment.datacentre.slots])
    network = network_plan(experiment.datacentre, "hn", experiment.scale.rate, room)
    free = {server: list(slots) for server, slots in network.slots_of_server.items()}
    taken: dict[str, TenantPlan] = {}
    tenants: list[PlannedTenant] = []
    refused: list[tuple[str, str]] = []
    for event in history:
        match event:
            case events.JobReserved():
                number = len(tenants) + 1
                tenant = _tenant(experiment, network, free, event, number)
                taken[event.job_id] = tenant
                tenants.append(_shown(network, tenant, event))
            case events.JobEnded(job_id=job_id, outcome="rejected", reason=reason):
                refused.append((job_id, reason))
            case events.JobEnded(job_id=job_id) if job_id in taken:
                for vm in taken.pop(job_id).vms:
                    free[vm.slot.server].append(vm.slot)
                    free[vm.slot.server].sort(key=lambda slot: slot.index)
            case _:
                pass
    return Planned(policy.label, network_text(network), tuple(tenants), tuple(refused))


def _tenant(
    experiment: Experiment,
    network: NetworkPlan,
    free: dict[int, list[Slot]],
    event: events.JobReserved,
    tenant_id: int,
) -> TenantPlan:
    placement = Placement(event.root, tuple((s, n) for s, n in event.vms_on))
    slots = tuple(free[server].pop(0) for server, count in placement.vms_on for _ in range(count))
    rate_bps = scaled_bps(event.rate_bps, experiment.scale.rate)
    return tenant_plan(
        experiment.datacentre, network, placement, slots, tenant_id, event.job_id, rate_bps
    )


def _shown(network: NetworkPlan, tenant: TenantPlan, event: events.JobReserved) -> PlannedTenant:
    where = ", ".join(vm.slot.netns for vm in tenant.vms)
    summary = (
        f"{event.job_id} at {event.start_s:.1f} s as tenant {tenant.tenant_id}, {tenant.prefix}, "
        f"{tenant.rate_bps / 1e6:g} Mbit/s on the wire, in {where}"
    )
    return PlannedTenant(event.job_id, summary, tenant_text(network, tenant))
