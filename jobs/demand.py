"""A job's demand: its volume, its duration at a bandwidth, and how both follow
its progress.

The *estimate* knows nothing of the application: p' = p·b/b' (DCloud, Section
III.B, the inversely proportional rule), an upper bound. The *model* is what
happens: p·b/b' of what the network limits, the profile's time of an elastic job
(JSA, Section II.C), DCloud's Eq. 1 of a demand curve. A new kind of job is a
class here, with its plan for the live network in
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
"""A program's launcher: none but the agents, ``mpirun``, Dask's scheduler and
workers, or Spark's master and workers.
"""
MpiLibrary = Literal["openmpi", "mpich"]
LeaseType = Literal["advance", "immediate", "best-effort"]
CpuUse = float | tuple[float, ...]
"""The share of a node's CPU that a process uses alone: one for all processes,
or one each.
"""
Steps = tuple[tuple[float, int], ...]


def scaled_duration_s(
    duration_s: float,
    bandwidth_bps: float,
    granted_bps: float,
) -> float:
    """p·b/b': the estimated running time at ``granted_bps``; never below p."""
    if bandwidth_bps <= 0:
        return duration_s
    if granted_bps <= 0:
        raise ValueError(
            "a job that needs bandwidth cannot be estimated at 0 bit/s"
        )
    return duration_s * max(1.0, bandwidth_bps / granted_bps)


class SizedJob(Protocol):
    """The size of a job, as far as its demand reads it.

    :class:`jobs.request.JobRequest` is it; a request holds its demand, so the
    demand knows of the request no more than this.
    """

    @property
    def bandwidth_bps(self) -> int:
        """b, for each VM."""

    @property
    def duration_s(self) -> float:
        """p: the profiled running time at ``bandwidth_bps``."""

    @property
    def true_s(self) -> float:
        """The running time that it really needs at ``bandwidth_bps``."""


