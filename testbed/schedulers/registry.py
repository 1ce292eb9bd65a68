"""Policies by the name that experiment files use."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from testbed.embedding.base import Embedder
from testbed.embedding.registry import embedder as embedder_of
from testbed.embedding.registry import embedder_names
from testbed.errors import BadInput
from testbed.schedulers.bgmbf import EVICT, BgMBF
from testbed.schedulers.bl import COUPLINGS, Baseline
from testbed.schedulers.cmbf import MIGRATION_COST_S, Cmbf
from testbed.schedulers.cmcbf import CPU, Cmcbf
from testbed.schedulers.dcloud import GAMMA, DCloud
from testbed.schedulers.easy import ESTIMATES, Easy
from testbed.schedulers.edf import edf
from testbed.schedulers.jsa import JSA
from testbed.schedulers.jsa_queue import LATE, QUEUES
from testbed.schedulers.mbfcbs import DEPTH, SLOT_S, Mbfcbs, Settings
from testbed.schedulers.oktopus_batch import oktopus_batch
from testbed.schedulers.policy import Policy
from testbed.schedulers.priority import Priorities, Priority
from testbed.schedulers.psp import psp
from testbed.schedulers.queueing import Queueing, Rank, by_arrival, by_bandwidth, by_duration
from testbed.schedulers.reshaping import Reshaping
from testbed.schedulers.scripted import Scripted
from testbed.schedulers.vc import VirtualCluster
from testbed.schedulers.vmct import Vmct


@dataclass(frozen=True)
class PolicyKind:
    """How to build a policy: ``parameters`` names the keys it takes in a file, with defaults.

    Some may only be one of ``choices``, or lie within ``limits``; ``times`` are seconds, written
    with a unit in files. A policy that ``embeds`` also takes ``embedder``, in place of the
    experiment's. ``leases``: it schedules leases, whose VMs have cores and memory. ``weighs``: its
    jobs share links by weights (PS-P), not evenly.
    """

    name: str
    build: Callable[[Embedder, Mapping[str, Any]], Policy]
    parameters: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    choices: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    limits: Mapping[str, tuple[float, float]] = field(default_factory=dict)
    times: frozenset[str] = frozenset()
    embeds: bool = True
    leases: bool = False
    weighs: bool = False

    @property
    def keys(self) -> tuple[str, ...]:
        """All keys that it takes in a file."""
        return (*self.parameters, "embedder") if self.embeds else tuple(self.parameters)

    def objection(self, key: str, value: object) -> str | None:
        """Why a parameter of the right type cannot have that value; None where it can."""
        if key == "embedder" and value not in embedder_names():
            return f"must be one of {', '.join(embedder_names())}, not {value!r}"
        if key in self.choices and value not in self.choices[key]:
            return f"must be one of {', '.join(self.choices[key])}, not {value!r}"
        if key in self.limits and isinstance(value, int | float):
            low, high = self.limits[key]
            if not low <= value <= high:
                return f"must lie between {low:g} and {high:g}, not at {value:g}"
        return None


def _dcloud(name: str, reshaping: Reshaping, summary: str) -> PolicyKind:
    return PolicyKind(
        name,
        lambda embedder, given: DCloud(embedder, float(given["gamma"]), reshaping, name),
        parameters={"gamma": GAMMA},
        limits={"gamma": (0.0, 1.0)},
        summary=summary,
    )


def _sorted_queue(name: str, rank: Rank, summary: str) -> PolicyKind:
    return PolicyKind(
        name,
        lambda embedder, given: Queueing(name, embedder, rank, skip=bool(given["skip"])),
        parameters={"skip": False},
        summary=summary,
    )


def _cmbf(name: str, *, head_only: bool, summary: str) -> PolicyKind:
    return PolicyKind(
        name,
        lambda _, given: Cmbf(name, head_only=head_only, cost_s=float(given["migration_cost"])),
        parameters={"migration_cost": MIGRATION_COST_S},
        times=frozenset({"migration_cost"}),
        embeds=False,
        summary=summary,
    )


def _mbfcbs(given: Mapping[str, Any]) -> Mbfcbs:
    settings = {("slot_s" if key == "slot" else key): value for key, value in given.items()}
    return Mbfcbs(Settings(**settings))


def _priority(given: Mapping[str, Any]) -> Priority:
    by_type = (given["advance"], given["immediate"], given["best_effort"])
    return Priority(Priorities(*by_type), given["depth"])


_WHOLE = (1.0, 1_000_000.0)
_LEASES = (
    PolicyKind(
        "mbfcbs",
        lambda _, given: _mbfcbs(given),
        parameters={"preemption": True, "earliest": True, "slot": float(SLOT_S), "depth": DEPTH},
        limits={"slot": _WHOLE, "depth": _WHOLE},
        times=frozenset({"slot"}),
        embeds=False,
        leases=True,
        summary="leases: best fit by capacity; best effort gives way once to AR and IM",
    ),
    PolicyKind(
        "v-mct",
        lambda _, __: Vmct(),
        embeds=False,
        leases=True,
        summary="leases: each to the host that completes it first, nothing preempted",
    ),
    PolicyKind(
        "priority",
        lambda _, given: _priority(given),
        parameters={**asdict(Priorities()), "depth": DEPTH},
        limits=dict.fromkeys(("advance", "immediate", "best_effort", "depth"), _WHOLE),
        embeds=False,
        leases=True,
        summary="leases: the highest priority first, lower ones preempted as often as it takes",
    ),
)


def _bgmbf(name: str, summary: str, *, shortest_first: bool) -> PolicyKind:
    return PolicyKind(
        name,
        lambda embedder, given: BgMBF(
            embedder,
            shortest_first=shortest_first,
            evict=given["evict"],
            cost_s=float(given["migration_cost"]),
        ),
        parameters={"evict": EVICT[0], "migration_cost": 0.0},
        choices={"evict": EVICT},
        times=frozenset({"migration_cost"}),
        summary=summary,
    )


def _cmcbf(name: str, *, head_only: bool, summary: str) -> PolicyKind:
    return PolicyKind(
        name,
        lambda _, given: Cmcbf(
            name,
            head_only=head_only,
            cpu=str(given["cpu"]),
            cost_s=float(given["migration_cost"]),
        ),
        parameters={"migration_cost": MIGRATION_COST_S, "cpu": CPU[0]},
        choices={"cpu": CPU},
        times=frozenset({"migration_cost"}),
        embeds=False,
        summary=summary,
    )


def _fixed(
    name: str,
    build: Callable[[Embedder, Mapping[str, Any]], Policy],
    summary: str,
) -> PolicyKind:
    """A baseline of JSA's: what it does with late jobs, and behind one that does not fit."""
    return PolicyKind(
        name,
        build,
        parameters={"late": LATE[0], "queue": QUEUES[0]},
        choices={"late": LATE, "queue": QUEUES},
        summary=summary,
    )


