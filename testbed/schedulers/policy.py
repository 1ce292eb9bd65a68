"""Policy protocol, and the declaration by which a policy becomes known.

A policy is pure: ``decide(view, event) -> list[Action]``. The engine does the
rest.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from functools import cached_property
from typing import (
    Any,
    Literal,
    Protocol,
    TypeAlias,
    get_args,
    runtime_checkable,
)

from jobs.request import JobRequest
from testbed.embedding.base import embedder, embedder_names
from testbed.embedding.placement import Embedder, Placement, Residual
from testbed.errors import BadInput
from testbed.failures import OnFailure
from testbed.plugins import Source
from testbed.reservation.ledger import Ledger
from testbed.schedulers.actions import Action, PolicyEvent, Tier
from topologies.datacentre import DataCentre


class View(Protocol):
    """View that a policy decides from: time, data centre, reservations, jobs
    that wait or run.
    """

    @property
    def now_s(self) -> float: ...

    @property
    def datacentre(self) -> DataCentre: ...

    @property
    def listening(self) -> bool:
        """False if wait reasons are not recorded: a policy need not compute
        them then.
        """
        ...

    def job(self, job_id: str) -> JobRequest:
        """A job that is here: not after the decision about its end."""
        ...

    def waiting(self) -> tuple[str, ...]:
        """Jobs submitted and neither running, reserved nor rejected, in order
        of arrival.

        Preempted jobs are among them, at their old place.
        """
        ...

    def running(self) -> tuple[str, ...]:
        """Jobs that run now, in order of their (last) start."""
        ...

    def placement(self, job_id: str) -> Placement | None:
        """The placement that a job holds now or later; None where it holds
        nothing.
        """
        ...

    def left(self, job_id: str) -> Placement | None:
        """The last placement of a preempted job, which resumes by Resume or
        Migrate; else None.
        """
        ...

    def tier(self, job_id: str) -> Tier:
        """The tier that a job runs in, or was in when it was preempted."""
        ...

    def order(self, job_id: str) -> int:
        """A job's number by arrival, from 1: the smaller one came earlier."""
        ...

    @property
    def largest_bps(self) -> int:
        """The largest bandwidth that any job submitted so far asked for
        (AdaBa's B_max).
        """
        ...

    def residual(
        self, start_s: float, end_s: float | None, tier: Tier = "foreground"
    ) -> Residual:
        """The least that is free at any instant of ``[start_s, end_s)``; None:
        for ever.
        """
        ...

    @property
    def ledger(self) -> Ledger:
        """All reservations over time, to read: for policies that search them
        (DCloud's RUR).
        """
        ...


@runtime_checkable
class Charging(Protocol):
    """A policy that charges: the engine asks it for every job that met its
    deadline.
    """

    def price(self, job: JobRequest, ran_s: float) -> float:
        """Price for the tenant, in dollars; ``ran_s`` is how long the job
        really ran.
        """
        ...


class Policy(Protocol):
    """A scheduler: deterministic, no clock, no I/O, no randomness of its own."""

    name: str

    def decide(self, view: View, event: PolicyEvent) -> list[Action]: ...


# -- how a policy describes itself ---------------------------------------------

Claim: TypeAlias = str

CLAIMS: Mapping[Claim, str] = {
    "granted-as-asked": "every job that starts has the bandwidth it asked for",
    "within-deadline": "every reservation ends by its job's deadline: t' + p' ≤ d",
    "options-within-deadline": "a job gets an option of its profile that ends by its deadline",
    "in-order-of-arrival": "no job starts before one that arrived earlier",
    "head-not-delayed": "backfilling never delays the head of the queue, by real running times",
    "head-not-delayed-by-user-estimates": "the same, by the running times that users stated",
    "best-effort-preempted-once": "only best-effort leases are preempted, each at most once",
    "no-preemption": "no running job is preempted, migrated or moved to another tier",
    "moved-at-reservation-end": "a running job is migrated once at most, when its reservation ends,"
    " to servers without reservations, and gives up its bandwidth",
    "every-job-starts": "no job is refused: a rejection is a failure of the experiment",
    "no-starvation": "every job that fits the empty data centre starts, however many smaller ones"
    " come after it",
    "no-starvation-without-bandwidth": "the same of jobs that ask for no bandwidth; others may be"
    " rejected",
}
"""Invariants that a policy may declare. A run's own are written into its
folder, as data, and the audit, which shares no code with policies, holds the
run to them.
"""

