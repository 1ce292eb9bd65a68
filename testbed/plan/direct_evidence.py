"""Direct evidence on live jobs: delays of their own traffic and programs. Pure.

If all jobs of a run have complete direct evidence, it alone decides on the
run's fidelity. Otherwise the checks of the machine count too: full processors,
a switch that waits, stolen time, late wake-ups. A job's measured time is no
evidence.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from testbed.plan.fidelity import (
    JOB_SHARES,
    Finding,
    Level,
    graded_finding,
    quantile,
)

Kind = Literal[
    "ring",
    "shuffle",
    "one VM",
    "demand curve",
    "iperf3",
    "compute",
    "command",
    "best effort",
]
"""Kinds of jobs by the evidence on them; a permutation counts as a ring."""

AT_RATE = frozenset[Kind]({"ring", "shuffle", "iperf3"})
"""Kinds that send at their rate all the time."""
CURVES = frozenset[Kind]({"demand curve"})
"""Kinds that send what their demand curve asks for, at most at their rate."""
COUNTED = AT_RATE | CURVES
"""Kinds whose traffic is compared with their rate, or with their demand curve
at that rate.
"""
PACED = CURVES | {"one VM"}
"""Kinds whose agents keep a pace of their own and report the time they lost."""
OFFLINE = frozenset[Kind]({"one VM", "compute"})
"""Kinds without network traffic: a switch that stands still delays none."""
INDIRECT = frozenset(
    {
        "preflight",
        "processor idle",
        "stolen time",
        "starved switch",
        "lateness",
    }
)
"""Names of the checks of the machine; they look at no job."""

SUSPECT, INVALID = JOB_SHARES
BAND = 0.05
"""Default share of its time by which a job may be late."""
NAMED = 3
"""Largest number of jobs named in a reason."""
LEAST_WATCHED = 0.5
"""Smallest share of a job's time over which its traffic must be counted."""


