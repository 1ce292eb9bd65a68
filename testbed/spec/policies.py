"""The ``policies`` section: who decides, with which parameters."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from testbed.schedulers.policy import PolicyKind
from testbed.schedulers.registry import known_policies
from testbed.spec.document import Document
from testbed.spec.experiment import PolicySpec, Scalar
from testbed.spec.problems import Path, Problem, did_you_mean, dotted, unknown_name
from testbed.spec.reading import kind_of
from testbed.units import UnitError, parse_duration, parse_share

DEFAULT_POLICIES = (PolicySpec("vc"),)
LEASE_POLICIES = (PolicySpec("mbfcbs"),)
LEASE_WORKLOADS = ("leases", "lwf")
LADDER_POLICIES = (PolicySpec("scripted"),)
LADDER_WORKLOAD = "ladder"


def read_policies(document: Document, path: Path, workload: str) -> tuple[PolicySpec, ...]:
    """A list of names, or of mappings with a name and the policy's parameters.

    ``workload`` is its kind: not every policy schedules leases, and a ladder is climbed as it is.
    """
    leases = workload in LEASE_WORKLOADS
    if path[-1] not in document.data:
        if workload == LADDER_WORKLOAD:
            return LADDER_POLICIES
        return LEASE_POLICIES if leases else DEFAULT_POLICIES
    if document.is_poisoned(path):
        return ()
    given = document.at(path)
    if not isinstance(given, list):
        document.report(path, f"must be a list such as [vc], not {kind_of(given)}")
        return ()
    if not given:
        document.report(path, "needs at least one policy")
    found: list[PolicySpec] = []
    for index in range(len(given)):
        policy = _read_policy(document, (*path, index))
        if policy is not None and leases and not known_policies()[policy.name].leases:
            able = ", ".join(name for name, kind in known_policies().items() if kind.leases)
            message = f"{policy.name} schedules no leases, with cores and start times: {able} do"
            document.report((*path, index), message)
        if policy is not None and workload == LADDER_WORKLOAD and policy not in LADDER_POLICIES:
            message = "a ladder leaves a policy nothing to decide: leave 'policies' out"
            document.report((*path, index), message)
        if policy is not None and policy in found:
            document.report((*path, index), f"{policy.label} is named twice")
        elif policy is not None:
            found.append(policy)
    return tuple(found)


def _read_policy(document: Document, path: Path) -> PolicySpec | None:
    """One entry of the list; None where it cannot be read."""
    entry = document.at(path)
    if isinstance(entry, str):
        return PolicySpec(entry) if _known(document, path, entry) else None
    if isinstance(entry, dict):
        return _read_mapping(document, path, entry)
    if not document.is_poisoned(path):
        document.report(path, f"must be a name, or a mapping with a name, not {kind_of(entry)}")
    return None


def _read_mapping(document: Document, path: Path, entry: Mapping[str, Any]) -> PolicySpec | None:
    name = entry.get("name")
    if not isinstance(name, str):
        message = "is required" if "name" not in entry else f"must be a text, not {kind_of(name)}"
        if not document.is_poisoned((*path, "name")):
            place = document.place((*path, "name"))
            document.problems.append(Problem(place, dotted((*path, "name")), message))
        return None
    if not _known(document, (*path, "name"), name):
        return None
    parameters = {
        key: _accepted(document, (*path, key), name)
        for key in entry
        if key != "name" and not document.is_poisoned((*path, key))
    }
    return PolicySpec(name, tuple((k, v) for k, v in parameters.items() if v is not None))


def _known(document: Document, path: Path, name: str) -> bool:
    if name in known_policies():
        return True
    document.report(path, unknown_name("policy", name, list(known_policies())))
    return False


def _accepted(document: Document, path: Path, policy: str) -> Scalar | None:
    """A parameter's value, if the policy takes it."""
    kind = known_policies()[policy]
    value = _parameter(document, path, kind)
    objection = None if value is None else kind.takes[str(path[-1])].objection(value)
    if objection is not None:
        document.report(path, objection)
        return None
    return value


def _parameter(document: Document, path: Path, kind: PolicyKind) -> Scalar | None:
    """A parameter's value, of the type of its default; shares may be percentages."""
    key, value = str(path[-1]), document.at(path)
    takes = kind.takes.get(key)
    if takes is None:
        known = ", ".join(kind.takes) or "none"
        hint = did_you_mean(key, list(kind.takes)) or f"; it takes: {known}"
        document.report(path, f"is no parameter of {kind.name}{hint}", at_key=True)
        return None
    if takes.unit == "s" or (takes.unit == "share" and not isinstance(value, bool)):
        try:
            return parse_duration(value) if takes.unit == "s" else parse_share(value)
        except UnitError as error:
            document.report(path, str(error))
            return None
    if type(value) is not type(takes.default) or not isinstance(value, bool | int | str):
        document.report(path, f"must be like {takes.default!r}, not {kind_of(value)}")
        return None
    return value