class Demand:
    """Base of all kinds: network-limited, progress proportional to time, p·b/b'
    at every rate.

    ``kind`` is the word for it in files and tables, ``summary`` its help there.
    ``network``: whether it sends; ``timed``: for its duration, whatever its
    rate, instead of a volume. ``pattern``: who sends to whom; ``at_once``: each VM
    to all its receivers at the same time, not to one after another.
    ``cpu_share``: the share of a core that each VM burns while it produces data. ``cpu_use``:
    see :data:`CpuUse`; ``cpu_estimate`` is what schedulers read in its place
    where they are not given the truth. ``profile``: the running time at every
    bandwidth that an elastic job can be given. Each VM takes ``cores`` slots
    and ``memory_mib`` of its server. ``cap_limited``: each VM sends to one,
    from one, without a pause, as fast as its own caps let it. ``pauses``: it
    may send nothing for a while; ``ends_computing``: after its last byte, too.
    ``own_program``: its VMs run a program of their own, whose behaviour is
    unknown. ``required`` and ``refused`` are the keys that an entry of this
    kind in a file needs or cannot have.
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
        """Replaces the CPU use by the estimate that schedulers see."""
        if self.cpu_estimate is None:
            return self
        # Nothing is left to tell the truth from: no policy that gets this
        # can read both.
        known: Demand = replace(
            cast(Any, self), cpu_use=self.cpu_estimate, cpu_estimate=None
        )
        return known

    def record(self) -> dict[str, Any]:
        """Fields of the flat record in ``events.jsonl`` that this kind alone
        has.
        """
        return {}

    def estimate_s(self, job: SizedJob, granted_bps: float) -> float:
        """The running time that a scheduler states at ``granted_bps``."""
        if not self.network:
            return job.duration_s
        return scaled_duration_s(
            job.duration_s, job.bandwidth_bps, granted_bps
        )

    def profiled_s(self, job: SizedJob, bandwidth_bps: float) -> float:
        """The running time p to state when the same work asks for
        ``bandwidth_bps`` instead.
        """
        return self.estimate_s(job, bandwidth_bps)

    def duration_s(self, job: SizedJob, granted_bps: float) -> float:
        """The modelled running time at a constant ``granted_bps``."""
        if not self.network or job.bandwidth_bps == 0:
            return job.true_s
        return scaled_duration_s(job.true_s, job.bandwidth_bps, granted_bps)

    def volume_bits(self, job: SizedJob, granted_bps: float = 0.0) -> float:  # noqa: ARG002 - of an elastic job it matters
        """Bits that one VM sends, as reserved (on the wire); at 0 bit/s nothing
        is reserved.
        """
        return job.true_s * job.bandwidth_bps if self.network else 0.0

    def left_bits(self, job: SizedJob, done: float) -> float:
        """Bits that one VM of a job without a reservation has still to send at
        progress ``done``.
        """
        return (1.0 - done) * self.volume_bits(job)

    def remaining_s(
        self,
        job: SizedJob,
        done: float,
        rate_bps: float,
    ) -> float:
        """Time from progress ``done`` (0 to 1) to the end at a constant
        ``rate_bps``.
        """
        if done >= 1.0:
            return 0.0
        moves = self.network and not self.timed and job.bandwidth_bps > 0
        if moves and rate_bps <= 0:
            return math.inf
        return (1.0 - done) * self.duration_s(job, rate_bps)

    def advanced(
        self,
        job: SizedJob,
        done: float,
        rate_bps: float,
        elapsed_s: float,
    ) -> float:
        """The progress after ``elapsed_s`` more at a constant ``rate_bps``, at
        most 1.
        """
        whole_s = self.remaining_s(job, 0.0, rate_bps)
        if whole_s == math.inf:
            return done
        return min(1.0, done + elapsed_s / whole_s)


@dataclass(frozen=True, slots=True)
class Transfer(Demand):
    """A fixed volume p·b per VM; with a ``profile`` the job is elastic.

    ``keeps_volume``: an elastic job moves p·b whatever it is given, and not all
    that an option carries in the time of its profile.
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
        # In a shuffle others' limits may hold a VM: a queue at its cap says
        # nothing of its own.
        return self.pattern != "all-to-all"

    def record(self) -> dict[str, Any]:
        if self.profile is None:
            return {}
        return {"profile": asdict(self.profile)}

    # By the base's name, not by super(): a dataclass with slots is a second
    # class, which super() without arguments does not know.

    def estimate_s(self, job: SizedJob, granted_bps: float) -> float:
        if self.profile is not None and granted_bps > 0:
            return self.profile.duration_s(granted_bps)
        return Demand.estimate_s(self, job, granted_bps)

    def profiled_s(self, job: SizedJob, bandwidth_bps: float) -> float:
        return job.duration_s * job.bandwidth_bps / bandwidth_bps

    def duration_s(self, job: SizedJob, granted_bps: float) -> float:
        """An elastic job takes its profile's time, off by as much as its true
        duration is.
        """
        moves = self.network and job.bandwidth_bps > 0
        if self.profile is None or not moves:
            return Demand.duration_s(self, job, granted_bps)
        if self.keeps_volume and granted_bps > 0:
            # Faster than p, too, where it is given more than b.
            return job.true_s * job.bandwidth_bps / granted_bps
        error = job.true_s / job.duration_s
        return self.profile.duration_s(granted_bps) * error

    def volume_bits(self, job: SizedJob, granted_bps: float = 0.0) -> float:
        """An elastic job uses all of the option it was given, as long as its
        profile says: B·τ(B).

        Without a reservation it moves what it moves at its own bandwidth.
        """
        is_elastic = self.profile is not None and self.network
        if not is_elastic or self.keeps_volume or granted_bps <= 0:
            return Demand.volume_bits(self, job)
        return self.duration_s(job, granted_bps) * granted_bps