@dataclass(frozen=True)
class JobEvidence:
    """Evidence of a job that ran. Times are in s of wall time.

    - ``length_s``: the job's planned time, from ``began_s`` on.
    - ``watched_s``: the part of its time over which its traffic was counted.
    - ``disturbed_s``: time not counted, as the experiment itself stopped it.
    - ``missing_s``: the time that its rate needs for its missing traffic, of
      the VM with the most; counted traffic is extrapolated to all of the job's
      time. ``tail_s``: the part between the last count and the last byte.
    - ``excess``: traffic beyond a limit, as a share of the limit's rate.
    - ``waited_s``: the longest time for which one of its agents was ready and
      had no processor.
    - ``lost_s``: the time by which an agent with a pace of its own was behind
      at its end; None: not known.
    - ``stood_s``: the time in which the switch or an agent made no progress.
    - ``held_s``: the largest possible delay of a person's program, or of VMs
      that compute, by waits for a processor; for traffic without a reservation,
      the time by which it fell behind its VMs' caps. None: not known.
    - ``queued``: the share of samples in which its packets waited at one of its
      limiters, an estimate of the share of time in which the network limited
      it.
    - ``drops``: packets that its classes on links dropped, without
      ``full_drops``: those dropped while its reservation was full, as several
      of its VMs sent to one. ``resent_s``: the longest time that sending
      ``drops`` again takes.
    - ``moving_s``: the time beyond the usual that its moves took: ending it and
      resuming it elsewhere.
    - ``short_s``: the time that was left to run when its reservation's end
      stopped it, as it had begun late.
    - ``cut_off``: its reservation's end stopped it, though it only computes, and
      needs no more time than was planned.
    - ``late_wake_s``: 99th percentile of the lateness, while the job ran, with
      which the run's own process woke up; it starts, stops and moves jobs.
    - ``band``: the share of its time by which the job may be late.
    """

    job_id: str
    kind: Kind
    length_s: float
    began_s: float = 0.0
    watched_s: float = 0.0
    disturbed_s: float = 0.0
    missing_s: float = 0.0
    tail_s: float = 0.0
    excess: float = 0.0
    waited_s: float = 0.0
    lost_s: float | None = None
    stood_s: float = 0.0
    held_s: float | None = None
    queued: float = 0.0
    drops: int = 0
    full_drops: int = 0
    resent_s: float = 0.0
    moving_s: float = 0.0
    short_s: float = 0.0
    cut_off: bool = False
    late_wake_s: float = 0.0
    band: float = BAND

    def record(self) -> dict[str, object]:
        """The evidence as a value of the event ``job_ended``."""
        rounded = {
            name: round(value, 4)
            for name, value in vars(self).items()
            # The record is of jobs that ended by themselves.
            if isinstance(value, int | float) and name != "cut_off"
        }
        return {
            "kind": self.kind,
            "possible_error": self.possible_error,
            **rounded,
        }

    def _share(self, duration_s: float) -> float:
        """A duration as a share of the job's time."""
        return duration_s / max(self.length_s, 1e-9)

    @property
    def is_complete(self) -> bool:
        """True if all that affects its time was observed."""
        if self.kind == "one VM":
            return self.lost_s is not None
        if self.kind == "compute":
            return self.is_unhindered
        watched = self.watched_s >= LEAST_WATCHED * self.length_s
        if self.kind == "best effort":
            return watched and self.is_unhindered
        return watched and self.kind in COUNTED

    @property
    def unseen(self) -> str:
        """The part of the job that was not observed, in words."""
        watched = self._share(self.watched_s)
        if self.kind in COUNTED or self.kind == "best effort":
            if watched < LEAST_WATCHED:
                return (
                    f"its traffic was counted for {watched:.0%} of its time"
                )
            lack_s = self.held_s or 0.0
            return (
                f"{lack_s:.2f} s of its traffic lack, and its links may "
                "have been full"
            )
        if self.held_s is None:
            return "its pace is its own"
        if not self.is_unhindered:
            return f"it waited {self.held_s:.2f} s for a processor"
        return "its traffic is its own"

    @property
    def missing(self) -> float:
        """Share of its traffic that did not arrive."""
        return self._share(self.missing_s)

    @property
    def late(self) -> float:
        """Share of its time by which an agent ended behind its own pace.

        Waits that the agent made up for are not part of it. A wait's effect on
        counted traffic is part of ``missing``.
        """
        return self._share(self.lost_s or 0.0)

    @property
    def stood(self) -> float:
        """Share of its time in which the switch or an agent stood still."""
        return self._share(self.stood_s)

    @property
    def moving(self) -> float:
        """Share of its time by which moves took longer than usual."""
        return self._share(self.moving_s)

    @property
    def short(self) -> float:
        """Share of its time that its reservation's end cut off, as it began
        late.
        """
        return self._share(self.short_s)

    @property
    def dropped(self) -> float:
        """Largest share of its time that drops can have cost it.

        Where its traffic is counted, this is the missing traffic, whatever the
        cause.
        """
        if self.drops == 0:
            return 0.0
        if self.kind in COUNTED and self.is_complete:
            return self.missing
        return self._share(self.resent_s)

    @property
    def late_wake(self) -> float:
        """Lateness of the run's own process, as a share of the job's tolerance."""
        # The later a job may end, the less a late stop or move matters.
        return self.late_wake_s / max(self.band * self.length_s, 1e-9)

    @property
    def is_unhindered(self) -> bool:
        """True if its ``held_s`` is known and next to nothing.

        If False, the machine need not be the cause: by design VMs share their
        node's processors, and best-effort jobs share links.
        """
        if self.held_s is None:
            return False
        return self.held_s <= SUSPECT * self.length_s

    @property
    def is_seen_in_part(self) -> bool:
        """True if at least a part of what affects its time was observed.

        Of a demand curve this is its agents' pace. Of programs it is all but
        their traffic, and they must have waited too little for processors to be
        invalid.
        """
        if self.kind == "best effort":
            return False
        if self.kind in CURVES:
            return self.lost_s is not None
        most_s = INVALID * self.length_s
        return self.held_s is not None and self.held_s <= most_s

    @property
    def lack(self) -> float:
        """Largest delay by the machine, as a share of the job's time."""
        held = 0.0
        is_known = self.is_unhindered or self.is_seen_in_part
        if self.held_s is not None and is_known:
            held = self._share(self.held_s)
        lack = max(self.missing, self.late, self.stood, held, self.short)
        # The others may overlap in time; moves overlap with none of them.
        return lack + self.moving

    @property
    def possible_error(self) -> str:
        """Largest error of its measured time, in words; empty: unknown."""
        if not self.is_complete and not self.is_seen_in_part:
            return ""
        error = f"at most +{self.lack:.1%} from lack of processor"
        if self.excess > self.lack:
            error = (
                f"at most -{self.excess:.1%} from limits that did not hold"
            )
        elif not self.is_complete:
            error += ", its traffic apart"
        if self.disturbed_s > 0:
            error += f", but for {self.disturbed_s:.1f} s of disturbances"
        return error

    def is_beside(self, other: JobEvidence) -> bool:
        """True if the other job ran during at least half of this job's time."""
        begin_s = max(self.began_s, other.began_s)
        end_s = min(
            self.began_s + self.length_s, other.began_s + other.length_s
        )
        return end_s - begin_s >= LEAST_WATCHED * self.length_s


