"""The ``policies`` section: policies and their parameters."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path
from typing import Any

from jobs.request import JobRequest
from testbed.embedding.base import embedder, embedder_names, offer
from testbed.embedding.installed_embedder import checked_embedder
from testbed.errors import BadInput
from testbed.plugins import PluginError, raised_anywhere
from testbed.schedulers.policy import CLAIMS, Parameter, PolicyKind
from testbed.schedulers.policy_class import NotAPolicy, policy_kind_of
from testbed.schedulers.registry import (
    known_policies,
    own_policies,
    policy_kind,
)
from testbed.spec.document import (
    Document,
    Location,
    Place,
    did_you_mean,
    unknown_name,
)
from testbed.spec.experiment import PolicySpec, Scalar
from testbed.spec.plugin_keys import load_plugin, report_plugin
from testbed.spec.size_limits import LIMITS, within
from testbed.spec.validation import value_in_words
from testbed.units import (
    UnitError,
    human_duration,
    parse_duration,
    parse_share,
)
from topologies.datacentre import DataCentre

DEFAULT_POLICIES = (PolicySpec("vc"),)
LEASE_POLICIES = (PolicySpec("mbfcbs"),)
LEASE_WORKLOADS = ("leases", "lwf")
SWEEP_POLICIES = (PolicySpec("scripted"),)
SWEEP_WORKLOAD = "ladder"
_SLOT_S = 600.0
"""The calendar slot of policies for leases, where a file gives none."""


def read_policies(
    location: Location, workload: str
) -> tuple[PolicySpec, ...]:
    """The policies of a list of names, or of mappings with a name and the
    policy's parameters.

    ``workload`` is the workload's kind. Only some policies schedule leases, and
    a bandwidth sweep has a policy of its own.
    """
    if location.path[-1] not in location.document.data:
        return _default_policies(workload)
    if not location.is_readable:
        return ()
    if not isinstance(location.value, list):
        location.report(
            f"must be a list such as [vc], not {value_in_words(location.value)}"
        )
        return ()
    if not location.value:
        location.report("needs at least one policy")
    within(location, len(location.value), "policies", "split the file")
    policies: dict[str, PolicySpec] = {}
    # Entries beyond the limit, which is reported, are not read.
    for index in range(min(len(location.value), LIMITS["policies"])):
        entry = location / index
        policy = _read_policy(entry)
        if policy is None:
            continue
        _check_workload(entry, policy, workload)
        _check_constructed(entry, policy)
        # The label names a folder of the run. It lacks unreadable parameters,
        # so that an entry with a problem may seem to repeat another one.
        if policy.label not in policies:
            policies[policy.label] = policy
        elif entry.is_sound():
            entry.report(_repetition(policy, policies[policy.label]))
    return tuple(policies.values())


def _default_policies(workload: str) -> tuple[PolicySpec, ...]:
    """The policies of a file that names none, for this kind of workload."""
    if workload == SWEEP_WORKLOAD:
        return SWEEP_POLICIES
    if workload in LEASE_WORKLOADS:
        return LEASE_POLICIES
    return DEFAULT_POLICIES


def _check_constructed(location: Location, policy: PolicySpec) -> None:
    """Reports a plug-in policy that cannot be constructed, or whose claims are
    unknown or raise.
    """
    kind = policy.kind
    parameters = dict(policy.parameters)
    if kind.source is None or not location.is_sound():
        return
    # Constructed before a run, with any embedder, so that its constructor's
    # errors are reported.
    try:
        kind.make(embedder("oktopus"), parameters)
        claims = kind.claims_of(parameters)
        unknown = [claim for claim in claims if claim not in CLAIMS]
    except (Exception, SystemExit) as error:  # noqa: BLE001 - somebody's code raises what it likes
        location.report(f"{policy.name} {raised_anywhere(error)}")
        return
    if unknown:
        location.report(
            f"{policy.name} claims {unknown[0]!r}, which is none of {', '.join(CLAIMS)}"
        )


def _repetition(policy: PolicySpec, other: PolicySpec) -> str:
    """The objection to a second policy of one name."""
    source = other.kind.source
    if policy.kind.source == source:
        return f"{policy.label} is named twice"
    hint = f"give one of the classes a name of its own, as name = 'my-{policy.name}'"
    return f"{policy.label} is the name of {source} too: {hint}"


def _check_workload(
    location: Location, policy: PolicySpec, workload: str
) -> None:
    if workload in LEASE_WORKLOADS and not policy.kind.leases:
        able = []
        for name, kind in known_policies().items():
            if kind.leases:
                able.append(name)
        location.report(
            f"{policy.name} does not schedule leases (jobs with cores and start"
            f" times): {', '.join(able)} do"
        )
    if workload == SWEEP_WORKLOAD and policy not in SWEEP_POLICIES:
        location.report(
            "a ladder leaves a policy nothing to decide: leave 'policies' out"
        )


def _read_policy(location: Location) -> PolicySpec | None:
    """One entry of the list; None where it cannot be read."""
    entry = location.value
    if isinstance(entry, str):
        return PolicySpec(entry) if _is_policy(location) else None
    if not isinstance(entry, dict):
        if location.is_readable:
            location.report(
                f"must be a name, or a mapping with a name, not {value_in_words(entry)}"
            )
        return None
    if "class" in entry:
        return _read_class(location)
    name = entry.get("name")
    if not isinstance(name, str):
        _report_name(location, entry)
        return None
    if not _is_policy(location / "name"):
        return None
    return PolicySpec(
        name, _parameters(location, "name", policy_kind(name))
    )


def _report_name(location: Location, entry: Mapping[str, Any]) -> None:
    """Reports a name that is missing, or no text."""
    message = "is required"
    if "name" in entry:
        message = f"must be a text, not {value_in_words(entry['name'])}"
    if (location / "name").is_readable:
        location.report(message, "name")


def _read_class(location: Location) -> PolicySpec | None:
    """An entry that takes its policy from a file or a module."""
    if not (location / "class").is_readable:
        return None
    kind = _kind_of_class(location / "class")
    if kind is None:
        return None
    return PolicySpec(kind.name, _parameters(location, "class", kind), kind)


def _kind_of_class(location: Location) -> PolicyKind | None:
    """The declaration of a class such as ``./mine.py:MyPolicy``; None, and
    reported, where it is no policy.
    """
    loaded = load_plugin(location, "MyPolicy")
    if loaded is None:
        return None
    try:
        kind = policy_kind_of(loaded)
    except PluginError as error:
        report_plugin(location, error)
        return None
    except NotAPolicy as objection:
        name = location.value.rpartition(":")[2]
        location.report(f"{name} {objection}")
        return None
    if kind.name in own_policies():
        taken = f"is called {kind.name}, as a policy of ours is"
        location.report(
            f"{taken}: give the class another name, as name = 'my-{kind.name}'"
        )
        return None
    return kind


def policy_from(text: str, beside: Path) -> PolicySpec:
    """The policy of that name, or of a class such as ``./mine.py:MyPolicy``;
    BadInput if none is.

    The file is looked for in the folder ``beside``, then along TESTBED_DATA.
    """
    if ":" not in text:
        return PolicySpec(policy_kind(text).name)
    # Read like a key of a file in that folder.
    location = Location(
        Document(data=text, places={(): Place(str(beside / "policy"))})
    )
    kind = _kind_of_class(location)
    if kind is not None:
        spec = PolicySpec(kind.name, plugin=kind)
        _check_constructed(location, spec)
        if not location.document.problems:
            return spec
    problem = location.document.problems[0]
    # A problem in the class's file says where. The key's file is made up, so
    # that the text stands for it.
    if problem.place != location.place:
        raise BadInput(str(problem))
    raise BadInput(f"{text}: {problem.message}")


def _parameters(
    location: Location, name_key: str, kind: PolicyKind
) -> tuple[tuple[str, Scalar], ...]:
    """The parameters of an entry: all its keys but ``name_key``. Reports those
    that are wrong.
    """
    parameters = []
    for key in location.value:
        if key == name_key or not (location / key).is_readable:
            continue
        value = _parameter(location / key, kind)
        if value is not None:
            parameters.append((key, value))
    return tuple(parameters)


def _is_policy(location: Location) -> bool:
    return _is_known(
        location,
        noun="policy",
        look_up=policy_kind,
        known=known_policies,
    )


def _is_known(
    location: Location,
    *,
    noun: str,
    look_up: Callable[[str], object],
    known: Callable[[], Iterable[str]],
) -> bool:
    """True for a known name; reports another, and that of a package that cannot
    be loaded.
    """
    name: str = location.value
    try:
        look_up(name)
    except PluginError as error:
        location.report(error.reason)
    except BadInput:
        location.report(unknown_name(noun, name, list(known())))
    else:
        return True
    return False


def _parameter(location: Location, kind: PolicyKind) -> Scalar | None:
    """A parameter's value, if the policy takes it: a time, a share, or of the
    default's type.
    """
    key = str(location.path[-1])
    takes = kind.takes
    if key not in takes:
        known = ", ".join(takes) or "none"
        hint = did_you_mean(key, list(takes)) or f"; it takes: {known}"
        location.report(
            f"is no parameter of {kind.name}{hint}", at_key=True
        )
        return None
    if key == "embedder":
        return read_embedder(location)
    parameter = takes[key]
    parsed = _parsed(location, parameter)
    if parsed is None:
        return None
    objection = parameter.objection(parsed)
    if objection is not None:
        location.report(objection)
        return None
    return parsed


def _parsed(location: Location, parameter: Parameter) -> Scalar | None:
    """The value in the parameter's unit, or of its default's type; None, and
    reported, where it is neither.
    """
    value = location.value
    try:
        if parameter.unit == "s":
            return parse_duration(value)
        # A bool, which Python takes for a number, is reported below.
        if parameter.unit == "share" and not isinstance(value, bool):
            return parse_share(value)
    except UnitError as error:
        location.report(str(error))
        return None
    # By the exact type, for the same reason.
    if isinstance(parameter.default, float) and type(value) in (int, float):
        return float(value)
    if type(value) is type(parameter.default) and isinstance(
        value, bool | int | str
    ):
        return value
    location.report(
        f"must be {_wanted(parameter)}, not {value_in_words(value)}"
    )
    return None


def _wanted(parameter: Parameter) -> str:
    """The values that a parameter takes, in words."""
    # Whole numbers are among them: mypy takes those for floats.
    default: object = parameter.default
    if isinstance(default, bool):
        return "true or false, without quotes"
    if isinstance(default, int):
        return f"a whole number such as {default}, without quotes"
    if isinstance(default, float):
        return f"a number such as {default:g}, without quotes"
    return f"a text such as {default}"


def read_embedder(location: Location) -> str | None:
    """The name of the embedder that a key names, or takes from a file or a
    module with ``class``; None, and reported, where there is none.
    """
    written = location.value
    if not location.is_readable:
        return None
    if isinstance(written, str):
        known = _is_known(
            location,
            noun="embedder",
            look_up=embedder,
            known=embedder_names,
        )
        return written if known else None
    if not isinstance(written, dict):
        wanted = (
            "a name, or a mapping such as {class: ./mine.py:MyEmbedder}"
        )
        location.report(f"must be {wanted}, not {value_in_words(written)}")
        return None
    for key in written:
        if key != "class":
            hint = did_you_mean(key, ["class"]) or "; known key: class"
            location.report(f"is an unknown key{hint}", key, at_key=True)
    if "class" not in written:
        location.report(
            "has no class, as {class: ./mine.py:MyEmbedder};"
            " for one of the testbed's write its name alone, as oktopus"
        )
        return None
    return _embedder_of_class(location / "class")


def _embedder_of_class(location: Location) -> str | None:
    loaded = load_plugin(location, "MyEmbedder")
    if loaded is None:
        return None
    try:
        made = checked_embedder(loaded.source.written, loaded)
    except PluginError as error:
        report_plugin(location, error)
        return None
    return offer(made, loaded.source)


def check_failures(
    location: Location, policies: Sequence[PolicySpec]
) -> None:
    """Reports policies that cannot play failures."""
    able = []
    for name, kind in known_policies().items():
        if kind.on_failure:
            able.append(name)
    for index, policy in enumerate(policies):
        if not policy.kind.on_failure:
            where = _policy_location(location, index, "failures")
            why = (
                "keeps its own record of free nodes, and plays no failures"
            )
            where.report(f"{policy.name} {why}: {', '.join(able)} do")


def _policy_location(
    location: Location, index: int, otherwise: str
) -> Location:
    """The entry of a policy in an experiment file; the key ``otherwise`` for a
    default policy, which has no entry.
    """
    entry = (location / "policies" / index).nearest
    return entry if entry.path else location / otherwise


# ------------------------------------------------------------------ sizes


def check_policies(
    location: Location,
    policies: Sequence[PolicySpec],
    centre: DataCentre,
    jobs: Sequence[JobRequest],
) -> None:
    """Reports policies whose tables or flows are too many for these jobs, each
    at its entry in ``policies``. O(jobs) for each policy whose sizes depend on
    jobs.
    """
    for index, policy in enumerate(policies):
        where = _policy_location(location, index, "workload")
        if policy.kind.leases:
            _check_leases(where / "slot", policy, centre, jobs)
        if policy.kind.sharing is not None:
            _check_sharing(where, policy, centre, jobs)


def _check_leases(
    location: Location,
    policy: PolicySpec,
    centre: DataCentre,
    jobs: Sequence[JobRequest],
) -> None:
    """Checks the sizes of the table of availability, with a host's cores each,
    and of the calendar, which holds every host's slots up to the end of the last
    lease that is booked.
    """
    hosts = centre.n_servers
    most_cores = int(centre.slots.max())
    hint = "take fewer hosts, or fewer cores a host"
    if not within(
        location,
        hosts * most_cores,
        "cores in a table of availability",
        hint,
    ):
        return
    slot_s = float(str(dict(policy.parameters).get("slot", _SLOT_S)))
    longest_s = max((job.stated_s for job in jobs), default=0.0)
    longer = ""
    if "slot" in policy.kind.takes:
        longer = f", or a longer slot than {slot_s:g} s"
    hint = f"leases last up to {human_duration(longest_s)}: take shorter ones, fewer hosts{longer}"
    wanted = _calendar_slots(slot_s, centre, jobs)
    within(location, wanted, "calendar slots", hint)


def _calendar_slots(
    slot_s: float, centre: DataCentre, jobs: Sequence[JobRequest]
) -> float:
    """The greater number of the slots up to the last lease's end and of those
    that all bookings take.
    """
    hosts = centre.n_servers
    ahead_s = 0.0
    work_s = 0.0
    booked = 0.0
    for job in jobs:
        lead_s = 0.0
        if job.demand.wanted_s is not None:
            lead_s = max(0.0, job.demand.wanted_s - job.submit_s)
        ahead_s = max(ahead_s, lead_s + job.stated_s)
        work_s += (
            job.stated_s
            * job.demand.cores
            * min(job.n_vms, centre.total_slots)
        )
        # A booking takes the whole slots in which it begins and ends.
        booked += (job.stated_s / slot_s + 2.0) * min(job.n_vms, hosts)
    # A lease that waits is booked after all other work.
    until_s = ahead_s + work_s / max(1, centre.total_slots)
    return max(hosts * until_s / slot_s, booked)


def _check_sharing(
    location: Location,
    policy: PolicySpec,
    centre: DataCentre,
    jobs: Sequence[JobRequest],
) -> None:
    """Checks the number of a best-effort job's flows, and for independent flows
    how often their rates are computed until the last job ends.
    """
    flows = 0
    last_s = 0.0
    for job in jobs:
        # Jobs that do not fit are rejected, and have no flows.
        if job.demand.network and job.n_vms <= centre.total_slots:
            flows_of_job = job.n_vms
            # Flows between the same two servers are one unit.
            if job.demand.pattern == "all-to-all":
                flows_of_job = min(job.n_vms, centre.n_servers) ** 2
            flows = max(flows, flows_of_job)
            last_s = max(last_s, job.submit_s + job.true_s)
    within(
        location,
        flows,
        "flows of one job",
        "take fewer VMs, or another pattern",
    )
    model = policy.kind.sharing_of(dict(policy.parameters))
    if model.flow_dependency == "independent" and model.recompute_s:
        hint = (
            f"each {model.recompute_s:g} s of {human_duration(last_s)}:"
            " take shorter jobs, or another coupling"
        )
        within(
            location,
            last_s / model.recompute_s,
            "times that rates are computed anew",
            hint,
        )
