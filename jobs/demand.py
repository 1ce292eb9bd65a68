"""Demands of jobs: volume, running time at a bandwidth, and progress.

A job has two running times at a granted bandwidth b'. Schedulers see the
*estimate*, p' = p·b/b' (DCloud, Section III.B, the inversely proportional
rule); it needs no knowledge of the application and is an upper bound. The
simulator plays the *model*: p·b/b' for a job that the network limits, the
profile's time for an elastic job (JSA, Section II.C), DCloud's Eq. 1 for a
demand curve.

A new kind of job is a class here, and its plan for the live network is in
:mod:`testbed.plan.agent_plans`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal, Protocol, cast

from jobs.job_profile import Profile

Pattern = Literal["ring", "permutation", "all-to-all"]
JobKind = Literal["transfer", "demand", "compute", "iperf3", "program"]
Launch = Literal["each", "mpi", "dask", "spark"]
"""A program's launcher: the agents alone, ``mpirun``, Dask's scheduler and
workers, or Spark's master and workers.
"""
MpiLibrary = Literal["openmpi", "mpich"]
LeaseType = Literal["advance", "immediate", "best-effort"]
CpuUse = float | tuple[float, ...]
"""Share of a node's CPU that a process uses when it runs there alone: a number
for all processes, or a number per process.
"""
Steps = tuple[tuple[float, int], ...]
"""``(x_end, demand_bps)`` for each step of a demand curve."""


def scaled_duration_s(
    duration_s: float,
    bandwidth_bps: float,
    granted_bps: float,
) -> float:
    """The running time p·b/b' in s, and p where b' is above b.

    p is ``duration_s``, b ``bandwidth_bps``, b' ``granted_bps``. Raises
    ValueError at b' = 0 for a job that needs bandwidth.
    """
    if bandwidth_bps <= 0:
        return duration_s
    if granted_bps <= 0:
        raise ValueError(
            "a job that needs bandwidth cannot be estimated at 0 bit/s"
        )
    return duration_s * max(1.0, bandwidth_bps / granted_bps)


class SizedJob(Protocol):
    """The attributes of a job request that its demand reads.

    It stands for :class:`jobs.request.JobRequest`, whose module imports this
    one.
    """

    @property
    def bandwidth_bps(self) -> int:
        """b: the requested bandwidth per VM."""

    @property
    def duration_s(self) -> float:
        """p: the profiled running time at ``bandwidth_bps``."""

    @property
    def true_s(self) -> float:
        """The true running time at ``bandwidth_bps``; schedulers see p."""


class Demand:
    """Base of all kinds: a job that the network limits, with a running time of
    p·b/b' and an even progress.

    In experiment files:
        ``kind``: the kind's name there and in tables.
        ``summary``: the help text on it.
        ``required``, ``refused``: keys that its entries need, or cannot have.

    Traffic:
        ``network``: it sends.
        ``timed``: it sends for its duration at any rate; otherwise it sends a
        fixed volume.
        ``pattern``: the pairs of senders and receivers.
        ``at_once``: each VM sends to all its receivers at the same time, not
        to one after another.
        ``pauses``: it may send nothing for a while.
        ``ends_computing``: it still computes after its last byte.
        ``cap_limited``: each VM has one receiver and one sender, never pauses,
        and is limited by its own caps alone.
        ``profile``: an elastic job's running time by bandwidth.
        ``own_program``: its VMs run the user's program, whose behaviour is
        unknown.

    Servers:
        ``cores``, ``memory_mib``: slots and memory that each VM takes.
        ``cpu_share``: share of a core that each VM uses to produce data.
        ``cpu_use``: see :data:`CpuUse`.
        ``cpu_estimate``: the ``cpu_use`` that schedulers see; None: the true
        one.
        ``lease_type``, ``wanted_s``: see :class:`Lease`.
    """

    __slots__ = ()
    kind: JobKind = "transfer"
    summary: str = ""
    network: bool = True
    timed: bool = False
    pattern: Pattern = "ring"
    at_once: bool = False
    cpu_share: float = 0.0
    cpu_use: CpuUse = 1.0
    cpu_estimate: CpuUse | None = None
    profile: Profile | None = None
    cores: int = 1
    memory_mib: int = 0
    lease_type: LeaseType | None = None
    wanted_s: float | None = None
    pauses: bool = False
    own_program: bool = False
    required: tuple[str, ...] = ("bandwidth",)
    refused: tuple[str, ...] = ()

    @property
    def cap_limited(self) -> bool:
        return False

    @property
    def ends_computing(self) -> bool:
        return False

    def as_estimated(self) -> Demand:
        """The demand with the estimated CPU use, for schedulers."""
        if self.cpu_estimate is None:
            return self
        # The true use is left out: no policy may read it.
        estimated: Demand = replace(
            cast(Any, self), cpu_use=self.cpu_estimate, cpu_estimate=None
        )
        return estimated

    def record(self) -> dict[str, Any]:
        """The kind's own fields of a job's record in ``events.jsonl``."""
        return {}

    def estimate_s(self, job: SizedJob, granted_bps: float) -> float:
        """The running time in s that schedulers expect at ``granted_bps``."""
        if not self.network:
            return job.duration_s
        return scaled_duration_s(
            job.duration_s, job.bandwidth_bps, granted_bps
        )

    def profiled_s(self, job: SizedJob, bandwidth_bps: float) -> float:
        """The profiled running time p in s, had the job requested
        ``bandwidth_bps`` for the same work.
        """
        return self.estimate_s(job, bandwidth_bps)

    def duration_s(self, job: SizedJob, granted_bps: float) -> float:
        """The modelled running time in s at a constant ``granted_bps``."""
        if not self.network or job.bandwidth_bps == 0:
            return job.true_s
        return scaled_duration_s(job.true_s, job.bandwidth_bps, granted_bps)

    def volume_bits(self, job: SizedJob, granted_bps: float = 0.0) -> float:  # noqa: ARG002 - elastic jobs read it
        """Bits that one VM sends on the wire, counted as reservations are.

        ``granted_bps``: 0 for a job without a reservation.
        """
        return job.true_s * job.bandwidth_bps if self.network else 0.0

    def left_bits(self, job: SizedJob, done: float) -> float:
        """Bits that one VM has still to send at progress ``done`` (0 to 1), for
        a job without a reservation.
        """
        return (1.0 - done) * self.volume_bits(job)

    def remaining_s(
        self,
        job: SizedJob,
        done: float,
        rate_bps: float,
    ) -> float:
        """Seconds from progress ``done`` (0 to 1) to the end at a constant
        ``rate_bps``; infinite if the job never ends at that rate.
        """
        if done >= 1.0:
            return 0.0
        has_volume = self.network and not self.timed
        if has_volume and job.bandwidth_bps > 0 and rate_bps <= 0:
            return math.inf
        return (1.0 - done) * self.duration_s(job, rate_bps)

    def advanced(
        self,
        job: SizedJob,
        done: float,
        rate_bps: float,
        elapsed_s: float,
    ) -> float:
        """The progress ``elapsed_s`` after ``done``, at a constant
        ``rate_bps``; at most 1.
        """
        whole_job_s = self.remaining_s(job, 0.0, rate_bps)
        if whole_job_s == math.inf:
            return done
        return min(1.0, done + elapsed_s / whole_job_s)


@dataclass(frozen=True, slots=True)
class Transfer(Demand):
    """A fixed volume p·b per VM; with a ``profile`` the job is elastic.

    An elastic job at a granted bandwidth B runs for its profile's time τ(B)
    and sends B·τ(B). With ``keeps_volume`` it sends p·b at every bandwidth.
    """

    summary = "limited by the network (default)"

    pattern: Pattern = "ring"
    cpu_share: float = 0.0
    profile: Profile | None = None
    cpu_use: CpuUse = 1.0
    cpu_estimate: CpuUse | None = None
    at_once: bool = False
    keeps_volume: bool = False

    @property
    def cap_limited(self) -> bool:
        # In a shuffle another VM's cap may limit a VM's flows, not its own.
        return self.pattern != "all-to-all"

    def record(self) -> dict[str, Any]:
        if self.profile is None:
            return {}
        return {"profile": asdict(self.profile)}

    # Demand.…(self) in place of super(), which fails here: slots make dataclass
    # replace the class, and super() still refers to the replaced one.

    def estimate_s(self, job: SizedJob, granted_bps: float) -> float:
        if self.profile is not None and granted_bps > 0:
            return self.profile.duration_s(granted_bps)
        return Demand.estimate_s(self, job, granted_bps)

    def profiled_s(self, job: SizedJob, bandwidth_bps: float) -> float:
        return job.duration_s * job.bandwidth_bps / bandwidth_bps

    def duration_s(self, job: SizedJob, granted_bps: float) -> float:
        """An elastic job takes its profile's time, times the factor true_s / p
        by which its stated duration is wrong.
        """
        is_moving = self.network and job.bandwidth_bps > 0
        if self.profile is None or not is_moving:
            return Demand.duration_s(self, job, granted_bps)
        if self.keeps_volume and granted_bps > 0:
            # Unlike in the base, a bandwidth above b gives a time below p.
            return job.true_s * job.bandwidth_bps / granted_bps
        factor = job.true_s / job.duration_s
        return self.profile.duration_s(granted_bps) * factor

    def volume_bits(self, job: SizedJob, granted_bps: float = 0.0) -> float:
        """B·τ(B) for an elastic job, see :class:`Transfer`; without a
        reservation p·b.
        """
        is_elastic = self.profile is not None and self.network
        if not is_elastic or self.keeps_volume or granted_bps <= 0:
            return Demand.volume_bits(self, job)
        return self.duration_s(job, granted_bps) * granted_bps


@dataclass(frozen=True, slots=True)
class DemandCurve(Demand):
    """The bandwidth demand c(x) of an application at progress x (DCloud,
    Section III.B), piecewise constant.

    ``steps`` are pairs ``(x_end, demand_bps)``; ``x_end`` rises to 1.
    ``demand_bps`` is the rate in bit/s at which one VM would send at infinite
    bandwidth, counted as reservations are.
    """

    steps: Steps
    pattern: Pattern = "ring"
    cpu_share: float = 0.0
    cpu_use: CpuUse = 1.0
    cpu_estimate: CpuUse | None = None
    at_once: bool = False
    kind = "demand"
    summary = (
        "limited by the curve in 'demand' too (default where there is one)"
    )
    pauses = True
    required = ("bandwidth", "demand")

    def __post_init__(self) -> None:
        rising = all(start < end for start, end, _ in self.pieces())
        if not self.steps or self.steps[-1][0] != 1.0 or not rising:
            raise ValueError(
                "a demand curve's steps must rise from above 0 to exactly 1"
            )
        # Each step's bytes are a share of the volume, so that must not be 0.
        demands = [demand for _, demand in self.steps]
        if min(demands) < 0 or max(demands) <= 0:
            raise ValueError(
                "a demand curve needs demands of at least 0, one of them above 0"
            )

    @property
    def ends_computing(self) -> bool:
        return self.steps[-1][1] == 0

    def record(self) -> dict[str, Any]:
        return {"demand": {"steps": self.steps}}

    def pieces(self) -> list[tuple[float, float, int]]:
        """``(x_start, x_end, demand_bps)`` of every step, in order."""
        pieces = []
        start = 0.0
        for end, demand_bps in self.steps:
            pieces.append((start, end, demand_bps))
            start = end
        return pieces

    def slowdown(self, bandwidth_bps: float) -> float:
        """∫ max(1, c(x)/b) dx (DCloud, Eq. 1): the running time at a constant
        bandwidth b, as a multiple of τ.
        """
        return sum(
            (end - start) * max(1.0, demand / bandwidth_bps)
            for start, end, demand in self.pieces()
        )

    def unconstrained_s(self, job: SizedJob) -> float:
        """τ in s: the running time at infinite bandwidth.

        Computed from Eq. 1, p = τ ∫ max(1, c(x)/b) dx, with the true time for p.
        """
        return job.true_s / self.slowdown(job.bandwidth_bps)

    def phases(
        self, job: SizedJob, bandwidth_bps: float
    ) -> list[tuple[float, float]]:
        """``(bits, seconds)`` of every step at a constant bandwidth (Eq. 1)."""
        tau_s = self.unconstrained_s(job)
        result = []
        for start, end, demand in self.pieces():
            width_s = (end - start) * tau_s
            slowdown = max(1.0, demand / bandwidth_bps)
            result.append((width_s * demand, width_s * slowdown))
        return result

    def profiled_s(self, job: SizedJob, bandwidth_bps: float) -> float:
        return self.duration_s(job, bandwidth_bps)

    def duration_s(self, job: SizedJob, granted_bps: float) -> float:
        if job.bandwidth_bps == 0:
            return job.true_s
        return self.unconstrained_s(job) * self.slowdown(granted_bps)

    def volume_bits(self, job: SizedJob, granted_bps: float = 0.0) -> float:  # noqa: ARG002 - see Demand
        return self.left_bits(job, 0.0)

    def left_bits(self, job: SizedJob, done: float) -> float:
        # τ times ∫ c(x) dx from ``done`` to 1.
        integral_bps = 0.0
        for start, end, demand_bps in self._pieces_after(done):
            integral_bps += (end - start) * demand_bps
        return self.unconstrained_s(job) * integral_bps

    def remaining_s(
        self,
        job: SizedJob,
        done: float,
        rate_bps: float,
    ) -> float:
        if done >= 1.0:
            return 0.0
        if rate_bps <= 0 and job.bandwidth_bps > 0:
            # Without bandwidth it ends only if it has nothing more to send.
            if any(demand > 0 for _, _, demand in self._pieces_after(done)):
                return math.inf
            return (1.0 - done) * self.unconstrained_s(job)
        if done <= 0.0:
            return self.duration_s(job, rate_bps)
        tau_s = self.unconstrained_s(job)
        return sum(
            (end - start) * tau_s * max(1.0, demand / rate_bps)
            for start, end, demand in self._pieces_after(done)
        )

    def _pieces_after(
        self, done: float
    ) -> Iterator[tuple[float, float, int]]:
        """Parts of :meth:`pieces` that lie after progress ``done``."""
        for start, end, demand_bps in self.pieces():
            if end > done:
                yield max(start, done), end, demand_bps

    def advanced(
        self,
        job: SizedJob,
        done: float,
        rate_bps: float,
        elapsed_s: float,
    ) -> float:
        tau_s = self.unconstrained_s(job)
        left_s = elapsed_s
        # Step by step: within a step progress is proportional to time.
        for start, end, demand in self._pieces_after(done):
            slowdown = 1.0
            if rate_bps > 0:
                slowdown = max(1.0, demand / rate_bps)
            elif demand:
                slowdown = math.inf
            need_s = (end - start) * tau_s * slowdown
            if need_s > left_s:
                return start + left_s / (tau_s * slowdown)
            done = end
            left_s -= need_s
        return done


@dataclass(frozen=True, slots=True)
class Compute(Demand):
    """Processes that send nothing: a parallel job whose VMs are its processes."""

    cpu_use: CpuUse = 1.0
    cpu_estimate: CpuUse | None = None
    kind = "compute"
    summary = "moves nothing"
    network = False
    cpu_share = 1.0
    required = ()
    refused = ("granted", "sweep", "pattern")

    # The base's result without its calls: traces have millions of these jobs.
    def remaining_s(
        self,
        job: SizedJob,
        done: float,
        rate_bps: float,  # noqa: ARG002
    ) -> float:
        return max(0.0, 1.0 - done) * job.true_s


@dataclass(frozen=True, slots=True)
class Lease(Compute):
    """VMs of a size, leased for a time (MBFCBS, Section 1).

    An ``advance`` lease starts at ``wanted_s``, in s from the start of the run;
    an ``immediate`` one on arrival or never; a ``best-effort`` one when there
    is room.
    """

    cores: int = 1
    memory_mib: int = 0
    lease_type: LeaseType | None = None
    wanted_s: float | None = None

    def __post_init__(self) -> None:
        if self.cores < 1 or self.memory_mib < 0:
            raise ValueError("a VM has at least 1 core and 0 MiB of memory")
        if (self.wanted_s is not None) != (self.lease_type == "advance"):
            raise ValueError(
                "a wanted start and an advance reservation go together"
            )

    def record(self) -> dict[str, Any]:
        return {"lease": self.lease_type, "wanted_s": self.wanted_s}


@dataclass(frozen=True, slots=True)
class Command(Transfer):
    """A user's command in each VM; agents generate no traffic and no CPU load.

    ``words`` is the command line. Its volume, duration and CPU use are known
    only from the user, who also states whether it sends (``network``) or
    computes.
    """

    words: tuple[str, ...] = ()
    network: bool = True
    kind: JobKind = field(init=False, default="transfer")
    own_program = True

    def __post_init__(self) -> None:
        if not self.words:
            raise ValueError("a command has at least one word")
        if not self.network:
            object.__setattr__(self, "kind", Compute.kind)

    @property
    def cap_limited(self) -> bool:
        return False

    def record(self) -> dict[str, Any]:
        return {**Transfer.record(self), "command": self.words}

    def profiled_s(self, job: SizedJob, bandwidth_bps: float) -> float:
        """The estimate (p above b): nothing more is known of a command."""
        return Demand.estimate_s(self, job, bandwidth_bps)


@dataclass(frozen=True, slots=True)
class Program(Command):
    """A program whose ranks the testbed launches in the VMs, all at one instant.

    ``ranks_per_vm``: ranks in each VM; with Dask a VM's workers; with Spark the
    cores of a VM's executor, as the client in the first VM is the only rank.
    ``files`` are copied into each VM's working folder, then the command
    ``prepare`` runs there; neither counts as running time. Each text of
    ``expected`` must occur in the output of some rank.
    """

    launch: Launch = "each"
    mpi: MpiLibrary = "openmpi"
    ranks_per_vm: int = 1
    files: tuple[str, ...] = ()
    prepare: tuple[str, ...] = ()
    expected: tuple[str, ...] = ()
    kind: JobKind = field(init=False, default="program")
    summary = (
        "a program that is launched in its VMs, as MPI, Dask and Spark do"
    )
    required = ("bandwidth", "command")
    refused = ("speedup",)

    def __post_init__(self) -> None:
        if self.ranks_per_vm < 1:
            raise ValueError("a program has at least one rank in each VM")
        if not self.words:
            raise ValueError("a program has a command")

    def record(self) -> dict[str, Any]:
        launched: dict[str, Any] = {
            "launch": self.launch,
            "ranks_per_vm": self.ranks_per_vm,
        }
        if self.launch == "mpi":
            launched["mpi"] = self.mpi
        return Command.record(self) | launched


@dataclass(frozen=True, slots=True)
class Iperf3(Demand):
    """iperf3 between the VMs for the job's duration at any rate; the volume is
    the duration times the rate.
    """

    pattern: Pattern = "ring"
    cpu_use: CpuUse = 1.0
    cpu_estimate: CpuUse | None = None
    kind = "iperf3"
    summary = "iperf3 for its duration, at what bandwidth it gets"
    timed = True
    own_program = True
    refused = ("command", "cpu", "profile", "speedup")

    @property
    def cap_limited(self) -> bool:
        return self.pattern != "all-to-all"

    def profiled_s(self, job: SizedJob, bandwidth_bps: float) -> float:  # noqa: ARG002 - see Demand
        return job.duration_s

    def duration_s(self, job: SizedJob, granted_bps: float) -> float:  # noqa: ARG002 - see Demand
        return job.true_s

    def volume_bits(self, job: SizedJob, granted_bps: float = 0.0) -> float:
        return job.true_s * (granted_bps or job.bandwidth_bps)


KINDS: Mapping[JobKind, type[Demand]] = {
    "transfer": Transfer,
    "demand": DemandCurve,
    "compute": Compute,
    "iperf3": Iperf3,
    "program": Program,
}
"""Demand classes by the ``kind`` of an entry in an experiment file."""


def demand_of(
    kind: JobKind,
    pattern: Pattern | None,
    cpu: float | None,
    steps: Steps | None,
    profile: Profile | None,
    command: tuple[str, ...] | None,
    *,
    at_once: bool = False,
) -> Demand:
    """The demand that a job's entry in an experiment file describes.

    ``kind``: any but ``program``. ``cpu``: the ``cpu_share`` of a job that
    sends, the ``cpu_use`` of one that computes.
    """
    pattern = pattern or "ring"
    network = KINDS[kind].network
    cpu_share = cpu or 0.0
    cpu_use = 1.0
    if not network:
        cpu_share = Compute.cpu_share
        cpu_use = cpu or 1.0
    if command is not None:
        return Command(
            cpu_share=cpu_share,
            profile=profile,
            cpu_use=cpu_use,
            words=command,
            network=network,
        )
    if kind == "compute":
        return Compute(cpu_use)
    if kind == "iperf3":
        return Iperf3(pattern)
    if kind == "demand":
        return DemandCurve(
            steps=steps or (),
            pattern=pattern,
            cpu_share=cpu_share,
            at_once=at_once,
        )
    return Transfer(
        pattern=pattern,
        cpu_share=cpu_share,
        profile=profile,
        at_once=at_once,
    )
