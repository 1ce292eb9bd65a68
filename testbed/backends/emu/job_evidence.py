"""Direct evidence taken of the jobs that run: their traffic, waits and standstills.

Processes are looked at ten times a second, traffic with each sample of the
limiters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from jobs.wire import wire_bits
from testbed.backends.emu.work_evidence import Claim, Work
from testbed.plan.counted_traffic import (
    NONE,
    Arrival,
    Counted,
    CurveStep,
    Disturbance,
    disturbance,
)
from testbed.plan.direct_evidence import (
    AT_RATE,
    COUNTED,
    CURVES,
    LEAST_WATCHED,
    PACED,
    JobEvidence,
    Kind,
)
from testbed.plan.limits import RESERVED_CATCH_UP_S, largest_packet_bytes
from testbed.plan.network_plan import TenantPlan

LOOK_EVERY_S = 0.1
AGENTS_EVERY_S = 1.0
MANY_AGENTS = 64
"""Agents beyond which they are looked at once a second."""
STANDSTILL_S = 0.15
"""The shortest time without progress that counts."""
RUNNING = 0.01
"""Share of a time in which a process that works ran, or waited to."""
BUSY_BPS = 20_000_000
"""Traffic at which a userspace switch has something to do all the time."""
# What a cap's bucket holds.
BURST_S = RESERVED_CATCH_UP_S
PROC = Path("/proc")


@dataclass(frozen=True)
class Followed:
    """A running job of which evidence is taken.

    ``began_s`` is on the clock of the counters; ``length_s`` the time that it
    takes by its plan; ``pids`` its agents. ``is_whole``: it has run where it
    began, reserved; ``was_paused``: not all the time. ``groups``: the control
    groups of its VMs, where a program of its own runs in them; ``is_paced``:
    its agents compute at a pace of their own; ``claims``: the processors that
    its VMs use whenever they get them; ``phases``: of a demand curve.
    """

    job_id: str
    kind: Kind
    tenant: TenantPlan
    began_s: float
    length_s: float
    pids: tuple[int, ...]
    is_whole: bool = True
    was_paused: bool = False
    groups: tuple[Path, ...] = ()
    is_paced: bool = False
    claims: tuple[Claim, ...] = ()
    phases: tuple[CurveStep, ...] = ()


class Spent(NamedTuple):
    """A process's time so far: run, waited for a processor; and its state."""

    run_s: float
    waited_s: float
    state: str


def spent(pid: int) -> Spent | None:
    """Time of a process's first thread; None where it has ended."""
    try:
        run, waited, _ = (PROC / str(pid) / "schedstat").read_text().split()
        stat = (PROC / str(pid) / "stat").read_text().rpartition(")")[2]
    except (OSError, ValueError):
        return None
    return Spent(int(run) / 1e9, int(waited) / 1e9, stat.split()[0])


class Waits:
    """Time for which the programs in a VM's control group had no processor.

    By the group's own count of stalls (PSI, ``cpu.pressure``), where the kernel
    keeps one; else summed over the processes that are there at each look.
    """

    def __init__(self, group: Path) -> None:
        self._pressure = group / "cpu.pressure"
        self._members = group / "cgroup.procs"
        self._first_us = self._stalled_us()
        self._by_process: dict[int, float] = {}
        self._agents: set[int] = set()

    def _stalled_us(self) -> int | None:
        """Microseconds in which some process waited; None: not counted."""
        try:
            some = self._pressure.read_text(encoding="ascii").splitlines()[
                0
            ]
            return int(some.rpartition("total=")[2])
        except (OSError, ValueError, IndexError):
            return None

    def look(self, agents: Collection[int]) -> float:
        """Seconds of waiting so far; of processes, the agents' apart."""
        now_us = self._stalled_us()
        if now_us is not None and self._first_us is not None:
            return (now_us - self._first_us) / 1e6
        self._agents.update(agents)
        for pid in self._pids():
            now = spent(pid)
            if now is not None and pid not in self._agents:
                self._by_process[pid] = now.waited_s
        return sum(self._by_process.values())

    def _pids(self) -> list[int]:
        try:
            words = self._members.read_text(encoding="ascii").split()
        except OSError:
            return []
        return list(map(int, words))


