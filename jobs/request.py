"""A job request as every scheduler sees it, and the demand curve of the application behind it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from jobs.profile import Profile

Pattern = Literal["ring", "permutation", "all-to-all"]
JobKind = Literal["transfer", "demand", "compute"]
LeaseType = Literal["advance", "immediate", "best-effort"]

SERVICE_TAG = ("class", "service")
"""The tag of a user-facing service: its end is not known, p = d (DCloud, Section VI)."""


@dataclass(frozen=True)
class DemandCurve:
    """The bandwidth demand c(x) of an application at progress x (DCloud, Section III.B).

    Piecewise constant: ``steps`` holds ``(x_end, demand_bps)`` with ``x_end`` rising to 1. The
    demand is what one VM would send per second at infinite bandwidth, in bit/s as reserved.
    """

    steps: tuple[tuple[float, int], ...]

    def __post_init__(self) -> None:
        ends = [x for x, _ in self.steps]
        rising = all(a < b for a, b in zip([0.0, *ends], ends, strict=False))
        if not ends or ends[-1] != 1.0 or not rising:
            raise ValueError("a demand curve's steps must rise from above 0 to exactly 1")
        if any(c < 0 for _, c in self.steps) or not any(c > 0 for _, c in self.steps):
            raise ValueError("a demand curve needs demands of at least 0, one of them above 0")

    def pieces(self) -> tuple[tuple[float, int], ...]:
        """``(width, demand_bps)`` of every step; the widths sum to 1."""
        start, out = 0.0, []
        for end, demand in self.steps:
            out.append((end - start, demand))
            start = end
        return tuple(out)

    def mean_bps(self) -> float:
        """∫ c(x) dx in bit/s."""
        return sum(width * demand for width, demand in self.pieces())

    def slowdown(self, bandwidth_bps: float) -> float:
        """∫ max(1, c(x)/b) dx: running time over τ at constant bandwidth b (DCloud, Eq. 1)."""
        return sum(width * max(1.0, demand / bandwidth_bps) for width, demand in self.pieces())


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The tuple ⟨n, b, p, d⟩ of DCloud with what the other papers and the live world add.

    ``duration_s`` is the profiled running time p at ``bandwidth_bps``; ``deadline_s`` is d,
    counted from submission. ``true_duration_s`` (default p) is what the job really needs at b: a
    profiling error makes them differ, and no policy may read it. ``granted_bps`` is the
    bandwidth a scripted policy starts it at. ``cpu_share`` is the share of a core that each VM
    burns while it produces data. ``profile`` holds the running time at every bandwidth that an
    elastic job can be given, where one is known (JSA, Section II.C); ``value`` is its reward.
    ``after`` names a job: this one arrives when that one has left,
    and not before ``submit_s``.

    Of parallel jobs, whose VMs are their processes: ``estimate_s`` is the running time that the
    user stated, where one was stated: all that a scheduler may plan with unless it is given
    accurate times (:attr:`stated_s`). ``cpu_use`` is the share of a node's CPU that a process uses
    when nothing else runs there: one number for all of them, or one each; ``cpu_estimate`` is what
    schedulers are told of it, where that is not the truth. ``user`` and ``queue`` are names that a
    trace bears.

    Of leases: each VM takes ``cores`` slots and ``memory_mib`` of its server. ``lease`` is its
    type: an ``advance`` reservation is wanted at ``wanted_s`` on the run's clock, an ``immediate``
    one on arrival or not at all, a ``best-effort`` one whenever there is room (MBFCBS, Section 1).

    ``command`` is what each VM runs on the live network in place of moving p·b or burning CPU; the
    rest of the request is then what its user says of it.
    """

    id: str
    submit_s: float
    n_vms: int
    bandwidth_bps: int
    duration_s: float
    deadline_s: float | None = None
    kind: JobKind = "transfer"
    pattern: Pattern = "ring"
    demand: DemandCurve | None = None
    cpu_share: float = 0.0
    granted_bps: int | None = None
    true_duration_s: float | None = None
    application: str | None = None
    value: float = 0.0
    tags: tuple[tuple[str, str], ...] = field(default=())
    after: str | None = None
    estimate_s: float | None = None
    cpu_use: float | tuple[float, ...] = 1.0
    cpu_estimate: float | tuple[float, ...] | None = None
    user: str | None = None
    queue: str | None = None
    profile: Profile | None = None
    cores: int = 1
    memory_mib: int = 0
    lease: LeaseType | None = None
    wanted_s: float | None = None
    command: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        if self.n_vms < 1:
            raise ValueError(f"job {self.id}: a job needs at least 1 VM, not {self.n_vms}")
        if self.bandwidth_bps < 0:
            raise ValueError(f"job {self.id}: bandwidth is negative")
        if not self.duration_s > 0:
            raise ValueError(f"job {self.id}: duration must be above 0 s")
        if (self.demand is not None) != (self.kind == "demand"):
            raise ValueError(f"job {self.id}: a demand curve and kind 'demand' go together")
        if self.estimate_s is not None and not self.estimate_s > 0:
            raise ValueError(f"job {self.id}: a stated running time must be above 0 s")
        if not all(_are_uses(uses, self.n_vms) for uses in (self.cpu_use, self.cpu_estimate)):
            raise ValueError(
                f"job {self.id}: CPU use is one share above 0 and up to 1, or one per process"
            )

        if self.cores < 1 or self.memory_mib < 0:
            raise ValueError(f"job {self.id}: a VM has at least 1 core and 0 MiB of memory")
        if (self.wanted_s is not None) != (self.lease == "advance"):
            raise ValueError(
                f"job {self.id}: a wanted start and an advance reservation go together"
            )

    def to_json(self) -> dict[str, Any]:
        """What :func:`dataclasses.asdict` gives, in a tenth of the time."""
        record = {name: getattr(self, name) for name in _FIELDS}
        for name in ("demand", "profile"):
            if record[name] is not None:
                record[name] = asdict(record[name])
        return record

    @property
    def stated_s(self) -> float:
        """The running time its user stated; ``duration_s`` where none did."""
        return self.duration_s if self.estimate_s is None else self.estimate_s

    @property
    def cpu_uses(self) -> tuple[float, ...]:
        """The CPU use of each process."""
        if not isinstance(self.cpu_use, tuple):
            return (self.cpu_use,) * self.n_vms
        return self.cpu_use

    @property
    def deadline_at_s(self) -> float | None:
        """The deadline on the run's clock."""
        return None if self.deadline_s is None else self.submit_s + self.deadline_s


_FIELDS = tuple(each.name for each in fields(JobRequest))


class JobStream(Sequence[JobRequest]):
    """Jobs in order of submission, none of which waits for another.

    Whoever plays them may meet them one by one and forget those that have left.
    """


def _are_uses(uses: float | tuple[float, ...] | None, n: int) -> bool:
    """Whether these are shares of a CPU: one for all, or one for each of ``n`` processes."""
    if isinstance(uses, tuple):
        return len(uses) == n and all(0.0 < use <= 1.0 for use in uses)
    return uses is None or 0.0 < uses <= 1.0
