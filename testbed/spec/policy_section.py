"""The ``policies`` section: policies and their parameters."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from jobs.request import JobRequest
from testbed.schedulers.policy import Parameter
from testbed.schedulers.registry import known_policies
from testbed.spec.document import Location, did_you_mean, unknown_name
from testbed.spec.experiment import PolicySpec, Scalar
from testbed.spec.size_limits import LIMITS, within
from testbed.spec.validation import kind_of
from testbed.units import UnitError, human_duration, parse_duration, parse_share
from topologies.datacentre import DataCentre

DEFAULT_POLICIES = (PolicySpec("vc"),)
LEASE_POLICIES = (PolicySpec("mbfcbs"),)
LEASE_WORKLOADS = ("leases", "lwf")
SWEEP_POLICIES = (PolicySpec("scripted"),)
SWEEP_WORKLOAD = "ladder"
_SLOT_S = 600.0
"""The calendar slot of policies for leases, where a file gives none."""


def read_policies(here: Location, workload: str) -> tuple[PolicySpec, ...]:
    """A list of names, or of mappings with a name and the policy's parameters.

    ``workload`` is its kind: not every policy schedules leases, and a bandwidth sweep is given.
    """
    if here.path[-1] not in here.document.data:
        if workload == SWEEP_WORKLOAD:
            return SWEEP_POLICIES
        return LEASE_POLICIES if workload in LEASE_WORKLOADS else DEFAULT_POLICIES
    if not here.is_readable:
        return ()
    if not isinstance(here.value, list):
        here.report(f"must be a list such as [vc], not {kind_of(here.value)}")
        return ()
    if not here.value:
        here.report("needs at least one policy")
    within(len(here.value), "policies", here.report, "split the file")
    found: list[PolicySpec] = []
    for index in range(min(len(here.value), LIMITS["policies"])):
        policy = _read_policy(here / index)
        if policy is None:
            continue
        _check_workload(here / index, policy, workload)
        if policy in found:
            (here / index).report(f"{policy.label} is named twice")
        else:
            found.append(policy)
    return tuple(found)


def _check_workload(here: Location, policy: PolicySpec, workload: str) -> None:
    kinds = known_policies()
    if workload in LEASE_WORKLOADS and not kinds[policy.name].leases:
        able = ", ".join(name for name, kind in kinds.items() if kind.leases)
        here.report(f"{policy.name} schedules no leases, with cores and start times: {able} do")
    if workload == SWEEP_WORKLOAD and policy not in SWEEP_POLICIES:
        here.report("a ladder leaves a policy nothing to decide: leave 'policies' out")


def _read_policy(here: Location) -> PolicySpec | None:
    """One entry of the list; None where it cannot be read."""
    entry = here.value
    if isinstance(entry, str):
        return PolicySpec(entry) if _is_known(here, entry) else None
    if not isinstance(entry, dict):
        if here.is_readable:
            here.report(f"must be a name, or a mapping with a name, not {kind_of(entry)}")
        return None
    name = entry.get("name")
    if not isinstance(name, str):
        message = "is required" if "name" not in entry else f"must be a text, not {kind_of(name)}"
        if (here / "name").is_readable:
            here.report(message, "name")
        return None
    if not _is_known(here / "name", name):
        return None
    takes = known_policies()[name].takes
    given = [(here / key, key) for key in entry if key != "name" and (here / key).is_readable]
    parameters = [(key, _parameter(where, name, takes)) for where, key in given]
    return PolicySpec(name, tuple((k, v) for k, v in parameters if v is not None))


def _is_known(here: Location, name: str) -> bool:
    if name in known_policies():
        return True
    here.report(unknown_name("policy", name, list(known_policies())))
    return False


def _parameter(here: Location, policy: str, takes: Mapping[str, Parameter]) -> Scalar | None:
    """A parameter's value, if the policy takes it: a time, a share, or of the default's type."""
    key, value = str(here.path[-1]), here.value
    if key not in takes:
        known = ", ".join(takes) or "none"
        hint = did_you_mean(key, list(takes)) or f"; it takes: {known}"
        here.report(f"is no parameter of {policy}{hint}", at_key=True)
        return None
    parameter = takes[key]
    parsed: Scalar = value
    if parameter.unit == "s" or (parameter.unit == "share" and not isinstance(value, bool)):
        try:
            parsed = parse_duration(value) if parameter.unit == "s" else parse_share(value)
        except UnitError as error:
            here.report(str(error))
            return None
    elif type(value) is not type(parameter.default) or not isinstance(value, bool | int | str):
        here.report(f"must be like {parameter.default!r}, not {kind_of(value)}")
        return None
    objection = parameter.objection(parsed)
    if objection is not None:
        here.report(objection)
    return parsed if objection is None else None


# ------------------------------------------------------------------ sizes


def check_policies(
    here: Location, policies: Sequence[PolicySpec], centre: DataCentre, jobs: Sequence[JobRequest]
) -> None:
    """Reports the sizes that policies build for these jobs, each at its entry in ``policies``.

    Looks at all jobs only for policies whose sizes depend on them. O(jobs) for each of those.
    """
    for index, policy in enumerate(policies):
        kind, given = known_policies()[policy.name], dict(policy.parameters)
        entry = (here / "policies" / index).nearest
        where = entry if entry.path else here / "workload"
        if kind.leases:
            slot_s = float(str(given.get("slot", _SLOT_S)))
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
        every = f"each {recompute_s:g} s of {human_duration(last_s)}"
        hint = f"{every}: take shorter jobs, or another coupling"
        within(last_s / recompute_s, "times that rates are computed anew", where.report, hint)