class Progress:
    """Standstills of a process that has work to do."""

    def __init__(
        self, pid: int, read: Callable[[int], Spent | None] = spent
    ) -> None:
        self._pid = pid
        self._read = read
        self._last: tuple[float, Spent] | None = None
        self._still_s = 0.0
        self.waited_s = 0.0

    def look(self, now_s: float, *, has_work: bool) -> float:
        """Seconds of standstill to add since the last look."""
        now = self._read(self._pid)
        last = self._last
        self._last = None
        if now is None:
            return 0.0
        self._last = (now_s, now)
        if last is None:
            return 0.0
        at_s, before = last
        length_s = now_s - at_s
        self.waited_s += now.waited_s - before.waited_s
        used_s = now.run_s - before.run_s + now.waited_s - before.waited_s
        stopped = "T" in (now.state, before.state)
        if used_s > RUNNING * length_s or not (has_work or stopped):
            self._still_s = 0.0
            return 0.0
        counted = self._still_s >= STANDSTILL_S
        self._still_s += length_s
        if self._still_s < STANDSTILL_S:
            return 0.0
        return length_s if counted else self._still_s


@dataclass
class _Job:
    """Evidence so far. ``received`` and ``capped`` are by VM, and by limiter.

    In ``queued_samples`` of the samples packets waited at one of its limiters.
    """

    followed: Followed
    progress: dict[int, Progress] = field(default_factory=dict)
    received: dict[int, Counted] = field(default_factory=dict)
    capped: dict[tuple[int, int], Counted] = field(default_factory=dict)
    waits: dict[Path, Waits] = field(default_factory=dict)
    programs_waited_s: float = 0.0
    stood_s: float = 0.0
    samples: int = 0
    queued_samples: int = 0
    work: Work = field(default_factory=Work)


