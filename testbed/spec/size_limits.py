"""Sizes that an experiment file implies, and the most of each that is built.

A line of a file can ask for more than any machine holds. What it comes to is worked out from its
numbers before anything is made of them; above the limit it is an error at that line.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from jobs.request import JobRequest
from testbed.schedulers.registry import policy_kind
from testbed.schedulers.vmct import SLOT_S
from testbed.spec.document import Location
from testbed.spec.experiment import PolicySpec
from testbed.units import human_duration
from topologies.datacentre import MAX_NODES, MAX_TREE_ENTRIES, DataCentre

LIMITS: Final[Mapping[str, int]] = {
    "nodes": MAX_NODES,
    "nodes in all trees together": MAX_TREE_ENTRIES,
    "slots a server": 1_000_000,
    "slots": 10_000_000,
    "policies": 100,
    "jobs": 100_000,
    "leases": 200_000,
    "jobs of a model": 2_000_000,
    "processes with a CPU use of their own": 50_000_000,
    "seconds of arrivals": 10**12,
    "calendar slots": 10_000_000,
    "cores in a table of availability": 10_000_000,
    "flows of one job": 1_000_000,
    "times that rates are computed anew": 1_000_000,
}
"""The most of each (docs/experiment-files.md)."""

Report = Callable[[str], None]


def within(amount: float, what: str, report: Report, hint: str) -> bool:
    """True if ``amount`` is no more than there may be of ``what``; it is reported otherwise."""
    most = LIMITS[what]
    if amount <= most:
        return True
    report(f"asks for some {amount:,.0f} {what}; at most {most:,} are supported: {hint}")
    return False


def check_policies(
    here: Location, policies: Sequence[PolicySpec], centre: DataCentre, jobs: Sequence[JobRequest]
) -> None:
    """Reports the sizes that policies build for these jobs, each at its entry in ``policies``.

    Looks at all jobs only for policies whose sizes depend on them. O(jobs) for each of those.
    """
    for index, policy in enumerate(policies):
        kind, given = policy_kind(policy.name), dict(policy.parameters)
        entry = (here / "policies" / index).nearest
        where = entry if entry.path else here / "workload"
        if kind.leases:
            slot_s = float(given.get("slot", SLOT_S))
            _check_leases((where / "slot").nearest, slot_s, "slot" in kind.takes, centre, jobs)
        if kind.sharing is not None:
            model = kind.sharing_of(given)
            independent = model.flow_dependency == "independent"
            _check_sharing(where, model.recompute_s if independent else 0.0, centre, jobs)


def _check_leases(
    where: Location,
    slot_s: float,
    has_slot: bool,
    centre: DataCentre,
    jobs: Sequence[JobRequest],
) -> None:
    """The calendar holds every host's slots up to the end of the last lease that is booked."""
    hosts, most_cores = centre.n_servers, int(centre.slots.max())
    hint = "take fewer hosts, or fewer cores a host"
    if not within(hosts * most_cores, "cores in a table of availability", where.report, hint):
        return
    longest_s = ahead_s = work_s = booked = 0.0
    for job in jobs:
        wanted_s = job.demand.wanted_s
        lead_s = 0.0 if wanted_s is None else max(0.0, wanted_s - job.submit_s)
        longest_s = max(longest_s, job.stated_s)
        ahead_s = max(ahead_s, lead_s + job.stated_s)
        work_s += job.stated_s * job.demand.cores * min(job.n_vms, centre.total_slots)
        booked += (job.stated_s / slot_s + 2.0) * min(job.n_vms, hosts)
    # What waits is booked behind all work that is there already.
    wanted = max(hosts * (ahead_s + work_s / max(1, centre.total_slots)) / slot_s, booked)
    longer = f", or a longer slot than {slot_s:g} s" if has_slot else ""
    hint = f"leases last up to {human_duration(longest_s)}: take shorter ones, fewer hosts{longer}"
    within(wanted, "calendar slots", where.report, hint)


def _check_sharing(
    where: Location, recompute_s: float, centre: DataCentre, jobs: Sequence[JobRequest]
) -> None:
    """Each flow of a best-effort job is an entry; independent ones have their rates computed anew
    every so often for as long as a job runs.
    """
    flows, last_s = 0, 0.0
    for job in jobs:
        if job.demand.network and job.n_vms <= centre.total_slots:
            pairs = min(job.n_vms, centre.n_servers) ** 2
            flows = max(flows, pairs if job.demand.pattern == "all-to-all" else job.n_vms)
            last_s = max(last_s, job.submit_s + job.true_s)
    within(flows, "flows of one job", where.report, "take fewer VMs, or another pattern")
    if recompute_s:
        hint = f"each {recompute_s:g} s of {human_duration(last_s)}: take shorter jobs, or lockstep"
        within(last_s / recompute_s, "times that rates are computed anew", where.report, hint)