def is_settled(job: JobEvidence, jobs: Sequence[JobEvidence]) -> bool:
    """True if all that affects a job's time was observed, on the job itself or
    on another one that ran beside it.

    A slow switch delays all jobs. The counted traffic of one job shows that for
    the jobs beside it whose own traffic is not counted.
    """
    if job.is_complete:
        return True
    if not job.is_seen_in_part:
        return False
    for other in jobs:
        counted = other.is_complete and other.kind in COUNTED
        if counted and job.is_beside(other):
            return True
    return False


def doubts(jobs: Sequence[JobEvidence]) -> str:
    """The jobs that are not settled, each with the reason; empty if all are."""
    unsettled = [job for job in jobs if not is_settled(job, jobs)]
    named = [f"job {job.job_id}: {job.unseen}" for job in unsettled[:NAMED]]
    if len(unsettled) > NAMED:
        named.append(f"and {len(unsettled) - NAMED} more")
    return "; ".join(named)


def job_findings(jobs: Sequence[JobEvidence]) -> list[Finding]:
    """Findings of the direct checks, each on the job with the highest value."""
    if not jobs:
        return []
    behind = max(jobs, key=lambda job: job.missing)
    measure = "demand curve" if behind.kind in CURVES else "rate"
    missing_reason = (
        f"traffic of job {behind.job_id} fell behind its {measure} by "
        f"{behind.missing:.1%} of the job's time: {behind.missing_s:.2f} s, "
        f"{max(0.0, behind.tail_s):.2f} s of it after the last count"
    )
    over = max(jobs, key=lambda job: job.excess)
    excess_reason = f"job {over.job_id} sent {over.excess:.1%} more than its limits allow"
    late = max(jobs, key=lambda job: job.late)
    late_reason = (
        f"an agent of job {late.job_id} fell behind by {late.lost_s or 0.0:.2f} s, "
        f"{late.late:.1%} of the job's time; it had no processor for "
        f"{late.waited_s:.2f} s"
    )
    still = max(jobs, key=lambda job: job.stood)
    still_reason = (
        f"the switch or an agent of job {still.job_id} made no progress for "
        f"{still.stood_s:.2f} s, {still.stood:.1%} of the job's time"
    )
    return [
        graded_finding("missing traffic", behind.missing, missing_reason),
        graded_finding("outrun limit", over.excess, excess_reason),
        graded_finding("late agent", late.late, late_reason),
        graded_finding("standstill", still.stood, still_reason),
        _late_start(jobs),
        _move(jobs),
    ]


def _late_start(jobs: Sequence[JobEvidence]) -> Finding:
    """The finding on jobs that began late and were stopped at their
    reservations' ends.

    A transfer that a reservation's end stops is judged by its expectation, too.
    One that only computes is judged by nothing else: however little was left,
    by the plan it ends.
    """
    cut_off = [job for job in jobs if job.cut_off]
    if cut_off:
        job = max(cut_off, key=lambda job: job.short)
        why = "its report came late"
        if job.short_s > 0:
            why = (
                f"it began late, and {job.short_s:.2f} s, {job.short:.1%} of "
                "its time, were left"
            )
        reason = (
            f"job {job.job_id} was to end in its reservation, whose end "
            f"stopped it: {why}"
        )
        metrics = {"share": job.short, "jobs": float(len(cut_off))}
        return Finding("invalid", "late start", reason, metrics)
    job = max(jobs, key=lambda job: job.short)
    reason = (
        f"job {job.job_id} began so late that its reservation's end left it "
        f"{job.short_s:.2f} s, {job.short:.1%}, less than the time it takes"
    )
    return graded_finding("late start", job.short, reason)


def _move(jobs: Sequence[JobEvidence]) -> Finding:
    """The finding on moved jobs; graded with their other delays (``lack``)."""
    moved = [job for job in jobs if job.moving_s > 0.0]
    if not moved:
        return graded_finding("move", 0.0, "no job took long to move")
    job = max(moved, key=lambda job: job.lack)
    reason = (
        f"moving job {job.job_id} took {job.moving_s:.2f} s more than it "
        f"usually takes; with what it lacks besides {job.lack:.1%} of its time"
    )
    return graded_finding("move", job.lack, reason)


def lateness(
    late_s: Sequence[float], jobs: Sequence[JobEvidence]
) -> list[Finding]:
    """A finding on late wake-ups of the run's own process; none without
    wake-ups.

    ``late_s``: the lateness of each wake-up. It is graded by the largest
    ``late_wake`` of the jobs that are not settled, or of all jobs if all are.
    """
    if not late_s:
        return []
    p99_s = quantile(late_s, 0.99)
    reason = (
        f"a sleeping process woke up to {p99_s * 1e3:.0f} ms late (p99)"
    )
    doubtful = [job for job in jobs if not is_settled(job, jobs)]
    share = 0.0
    if jobs:
        job = max(doubtful or jobs, key=lambda job: job.late_wake)
        share = job.late_wake
        reason += (
            f", {job.late_wake_s * 1e3:.0f} ms while job {job.job_id} ran: "
            f"{share:.0%} of what its band allows"
        )
    metrics = {"p99_s": p99_s, "max_s": max(late_s), "share": share}
    return [graded_finding("lateness", share, reason, metrics)]