class EvidenceTaker:
    """Takes evidence of the jobs that run, and keeps that of those that ended."""

    def __init__(self) -> None:
        self._switches: list[Progress] = []
        self._jobs: dict[int, _Job] = {}
        self._disturbed: dict[int, Disturbance] = {}
        self._next_s = 0.0
        self._agents_next_s = 0.0
        self.ended: list[JobEvidence] = []

    def start(self, switch_pids: Sequence[int | None]) -> None:
        """``switch_pids``: processes that forward packets; none of the kernel's."""
        self._switches = [Progress(pid) for pid in switch_pids if pid]

    def due_in_s(self) -> float:
        return self._next_s - time.monotonic()

    def look(self, jobs: Sequence[Followed]) -> None:
        """Looks at the switch and the agents of the jobs that run now."""
        now_s = time.monotonic()
        self._next_s = now_s + LOOK_EVERY_S
        for job in jobs:
            taken = self._jobs.setdefault(job.tenant.tenant_id, _Job(job))
            taken.followed = job
        running = {job.tenant.tenant_id for job in jobs}
        for tenant_id in self._jobs.keys() - running:
            self._jobs[tenant_id].work.pause()
        busy_bps = 0
        for job in jobs:
            if self._sends_at_rate(job, now_s):
                busy_bps += job.tenant.rate_bps * len(job.tenant.vms)
        # Of several parts of the switch one may have no job's traffic: only a
        # stopped one is known to stand still.
        has_work = busy_bps > BUSY_BPS and len(self._switches) == 1
        stood_s = 0.0
        for switch in self._switches:
            still_s = switch.look(now_s, has_work=has_work)
            stood_s = max(stood_s, still_s)
        agents = sum(len(job.pids) for job in jobs)
        look_at_agents = (
            agents < MANY_AGENTS or now_s >= self._agents_next_s
        )
        if look_at_agents:
            self._agents_next_s = now_s + AGENTS_EVERY_S
        for job in jobs:
            longest_s = 0.0
            if job.kind != "one VM":
                longest_s = stood_s
            if look_at_agents:
                agents_s = self._look_at_agents(job, now_s)
                longest_s = max(longest_s, agents_s)
            self._jobs[job.tenant.tenant_id].stood_s += longest_s

    def disturb(self, tenant_id: int, outage_s: float = 0.0) -> None:
        """The experiment has stopped a job for so long, or changed its rate.

        Infinite: it stands still from now on.
        """
        earlier = self._disturbed.get(tenant_id, NONE)
        later = disturbance(time.monotonic(), outage_s)
        self._disturbed[tenant_id] = earlier.then(later)

    def _sends_at_rate(self, job: Followed, now_s: float) -> bool:
        """True if its traffic waits wherever it is not passed on."""
        disturbed = self._disturbed.get(job.tenant.tenant_id, NONE)
        is_free = job.is_whole and now_s >= disturbed.until_s
        return job.kind in AT_RATE and is_free

    def _look_at_agents(self, job: Followed, now_s: float) -> float:
        progress = self._jobs[job.tenant.tenant_id].progress
        longest_s = 0.0
        for pid in job.pids:
            agent = progress.setdefault(pid, Progress(pid))
            # A sleeping agent may have nothing to do: only a stopped one is
            # known to stand still.
            longest_s = max(longest_s, agent.look(now_s, has_work=False))
        self._look_at_programs(job)
        self._jobs[job.tenant.tenant_id].work.look(now_s, job.claims)
        return longest_s

    def _look_at_programs(self, job: Followed) -> None:
        """Their VMs may wait for each other: their waits count together."""
        taken = self._jobs[job.tenant.tenant_id]
        waited_s = 0.0
        for group in job.groups:
            waits = taken.waits.setdefault(group, Waits(group))
            waited_s += waits.look(job.pids)
        taken.programs_waited_s = max(taken.programs_waited_s, waited_s)

    def count(
        self, rows: NDArray[Any], counters: NDArray[Any], receive_cap: int
    ) -> None:
        """Takes in counters of VMs' caps, by row of a limiter."""
        self._count_queues(rows, counters)
        columns = (
            rows["what"],
            rows["tenant"],
            rows["where"],
            rows["rate_bps"],
            rows["most_bps"],
            counters["at_s"],
            counters["sent_bytes"],
        )
        for row in zip(
            *(column.tolist() for column in columns), strict=True
        ):
            what, tenant, where, rate_bps, most_bps, at_s, sent_bytes = row
            job = self._jobs.get(tenant)
            # Classes on links have the lowest number.
            if (
                job is None
                or what == 0
                or sent_bytes < 0
                or not isfinite(at_s)
            ):
                continue
            limiter = (what, where)
            disturbed = self._disturbed.get(tenant, NONE)
            count = (at_s, sent_bytes, most_bps)
            if limiter in job.capped:
                job.capped[limiter].take(*count, disturbed)
            else:
                job.capped[limiter] = Counted(*count)
            if what == receive_cap:
                _receive(
                    job, where, (at_s, sent_bytes, rate_bps), disturbed
                )

    def _count_queues(
        self, rows: NDArray[Any], counters: NDArray[Any]
    ) -> None:
        """Notes whose packets wait at this instant."""
        waiting = counters["backlog_bytes"] > 0
        sampled = set(rows["tenant"].tolist())
        queued = set(rows["tenant"][waiting].tolist())
        for tenant_id, job in self._jobs.items():
            job.samples += tenant_id in sampled
            job.queued_samples += tenant_id in queued

    def finish(
        self,
        tenant_id: int,
        lost_s: float = 0.0,
        arrivals: Mapping[int, Arrival] | None = None,
    ) -> JobEvidence | None:
        """The evidence of a job that has ended; kept for the verdict.

        ``lost_s``: by which its slowest agent says that it fell behind;
        ``arrivals``: by VM, of those that had a volume to receive.
        """
        job = self._jobs.pop(tenant_id, None)
        if job is None:
            return None
        disturbed = self._disturbed.pop(tenant_id, NONE)
        evidence = _evidence(job, arrivals or {}, disturbed)
        if job.followed.is_whole and not job.followed.was_paused:
            evidence = _with_pace(evidence, job, lost_s)
        if evidence.held_s is None:
            evidence = _with_work(evidence, job.work)
        self.ended.append(evidence)
        return evidence


def _receive(
    job: _Job,
    vm: int,
    count: tuple[float, int, int],
    disturbed: Disturbance,
) -> None:
    """Counts what a VM has received, unless that may be all of it.

    Acknowledgements count too: what they hide of the last bytes is left to the
    time of the last one.
    """
    followed = job.followed
    at_s, sent_bytes, rate_bps = count
    if 8 * sent_bytes >= wire_bits(followed.tenant.volume_bytes):
        return
    # iperf3 sends for its time, whatever comes of it.
    ends_s = followed.began_s + followed.length_s
    if followed.kind == "iperf3" and at_s > ends_s:
        return
    if vm not in job.received and followed.kind == "iperf3":
        # It connects first.
        job.received[vm] = Counted(*count)
        return
    if vm not in job.received:
        job.received[vm] = Counted(followed.began_s, 0, rate_bps)
    job.received[vm].take(*count, disturbed)