@dataclass(frozen=True, slots=True)
class DemandCurve(Demand):
    """The bandwidth demand c(x) of an application at progress x (DCloud,
    Section III.B).

    Piecewise constant: ``steps`` holds ``(x_end, demand_bps)`` with ``x_end``
    rising to 1. The demand is what one VM would send per second at infinite
    bandwidth, in bit/s as reserved.
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
        # Zeros alone would leave no volume, of which each step's bytes are
        # a share.
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
        """``(x_start, x_end, demand_bps)`` of every step."""
        pieces = []
        start = 0.0
        for end, demand_bps in self.steps:
            pieces.append((start, end, demand_bps))
            start = end
        return pieces

    def mean_bps(self) -> float:
        """∫ c(x) dx in bit/s."""
        return sum(
            (end - start) * demand for start, end, demand in self.pieces()
        )

    def slowdown(self, bandwidth_bps: float) -> float:
        """∫ max(1, c(x)/b) dx: running time over τ at constant bandwidth b
        (DCloud, Eq. 1).
        """
        return sum(
            (end - start) * max(1.0, demand / bandwidth_bps)
            for start, end, demand in self.pieces()
        )

    def unconstrained_s(self, job: SizedJob) -> float:
        """τ: the running time at infinite bandwidth, from p = τ ∫ max(1,
        c(x)/b) dx.
        """
        return job.true_s / self.slowdown(job.bandwidth_bps)

    def phases(
        self, job: SizedJob, bandwidth_bps: float
    ) -> list[tuple[float, float]]:
        """Bits and seconds of every step at constant bandwidth (Eq. 1)."""
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
        return self.unconstrained_s(job) * self.mean_bps()

    def left_bits(self, job: SizedJob, done: float) -> float:
        mean_bps = 0.0
        for start, end, demand_bps in self._pieces_after(done):
            mean_bps += (end - start) * demand_bps
        return self.unconstrained_s(job) * mean_bps

    def remaining_s(
        self,
        job: SizedJob,
        done: float,
        rate_bps: float,
    ) -> float:
        if done >= 1.0:
            return 0.0
        if rate_bps <= 0 and job.bandwidth_bps > 0:
            # At 0 bit/s only an application that wants none for the rest of its
            # course ends.
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
        """The steps from progress ``done`` on, the first of them cut there."""
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
        for start, end, demand in self._pieces_after(done):
            slowdown = 1.0
            if rate_bps > 0:
                slowdown = max(1.0, demand / rate_bps)
            elif demand:
                slowdown = math.inf
            # Step by step: in each the rate and the demand are constant, so
            # its time is exact.
            need_s = (end - start) * tau_s * slowdown
            if need_s > left_s:
                return start + left_s / (tau_s * slowdown)
            done = end
            left_s = left_s - need_s
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

    def remaining_s(
        self,
        job: SizedJob,
        done: float,
        rate_bps: float,  # noqa: ARG002
    ) -> float:
        return max(0.0, 1.0 - done) * job.true_s


@dataclass(frozen=True, slots=True)
class Lease(Compute):
    """VMs of a size, for a time (MBFCBS, Section 1).

    An ``advance`` reservation is wanted at ``wanted_s`` on the run's clock, an
    ``immediate`` one on arrival or not at all, a ``best-effort`` one whenever
    there is room.
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
    """The application's own command in each VM, instead of moving p·b or
    burning CPU.

    The rest of the request is then what its user says of it; ``network`` False:
    that it computes.
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
        """Of a command nothing is known: the estimate, and p where there is
        more bandwidth.
        """
        return Demand.estimate_s(self, job, bandwidth_bps)


@dataclass(frozen=True, slots=True)
class Program(Command):
    """A program whose ranks the testbed launches in the VMs, all at one instant.

    ``ranks_per_vm`` of them in each VM; with Dask so many workers, with Spark an
    executor's cores, and one rank, the client, in the first VM. ``files`` are
    copied into each VM's working folder, then ``prepare`` is run there; neither
    counts. Each text of ``expected`` has to be in some rank's output.
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
    """iperf3 between the VMs for the job's duration; its volume is what its
    rate gives.
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
"""The demand of each ``kind`` of entry in a file."""


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
    """The demand that a job's entry in a file describes."""
    way = pattern or "ring"
    network = KINDS[kind].network
    # ``cpu`` is of a job that sends what it burns while it produces data, of
    # one that computes its use of the node.
    share = cpu or 0.0
    use = 1.0
    if not network:
        share = Compute.cpu_share
        use = cpu or 1.0
    if command is not None:
        return Command(
            "ring", share, profile, use, words=command, network=network
        )
    if kind == "transfer":
        return Transfer(way, share, profile, at_once=at_once)
    if kind == "demand":
        return DemandCurve(steps or (), way, share, at_once=at_once)
    return Compute(use) if kind == "compute" else Iperf3(way)
