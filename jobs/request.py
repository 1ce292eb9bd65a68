"""A job request as every scheduler sees it."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from jobs.demand import CpuUse, Demand, Transfer

TRANSFER = Transfer()
SERVICE_TAG = ("class", "service")
"""The tag of a user-facing service: its end is not known, p = d (DCloud,
Section VI).
"""

Enforcement: TypeAlias = Literal["strict", "work-conserving", "none"]
"""Live limits of reservations: nobody sends above one; unused bandwidth is
lent, and reservations come first; or only links and ports limit, and tenants
share by their TCP.
"""

ENFORCEMENTS: tuple[Enforcement, ...] = get_args(Enforcement)


@dataclass(frozen=True, slots=True)
class JobRequest:
    """The tuple ⟨n, b, p, d⟩ of DCloud with what the other papers and the live
    network add.

    ``duration_s`` is the profiled running time p at ``bandwidth_bps``;
    ``deadline_s`` is d, counted from submission; ``demand`` is what the job
    does. ``true_duration_s`` (default p) is what the job really needs at b: a
    profiling error makes them differ, and no policy may read it. ``estimate_s``
    is the running time that the user stated, where one was stated: all that a
    scheduler may plan with unless it is given accurate times
    (:attr:`stated_s`). ``granted_bps`` is the bandwidth a scripted policy
    starts it at. ``value`` is its reward. ``after`` names a job: this one
    arrives when that one has left, and not before ``submit_s``. ``user`` and
    ``queue`` are names that a trace bears.
    """

    id: str
    submit_s: float
    n_vms: int
    bandwidth_bps: int
    duration_s: float
    deadline_s: float | None = None
    demand: Demand = TRANSFER
    granted_bps: int | None = None
    true_duration_s: float | None = None
    application: str | None = None
    value: float = 0.0
    tags: tuple[tuple[str, str], ...] = ()
    after: str | None = None
    estimate_s: float | None = None
    user: str | None = None
    queue: str | None = None

    def __post_init__(self) -> None:
        if self.n_vms < 1:
            raise ValueError(
                f"job {self.id}: a job needs at least 1 VM, not {self.n_vms}"
            )
        if self.bandwidth_bps < 0:
            raise ValueError(f"job {self.id}: bandwidth is negative")
        # `not >` in place of `<=`, as NaN is neither above nor below.
        if not self.duration_s > 0:
            raise ValueError(f"job {self.id}: duration must be above 0 s")
        if self.estimate_s is not None and not self.estimate_s > 0:
            raise ValueError(
                f"job {self.id}: a stated running time must be above 0 s"
            )
        for uses in (self.demand.cpu_use, self.demand.cpu_estimate):
            if not _are_uses(uses, self.n_vms):
                raise ValueError(
                    f"job {self.id}: CPU use is one share above 0 and up to 1, or one per process"
                )

    def to_json(self) -> dict[str, Any]:
        """The flat record of ``events.jsonl``; fields that its demand lacks
        have their default.
        """
        demand = self.demand
        # One form for all kinds; what a kind alone has replaces these below.
        flat = {
            "id": self.id,
            "submit_s": self.submit_s,
            "n_vms": self.n_vms,
            "bandwidth_bps": self.bandwidth_bps,
            "duration_s": self.duration_s,
            "deadline_s": self.deadline_s,
            "kind": demand.kind,
            "pattern": demand.pattern,
            "demand": None,
            "cpu_share": demand.cpu_share,
            "granted_bps": self.granted_bps,
            "true_duration_s": self.true_duration_s,
            "application": self.application,
            "value": self.value,
            "tags": self.tags,
            "after": self.after,
            "estimate_s": self.estimate_s,
            "cpu_use": demand.cpu_use,
            "cpu_estimate": demand.cpu_estimate,
            "user": self.user,
            "queue": self.queue,
            "profile": None,
            "cores": demand.cores,
            "memory_mib": demand.memory_mib,
            "lease": None,
            "wanted_s": None,
            "command": None,
        }
        if demand.at_once:
            flat["at_once"] = True
        return flat | demand.record()

    @property
    def true_s(self) -> float:
        """The running time that it really needs at ``bandwidth_bps``."""
        if self.true_duration_s is None:
            return self.duration_s
        return self.true_duration_s

    @property
    def stated_s(self) -> float:
        """The running time its user stated; ``duration_s`` where none did."""
        if self.estimate_s is None:
            return self.duration_s
        return self.estimate_s

    @property
    def cpu_uses(self) -> tuple[float, ...]:
        """The CPU use of each process."""
        uses: CpuUse = self.demand.cpu_use
        return uses if isinstance(uses, tuple) else (uses,) * self.n_vms

    @property
    def deadline_at_s(self) -> float | None:
        """The deadline on the run's clock."""
        if self.deadline_s is None:
            return None
        return self.submit_s + self.deadline_s

    def is_best_effort(self, rate_bps: float) -> bool:
        """True where a job that wants bandwidth has none reserved: it shares
        what others leave.
        """
        wants = self.bandwidth_bps > 0 and self.demand.network
        return wants and rate_bps == 0


class JobStream(Sequence[JobRequest]):
    """Jobs in order of submission, none of which waits for another.

    Whoever plays them may meet them one by one and forget those that have left.
    """


def _are_uses(
    uses: CpuUse | None,
    n: int,
) -> bool:
    """Checks for shares of a CPU: one for all, or one for each of ``n``
    processes.
    """
    if isinstance(uses, tuple):
        return len(uses) == n and all(0.0 < use <= 1.0 for use in uses)
    return uses is None or 0.0 < uses <= 1.0