def _evidence(
    job: _Job, arrivals: Mapping[int, Arrival], disturbed: Disturbance
) -> JobEvidence:
    followed = job.followed
    evidence = JobEvidence(
        followed.job_id,
        followed.kind,
        followed.length_s,
        followed.began_s,
        waited_s=max(
            (agent.waited_s for agent in job.progress.values()), default=0.0
        ),
        stood_s=job.stood_s,
        queued=job.queued_samples / max(1, job.samples),
    )
    if not followed.is_whole:
        return evidence
    evidence = replace(evidence, excess=_excess(job))
    if followed.kind not in COUNTED or not job.received:
        return evidence
    if followed.kind in CURVES:
        return _with_curve(evidence, job, arrivals, disturbed)
    lacks_s = [
        _lacks_s(job, counted, arrivals.get(vm), disturbed)
        for vm, counted in job.received.items()
    ]
    missing_s, tail_s = max(lacks_s)
    return replace(
        evidence,
        watched_s=min(vm.watched_s for vm in job.received.values()),
        disturbed_s=max(vm.disturbed_s for vm in job.received.values()),
        missing_s=max(0.0, missing_s),
        tail_s=tail_s,
    )


def _with_curve(
    evidence: JobEvidence,
    job: _Job,
    arrivals: Mapping[int, Arrival],
    disturbed: Disturbance,
) -> JobEvidence:
    """With its traffic against its demand curve, if that could take its course.

    An application of which a part was stopped is somewhere else in its curve.
    """
    followed = job.followed
    if disturbed != NONE or followed.was_paused:
        return evidence
    behind_s = []
    for vm, counted in job.received.items():
        if vm in arrivals:
            behind_s.append(
                counted.behind_s(
                    followed.phases, followed.began_s, arrivals[vm]
                )
            )
    if len(behind_s) < len(job.received):
        return evidence
    missing_s, tail_s = max(behind_s)
    return replace(
        evidence,
        watched_s=min(vm.watched_s for vm in job.received.values()),
        missing_s=max(0.0, missing_s),
        tail_s=tail_s,
    )


def _with_pace(
    evidence: JobEvidence, job: _Job, lost_s: float
) -> JobEvidence:
    """With what its agents lost of their own pace, or its programs by waiting."""
    followed = job.followed
    if followed.kind in PACED:
        return replace(evidence, lost_s=lost_s)
    if followed.is_paced:
        return replace(evidence, held_s=lost_s)
    if job.waits:
        return replace(evidence, held_s=job.programs_waited_s)
    return evidence


def _with_work(evidence: JobEvidence, work: Work) -> JobEvidence:
    """With the processor time that its computing VMs lacked, if that was seen.

    On all their nodes, at any tier: they use whatever they get.
    """
    if work.watched_s < LEAST_WATCHED * evidence.length_s:
        return evidence
    return replace(evidence, held_s=work.lack_s)


def _lacks_s(
    job: _Job,
    counted: Counted,
    arrival: Arrival | None,
    disturbed: Disturbance,
) -> tuple[float, float]:
    """Time that a VM lacks over all of its job, and after its last count."""
    if arrival is not None:
        tail_bits = counted.tail_lack(arrival, disturbed)
        lack_s = counted.seconds(counted.lack_bits + tail_bits)
        return lack_s, counted.seconds(tail_bits)
    # A packet counts when it ends: half of one is on its way.
    packet_bits = 8 * largest_packet_bytes(job.followed.tenant)
    lack_bits = counted.lack_in(job.followed.length_s) - packet_bits / 2
    return counted.seconds(lack_bits), 0.0


def _excess(job: _Job) -> float:
    """The largest share of a cap's rate that it let through beyond it."""
    tenant = job.followed.tenant
    burst_bits = 8 * largest_packet_bytes(tenant) + BURST_S * tenant.cap_bps
    shares = [
        (cap.sent_bits - cap.due_bits - burst_bits) / max(1.0, cap.due_bits)
        for cap in job.capped.values()
    ]
    return max(0.0, max(shares, default=0.0))
