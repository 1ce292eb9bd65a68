"""A job's demand: its volume, its duration at a bandwidth, and how both follow
its progress.

The *estimate* knows nothing of the application: p' = p·b/b' (DCloud, Section
III.B, the inversely proportional rule), an upper bound. The *model* is what
happens: p·b/b' for a job that the network limits, the profile's time for an
elastic job (JSA, Section II.C), DCloud's Eq. 1 for a demand curve. A new kind
of job is a class here, with its plan for the live network in
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
"""The share of a node's CPU that a process uses when it is alone there: one
number for all processes, or one for each.
"""
Steps = tuple[tuple[float, int], ...]
"""``(x_end, demand_bps)`` for each step of a demand curve."""


def scaled_duration_s(
    duration_s: float,
    bandwidth_bps: float,
    granted_bps: float,
) -> float:
    """p·b/b': the estimated running time at ``granted_bps``; never below p.

    Raises ValueError at 0 bit/s for a job that needs bandwidth.
    """
    if bandwidth_bps <= 0:
        return duration_s
    if granted_bps <= 0:
        raise ValueError(
            "a job that needs bandwidth cannot be estimated at 0 bit/s"
        )
    return duration_s * max(1.0, bandwidth_bps / granted_bps)


class SizedJob(Protocol):
    """The part of a job request that its demand reads.

    A protocol, because :class:`jobs.request.JobRequest` holds its demand and
    imports this module.
    """

    @property
    def bandwidth_bps(self) -> int:
        """b: the bandwidth that each VM asks for."""

    @property
    def duration_s(self) -> float:
        """p: the profiled running time at ``bandwidth_bps``."""

    @property
    def true_s(self) -> float:
        """The running time that the job really needs at ``bandwidth_bps``."""


class Demand:
    """Base of all kinds: network-limited, progress proportional to time, p·b/b'
    at every rate.

    In files: ``kind`` is its word there and in tables, ``summary`` the help on
    it. ``required`` and ``refused`` are the keys that an entry of this kind
    needs or cannot have.

    Traffic: ``network``: True if it sends; ``timed``: True if it sends for its
    duration at whatever rate, False if it sends a volume. ``pattern``: who sends
    to whom; ``at_once``: each VM to all its receivers at the same time, not to
    one after another. ``pauses``: it may send nothing for a while;
    ``ends_computing``: also after its last byte. ``cap_limited``: each VM sends
    to one receiver and receives from one sender, without a pause, as fast as its
    own caps let it. ``profile``: the running time at every bandwidth that an
    elastic job can be given. ``own_program``: its VMs run a program of their
    own, whose behaviour is unknown.

    Servers: each VM takes ``cores`` slots and ``memory_mib`` of its server.
    ``cpu_share``: the share of a core that each VM burns while it produces
    data. ``cpu_use``: see :data:`CpuUse`; ``cpu_estimate``: the use that
    schedulers see, None where they see the true one.
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
        """The demand as schedulers see it, with the estimated CPU use."""
        if self.cpu_estimate is None:
            return self
        # The result holds no trace of the true use, which no policy may read.
        estimated: Demand = replace(
            cast(Any, self), cpu_use=self.cpu_estimate, cpu_estimate=None
        )
        return estimated

    def record(self) -> dict[str, Any]:
        """Fields that only this kind adds to a job's record in
        ``events.jsonl``.
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
        """The running time p that the same work states where it asks for
        ``bandwidth_bps``.
        """
        return self.estimate_s(job, bandwidth_bps)

    def duration_s(self, job: SizedJob, granted_bps: float) -> float:
        """The modelled running time at a constant ``granted_bps``."""
        if not self.network or job.bandwidth_bps == 0:
            return job.true_s
        return scaled_duration_s(job.true_s, job.bandwidth_bps, granted_bps)

    def volume_bits(self, job: SizedJob, granted_bps: float = 0.0) -> float:  # noqa: ARG002 - elastic jobs read it
        """Bits that one VM sends, on the wire as reservations count.

        ``granted_bps``: 0 for a job without a reservation.
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

    An elastic job's volume is what the granted bandwidth carries in its
    profile's time. ``keeps_volume``: it is p·b at every bandwidth.
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
        # In a shuffle a VM may wait for the limits of others: then its own cap
        # does not limit it.
        return self.pattern != "all-to-all"

    def record(self) -> dict[str, Any]:
        if self.profile is None:
            return {}
        return {"profile": asdict(self.profile)}

    # Demand.…(self) in place of super(): with slots, dataclass makes a second
    # class, and super() without arguments knows only the first.

    def estimate_s(self, job: SizedJob, granted_bps: float) -> float:
        if self.profile is not None and granted_bps > 0:
            return self.profile.duration_s(granted_bps)
        return Demand.estimate_s(self, job, granted_bps)

    def profiled_s(self, job: SizedJob, bandwidth_bps: float) -> float:
        return job.duration_s * job.bandwidth_bps / bandwidth_bps

    def duration_s(self, job: SizedJob, granted_bps: float) -> float:
        """An elastic job takes its profile's time, in error by the same factor
        as its stated duration.
        """
        is_moving = self.network and job.bandwidth_bps > 0
        if self.profile is None or not is_moving:
            return Demand.duration_s(self, job, granted_bps)
        if self.keeps_volume and granted_bps > 0:
            # More than b makes it faster than p.
            return job.true_s * job.bandwidth_bps / granted_bps
        factor = job.true_s / job.duration_s
        return self.profile.duration_s(granted_bps) * factor

    def volume_bits(self, job: SizedJob, granted_bps: float = 0.0) -> float:
        """An elastic job sends at its granted B for its profile's time: B·τ(B).

        Without a reservation it sends p·b.
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
        # Each step's bytes are a share of the volume, which zeros alone would
        # leave empty.
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
        return self.left_bits(job, 0.0)

    def left_bits(self, job: SizedJob, done: float) -> float:
        # ∫ c(x) dx from ``done`` to 1.
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
            # At 0 bit/s an application ends only if no later step sends.
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
        # In one step the rate and the demand are constant: its time is exact.
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

    # As the base's, in one step: traces have millions of these jobs.
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
    """An application's own command in each VM, in place of traffic and CPU use
    that agents make.

    Volume, duration and CPU use are then only what its user states. ``network``
    is False where the user states that it computes.
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
        """The estimate, as nothing is known of a command: p where it has more
        bandwidth than b.
        """
        return Demand.estimate_s(self, job, bandwidth_bps)


@dataclass(frozen=True, slots=True)
class Program(Command):
    """A program whose ranks the testbed launches in the VMs, all at one instant.

    ``ranks_per_vm``: ranks in each VM; with Dask its workers, with Spark its
    executor's cores, where the client in the first VM is the only rank.
    ``files`` are copied into each VM's working folder, then the command
    ``prepare`` runs there; neither counts as running time. Each text of
    ``expected`` has to be in some rank's output.
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
    """iperf3 between the VMs for the job's duration; its volume follows from
    its rate.
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
    """The demand that a job's entry in a file describes.

    ``kind`` is any but ``program``. ``cpu`` is the ``cpu_share`` of a job that
    sends, and the ``cpu_use`` of one that computes.
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