FlowDependency = Literal["slowest", "lockstep", "independent"]
"""Flow-dependency model of a best-effort job in the simulated network: the job
advances with its slowest flow; with coupled flows, none faster than the
slowest; or each flow ends by itself.
"""

FLOW_DEPENDENCIES: tuple[FlowDependency, ...] = get_args(FlowDependency)

Allocation = Literal["max-min", "even"]
"""Division of a link among its flows: max-min fair, as TCP tends to; or the
link's capacity over its flows, where what a flow cannot use is wasted.
"""

ALLOCATIONS: tuple[Allocation, ...] = get_args(Allocation)

FlowWeights = Literal["equal", "proximate"]
"""Weights of flows on a shared link: all alike, as with TCP, or FairCloud's
PS-P: every VM counts alike on the links of its own side of a path, however many
others it talks to through them.
"""


@dataclass(frozen=True)
class SharingModel:
    """The network that a policy assumes for jobs without a reservation.

    A setting of the simulator; a file may choose another flow-dependency model
    (key ``coupling``). ``recompute_s``: how often rates are computed anew at
    least, where flows are ``independent``. ``capped``: a VM sends no faster than
    the bandwidth it asked for; otherwise than the fastest link. Raises ValueError
    for a word that is none of these, or a time that is not above 0.
    """

    flow_dependency: FlowDependency = "slowest"
    weights: FlowWeights = "equal"
    recompute_s: float = 60.0
    allocation: Allocation = "max-min"
    capped: bool = True

    def __post_init__(self) -> None:
        if not self.recompute_s > 0.0:
            raise ValueError(
                f"recompute_s is above 0, not {self.recompute_s!r}"
            )
        for value, known in (
            (self.flow_dependency, FLOW_DEPENDENCIES),
            (self.weights, get_args(FlowWeights)),
            (self.allocation, ALLOCATIONS),
        ):
            if value not in known:
                raise ValueError(f"{value!r} is none of {', '.join(known)}")


@dataclass(frozen=True)
class NoParameters:
    """The parameters of a policy that has none."""


def parameter(
    default: bool | float | str,
    help: str,  # noqa: A002 - the word that command lines and schemas use
    *,
    unit: Literal["", "s", "share"] = "",
    choices: tuple[str, ...] = (),
    limits: tuple[float, float] | None = None,
) -> Any:
    """Field of a policy's parameter dataclass, with all that files, schema and
    help say of it.

    ``unit``: ``s`` is a duration, written with a unit in files, in a field
    whose name ends in ``_s`` (the key does not); ``share`` a fraction that may
    be a percentage. ``limits`` include both ends.
    """
    metadata = {
        "help": help,
        "unit": unit,
        "choices": choices,
        "limits": limits,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True)
class Parameter:
    """One key that a policy takes in a file; see :func:`parameter`.

    ``default`` is None where a policy takes the file's own value.
    """

    key: str
    default: bool | float | str | None
    help: str = ""
    unit: str = ""
    choices: tuple[str, ...] = ()
    limits: tuple[float, float] | None = None

    @classmethod
    def of(cls, declared: Field[Any]) -> Parameter:
        """The key that a field of a parameter dataclass stands for."""
        default: Any = declared.default
        described = declared.metadata
        key = declared.name
        # The unit stands in a file beside the number.
        if described.get("unit") == "s":
            key = key.removesuffix("_s")
        return cls(key, default, **described)

    def objection(self, value: object) -> str | None:
        """The reason against a value of the right type; None where it is allowed."""
        if self.choices and value not in self.choices:
            return (
                f"must be one of {', '.join(self.choices)}, not {value!r}"
            )
        if self.limits is not None and isinstance(value, int | float):
            low, high = self.limits
            if not low <= value <= high:
                return f"must lie between {low:.10g} and {high:.10g}, not at {value:.10g}"
        return None


