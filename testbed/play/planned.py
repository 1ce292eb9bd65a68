"""Text that a run would install, from a dry run and the pure plan. No root, no
effects.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict, dataclass, field, replace
from operator import attrgetter
from typing import Any

from testbed import events
from testbed.embedding.placement import Placement
from testbed.plan.agent_plans import with_volume
from testbed.plan.installation import network_text, tenant_text
from testbed.plan.network_plan import (
    NetworkPlan,
    Slot,
    TenantPlan,
    check_reachable,
    enforced,
    network_plan,
    scaled_bps,
    tenant_plan,
)
from testbed.plan.peak_load import namespaces_per_server
from testbed.play.playing import dry_run
from testbed.spec.experiment import Experiment, PolicySpec


@dataclass(frozen=True)
class PlannedTenant:
    """One job's tenant: a line about it, and the text that is installed for it."""

    job_id: str
    summary: str
    text: str = field(repr=False)


@dataclass(frozen=True)
class Planned:
    """Everything one policy would install, in order. ``network_text`` None: it
    was left out.
    """

    policy: str
    network_text: str | None = field(repr=False)
    tenants: tuple[PlannedTenant, ...]
    refused: tuple[tuple[str, str], ...]

    def only(self, job_id: str | None, *, network: bool) -> Planned:
        """The part about one job (None: about all of them), with the network's
        own or without.
        """
        return replace(
            self,
            network_text=self.network_text if network else None,
            tenants=tuple(
                tenant
                for tenant in self.tenants
                if job_id in (None, tenant.job_id)
            ),
            refused=tuple(
                (refused_id, reason)
                for refused_id, reason in self.refused
                if job_id in (None, refused_id)
            ),
        )

    def __str__(self) -> str:
        """The texts one after another, each below a line that says whose it is."""
        head = f"### policy {self.policy}"
        parts: list[str] = []
        if self.network_text is not None:
            parts.append(f"{head}: the network\n{self.network_text}")
        for tenant in self.tenants:
            parts.append(f"{head}: {tenant.summary}\n{tenant.text}")
        for job_id, reason in self.refused:
            parts.append(f"{head}: {job_id} is rejected: {reason}\n")
        return "\n".join(parts)

    @property
    def n_characters(self) -> int:
        """Length of its texts."""
        texts = (
            self.network_text or "",
            *(tenant.text for tenant in self.tenants),
        )
        return sum(map(len, texts))

    def to_json(self) -> dict[str, Any]:
        return asdict(self)


def planned(experiment: Experiment, policy: PolicySpec) -> Planned:
    """Dry-run a policy and write down flows and tc text of every tenant. Raises
    BadInput.
    """
    check_reachable(experiment.datacentre, experiment.jobs)
    history = dry_run(experiment, policy)
    slots = list(map(int, experiment.datacentre.slots))
    network = network_plan(
        experiment.datacentre,
        scale_rate=experiment.scale.rate,
        namespaces_per_server=namespaces_per_server([history], slots),
        scale_time=experiment.scale.time,
    )
    plans = _Plans(experiment, network)
    for event in history:
        plans.follow(event)
    return Planned(
        policy=policy.label,
        network_text=network_text(network, experiment.controller),
        tenants=tuple(plans.tenants),
        refused=tuple(plans.refused),
    )


class _Plans:
    """Tenants as a dry run's events place them, in the VM slots that are free
    then.
    """

    def __init__(
        self, experiment: Experiment, network: NetworkPlan
    ) -> None:
        self._experiment = experiment
        self._network = network
        self._requests = {job.id: job for job in experiment.jobs}
        self._free: dict[int, list[Slot]] = {}
        for server, slots in network.slots_of_server.items():
            self._free[server] = list(slots)
        self._taken: dict[str, tuple[int, TenantPlan]] = {}
        self._booked: dict[str, events.JobReserved] = {}
        self.tenants: list[PlannedTenant] = []
        self.refused: list[tuple[str, str]] = []

    def follow(self, event: events.Event) -> None:
        booked = self._booked
        match event:
            case events.JobReserved():
                booked[event.job_id] = event
            case events.JobStarted(job_id=job_id):
                # At its start, not when it is booked: only then it takes
                # slots, and at the rate of that time.
                self._place(event.t, booked.pop(job_id), event.rate_bps)
            case events.JobRescaled(job_id=job_id) if job_id in self._taken:
                _, tenant = self._taken[job_id]
                self._taken[job_id] = event.rate_bps, tenant
            case events.JobMigrated(job_id=job_id):
                # Its old slots are free before it takes new ones: it may come
                # back to some of them.
                self._place(event.t, event, self._give_back(job_id))
            case events.JobEnded(outcome="rejected"):
                self.refused.append((event.job_id, event.reason))
            # A failure moves trees of jobs that wait for their start, too.
            case events.JobRerooted(job_id=job_id) if job_id in booked:
                booked[job_id] = replace(
                    booked[job_id], root=event.root, links=event.links
                )
            case (
                events.JobEnded(job_id=job_id)
                | events.JobRequeued(job_id=job_id)
            ) if job_id in self._taken:
                self._give_back(job_id)
            case _:
                pass

    def _place(
        self,
        start_s: float,
        event: events.JobReserved | events.JobMigrated,
        rate_bps: int,
    ) -> None:
        """A job where an event puts it, as the tenant that it would be there."""
        experiment = self._experiment
        job = self._requests[event.job_id]
        vms_on = tuple((server, count) for server, count in event.vms_on)
        tenant = tenant_plan(
            experiment.datacentre,
            self._network,
            Placement(event.root, vms_on),
            self._take_slots(vms_on),
            # Counted up, as in a run, where no number is given twice.
            tenant_id=len(self.tenants) + 1,
            job_id=job.id,
            rate_bps=scaled_bps(rate_bps, experiment.scale.rate),
        )
        tenant = with_volume(tenant, job, experiment.scale, rate_bps)
        if not job.is_best_effort(rate_bps):
            tenant = enforced(self._network, tenant, experiment.enforcement)
        self._taken[job.id] = rate_bps, tenant
        text = tenant_text(self._network, tenant, experiment.controller)
        self.tenants.append(
            PlannedTenant(job.id, _summary(tenant, start_s), text)
        )

    def _take_slots(
        self, vms_on: Iterable[tuple[int, int]]
    ) -> tuple[Slot, ...]:
        """Slots in the order of servers, as the live network takes them."""
        slots: list[Slot] = []
        for server, count in vms_on:
            for _ in range(count):
                slots.append(self._free[server].pop(0))
        return tuple(slots)

    def _give_back(self, job_id: str) -> int:
        """A job's VM slots are free again; returns its rate in experiment
        units.
        """
        rate_bps, tenant = self._taken.pop(job_id)
        for vm in tenant.vms:
            free = self._free[vm.slot.server]
            free.append(vm.slot)
            # Sorted as on the live network, which gives the lowest slot
            # first.
            free.sort(key=attrgetter("index"))
        return rate_bps


def _summary(tenant: TenantPlan, start_s: float) -> str:
    where = ", ".join(vm.slot.netns for vm in tenant.vms)
    return (
        f"{tenant.job_id} at {start_s:.1f} s as tenant {tenant.tenant_id}, {tenant.prefix}, "
        f"{tenant.rate_bps / 1e6:g} Mbit/s on the wire, in {where}"
    )