def _with_cost(finding: Finding, jobs: Sequence[JobEvidence]) -> Finding:
    """The finding on drops, with their cost to the job that they cost most.

    It is invalid if the cost is above :data:`INVALID`. Drops without a cost stay
    suspect, as a hose within its limits drops nothing.
    """
    hit = [job for job in jobs if job.drops > 0]
    if finding.level == "ok" or not hit:
        return finding
    job = max(hit, key=lambda job: job.dropped)
    reason = (
        f"{finding.reason}; they cost job {job.job_id} at most "
        f"{job.dropped:.1%} of its time"
    )
    level = finding.level
    if job.dropped > INVALID:
        level = "invalid"
    metrics = {**finding.metrics, "share": job.dropped}
    return Finding(level, finding.check, reason, metrics)


def controller_finding(
    stood_s: float,
    held_up_s: float,
    jobs: Sequence[JobEvidence],
    *,
    is_ours: bool = True,
) -> Finding:
    """The finding on a controller that made no progress for ``stood_s``.

    A controller carries no traffic. So only ``held_up_s`` counts, the part of
    that time in which tenants' flows waited for it, as a share of the shortest
    job's time. For a person's controller (``is_ours`` false) it is not known.
    """
    shortest_s = min((job.length_s for job in jobs), default=0.0)
    reason = f"the controller made no progress for {stood_s:.2f} s"
    waited_s = held_up_s
    if not is_ours:
        waited_s = stood_s
        reason += "; whether flows waited for it is not known"
    elif held_up_s > 0.0:
        reason += f", {held_up_s:.2f} s of it while a tenant's flows waited"
    elif stood_s > 0.0:
        reason += "; nothing waited for it"
    share = 0.0
    # Without a job it has held up nobody.
    if jobs:
        share = waited_s / max(shortest_s, 1e-9)
    if share > SUSPECT:
        reason += f": {share:.1%} of the shortest job's time"
    metrics = {"stood_s": stood_s, "held_up_s": held_up_s}
    finding = graded_finding("controller", share, reason, metrics)
    # That flows waited for a person's controller is a guess.
    if not is_ours and finding.level == "invalid":
        return replace(finding, level="suspect")
    return finding


def weighed(
    findings: Sequence[Finding], jobs: Sequence[JobEvidence]
) -> list[Finding]:
    """The findings and those on the jobs; direct evidence limits the levels of
    findings on the machine.

    They become ``ok`` if all jobs are settled and none was delayed; ``suspect``
    at most if one was delayed, or if some jobs were observed only in part. If a
    job has no evidence, they keep their level.
    """
    worst: Level = "invalid"
    if jobs and all(is_settled(job, jobs) for job in jobs):
        worst = "ok"
        if max(job.lack for job in jobs) > SUSPECT:
            worst = "suspect"
    elif jobs and all(
        job.is_complete or job.is_seen_in_part for job in jobs
    ):
        worst = "suspect"
    # Only the first finding names the jobs.
    doubt = doubts(jobs)
    result = []
    for finding in findings:
        if finding.check == "drops":
            result.append(_with_cost(finding, jobs))
        elif finding.check not in INDIRECT:
            result.append(finding)
        else:
            result.append(_at_most(finding, worst, jobs, doubt))
            if finding.level != "ok":
                doubt = ""
    return result + job_findings(jobs)


def _at_most(
    finding: Finding,
    worst: Level,
    jobs: Sequence[JobEvidence],
    doubt: str,
) -> Finding:
    """A finding at the level ``worst`` or a better one, with the evidence that
    allows it.

    ``doubt``: the jobs that are not settled, for the reason; empty: not named.
    """
    if finding.level == "ok":
        return finding
    reason = finding.reason
    if doubt:
        reason += f"; not all was seen of {doubt}"
    levels = ("ok", "suspect", "invalid")
    if levels.index(finding.level) <= levels.index(worst):
        return replace(finding, reason=reason)
    job = max(jobs, key=lambda job: job.lack)
    if job.lack <= SUSPECT:
        reason += (
            f"; nothing was seen to lack: at most +{job.lack:.1%}"
            f" (job {job.job_id})"
        )
    return replace(finding, level=worst, reason=reason)