@dataclass(frozen=True)
class PolicyKind:
    """Declaration of a policy, beside it in a module's ``POLICIES``.

    ``build`` takes an embedder and an instance of ``parameters``, a frozen
    dataclass whose fields are made by :func:`parameter`. A policy that
    ``embeds`` takes the key ``embedder``, in place of the experiment's; one
    that ``leases`` schedules VMs with cores, memory and start times.
    ``sharing``: its jobs reserve no bandwidth and share the network so.
    ``on_failure``: what may become of a job that a failure stops, the default
    first; empty for a policy that keeps its own record of free nodes, and so
    cannot know of lost ones. One that does not look at links cannot requeue: it
    would start the job over the same link again. ``claims`` may depend on the
    parameters. ``source``: the origin of a policy that is not the testbed's
    own.
    """

    name: str
    summary: str
    build: Callable[[Embedder, Any], Policy]
    parameters: type[Any] = NoParameters
    embeds: bool = False
    leases: bool = False
    sharing: SharingModel | None = None
    on_failure: tuple[OnFailure, ...] = ()
    claims: tuple[Claim, ...] | Callable[[Any], tuple[Claim, ...]] = ()
    source: Source | None = None

    @cached_property
    def takes(self) -> Mapping[str, Parameter]:
        """All keys that the policy takes in a file, by name."""
        taken = list(map(Parameter.of, fields(self.parameters)))
        taken += self._common_parameters()
        return {parameter.key: parameter for parameter in taken}

    def _common_parameters(self) -> Iterator[Parameter]:
        """Keys that stand for what the engine or the simulator does."""
        if self.sharing is not None:
            yield Parameter(
                "coupling",
                self.sharing.flow_dependency,
                "flow-dependency model of the simulator",
                choices=FLOW_DEPENDENCIES,
            )
        if self.on_failure:
            yield Parameter(
                "on_failure",
                self.on_failure[0],
                "fate of a job that a failure stops",
                choices=self.on_failure,
            )
        if self.embeds:
            yield Parameter(
                "embedder",
                None,
                "in place of the file's",
                choices=embedder_names(),
            )

    def given(self, values: Mapping[str, Any]) -> Any:
        """The parameter dataclass with a file's values; what is the simulator's
        is left out.
        """
        arguments = {}
        for declared in fields(self.parameters):
            key = Parameter.of(declared).key
            if key in values:
                arguments[declared.name] = values[key]
        return self.parameters(**arguments)

    def make(
        self, default_embedder: Embedder, values: Mapping[str, Any]
    ) -> Policy:
        """The policy with a file's values; BadInput where it does not take one
        of them.
        """
        unknown = sorted(set(values) - set(self.takes))
        if unknown:
            raise BadInput(
                f"policy {self.name} has no parameter {', '.join(unknown)}"
            )
        name = values.get("embedder")
        chosen = default_embedder if name is None else embedder(name)
        return self.build(chosen, self.given(values))

    def claims_of(self, values: Mapping[str, Any]) -> tuple[Claim, ...]:
        """The claims that the audit may hold a run with these values to."""
        if callable(self.claims):
            return self.claims(self.given(values))
        return self.claims

    def sharing_of(self, values: Mapping[str, Any]) -> SharingModel:
        """The sharing model for jobs without a reservation, with a file's
        ``coupling``, ``allocation`` and ``capped``.
        """
        model = self.sharing or SharingModel()
        return replace(
            model,
            flow_dependency=values.get("coupling", model.flow_dependency),
            allocation=values.get("allocation", model.allocation),
            capped=values.get("capped", model.capped),
        )

    def on_failure_of(self, values: Mapping[str, Any]) -> OnFailure:
        """The fate of a job that a failure stops, with a file's ``on_failure``."""
        default = self.on_failure[0] if self.on_failure else "kill"
        chosen: OnFailure = values.get("on_failure", default)
        return chosen