POLICIES: dict[str, PolicyKind] = {
    kind.name: kind
    for kind in (
        PolicyKind(
            "scripted",
            lambda embedder, _: Scripted(embedder),
            summary="starts given jobs at given bandwidths",
        ),
        PolicyKind(
            "vc",
            lambda embedder, _: VirtualCluster(embedder),
            summary="Oktopus virtual clusters: on arrival, as asked for, or not at all",
        ),
        _dcloud("dcloud", Reshaping(), "DCloud: slides jobs in time and scales their bandwidth"),
        _dcloud("dcloud-ts", Reshaping(scales=False), "DCloud with time sliding alone"),
        _dcloud("dcloud-bs", Reshaping(slides=False), "DCloud with bandwidth scaling alone"),
        PolicyKind(
            "bl",
            lambda _, __: Baseline(),
            parameters={"coupling": COUPLINGS[0]},
            choices={"coupling": COUPLINGS},
            embeds=False,
            summary="no guarantees: lowest subtree with free slots, TCP shares the network",
        ),
        PolicyKind(
            "fcfs",
            lambda embedder, _: Queueing("fcfs", embedder, by_arrival),
            summary="a queue in order of arrival; the first waits until it fits, all others wait",
        ),
        _sorted_queue("sbf", by_bandwidth, "as fcfs, the smallest bandwidth first"),
        _sorted_queue("sdf", by_duration, "as fcfs, the shortest first"),
        _bgmbf(
            "bgmbf",
            "fcfs with bandwidth-guaranteed backfilling; the first in the queue evicts later ones",
            shortest_first=False,
        ),
        _bgmbf("bgmbf-sdf", "bgmbf that backfills the shortest first", shortest_first=True),
        PolicyKind(
            "easy",
            lambda _, given: Easy(str(given["estimates"])),
            parameters={"estimates": ESTIMATES[0]},
            choices={"estimates": ESTIMATES},
            embeds=False,
            summary="EASY: backfills whoever does not delay the first in the queue",
        ),
        _cmbf("cmbf", head_only=False, summary="CMBF: backfills all, earlier jobs preempt later"),
        _cmbf("ambf", head_only=True, summary="AMBF: CMBF where the head of the queue preempts"),
        _cmcbf("cmcbf", head_only=False, summary="CMCBF: CMBF with background VMs on every node"),
        _cmcbf("amcbf", head_only=True, summary="AMCBF: AMBF with background VMs on every node"),
        PolicyKind(
            "jsa",
            lambda _, __: JSA(),
            embeds=False,
            summary="JSA: elastic bandwidth, most reward per time left first",
        ),
        PolicyKind(
            "simple-jsa",
            lambda _, __: JSA("simple-jsa", speeds_up=False),
            embeds=False,
            summary="JSA at the least bandwidth that meets the deadline",
        ),
        _fixed(
            "edf",
            lambda embedder, given: edf(embedder, given["late"], given["queue"]),
            "earliest deadline first, at a fixed bandwidth",
        ),
        _fixed(
            "oktopus-batch",
            lambda embedder, given: oktopus_batch(embedder, given["late"], given["queue"]),
            "Oktopus virtual clusters that wait, in order of arrival",
        ),
        PolicyKind(
            "ps-p",
            lambda _, given: psp(given["late"], given["queue"]),
            parameters={"late": LATE[0], "queue": QUEUES[0], "coupling": "lockstep"},
            choices={"late": LATE, "queue": QUEUES, "coupling": COUPLINGS},
            embeds=False,
            weighs=True,
            summary="slots in order of arrival, links shared by weights (FairCloud's PS-P)",
        ),
        *_LEASES,
    )
}


def build_policy(name: str, embedder: Embedder, parameters: Mapping[str, Any]) -> Policy:
    """The policy of that name; an unknown one lists the known ones.

    An ``embedder`` among the parameters takes the place of the given one.
    """
    kind = POLICIES.get(name)
    if kind is None:
        raise BadInput(f"unknown policy {name!r}: known are {', '.join(sorted(POLICIES))}")
    unknown = sorted(set(parameters) - set(kind.keys))
    if unknown:
        raise BadInput(f"policy {name} has no parameter {', '.join(unknown)}")
    given = {**kind.parameters, **parameters}
    own = given.pop("embedder", None)
    return kind.build(embedder if own is None else embedder_of(own), given)
