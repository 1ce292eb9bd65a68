"""The ``policies`` section: policies and their parameters."""

from __future__ import annotations

from collections.abc import Mapping

from testbed.schedulers.policy import Parameter
from testbed.schedulers.registry import known_policies
from testbed.spec.document import Location, did_you_mean, unknown_name
from testbed.spec.experiment import PolicySpec, Scalar
from testbed.spec.size_limits import LIMITS, within
from testbed.spec.validation import kind_of
from testbed.units import UnitError, parse_duration, parse_share

DEFAULT_POLICIES = (PolicySpec("vc"),)
LEASE_POLICIES = (PolicySpec("mbfcbs"),)
LEASE_WORKLOADS = ("leases", "lwf")
SWEEP_POLICIES = (PolicySpec("scripted"),)
SWEEP_WORKLOAD = "ladder"


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
