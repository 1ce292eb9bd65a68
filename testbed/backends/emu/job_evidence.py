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
from testbed.plan.direct_evidence import COUNTED, PACED, JobEvidence, Kind
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
    began, at one rate, without a pause or a failure of the file's. ``groups``:
    the control groups of its VMs, where a program of its own runs in them;
    ``is_paced``: its agents compute at a pace of their own.
    """

    job_id: str
    kind: Kind
    tenant: TenantPlan
    began_s: float
    length_s: float
    pids: tuple[int, ...]
    is_whole: bool = True
    groups: tuple[Path, ...] = ()
    is_paced: bool = False


class Arrival(NamedTuple):
    """All that a VM was sent, with headers, and when its last byte had come."""

    wire_bits: float
    last_s: float


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
        return [int(word) for word in words]


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


class Counted:
    """Traffic of a limiter, beside what its rate carries."""

    def __init__(
        self, at_s: float, sent_bytes: int, rate_bps: float
    ) -> None:
        self._sent_bytes = sent_bytes
        self._rate_bps = rate_bps
        self.at_s = at_s
        self.watched_s = 0.0
        self.due_bits = 0.0
        self.sent_bits = 0.0
        self._first: tuple[float, float] | None = None

    def take(self, at_s: float, sent_bytes: int, rate_bps: float) -> None:
        length_s = at_s - self.at_s
        self.watched_s += length_s
        self.due_bits += self._rate_bps * length_s
        self.sent_bits += 8.0 * (sent_bytes - self._sent_bytes)
        self.at_s = at_s
        self._sent_bytes = sent_bytes
        self._rate_bps = rate_bps
        if self._first is None:
            self._first = (self.watched_s, self.lack_bits)

    @property
    def lack_bits(self) -> float:
        return self.due_bits - self.sent_bits

    def lack_in(self, length_s: float) -> float:
        """Bits that lack over so long, at the pace after its start."""
        first_s, first_bits = self._first or (0.0, 0.0)
        later_s = self.watched_s - first_s
        if later_s <= 0:
            return self.lack_bits
        per_s = max(0.0, self.lack_bits - first_bits) / later_s
        left_s = max(0.0, length_s - self.watched_s)
        return self.lack_bits + per_s * left_s

    def tail_lack(self, arrival: Arrival) -> float:
        """Bits that lack from the last count until all has come.

        What was still to come then needs its time at the limiter's rate.
        """
        tail_s = max(0.0, arrival.last_s - self.at_s)
        left_bits = max(0.0, arrival.wire_bits - self.sent_bits)
        return self._rate_bps * tail_s - left_bits


@dataclass
class _Job:
    """Evidence so far. ``received`` and ``capped`` are by VM, and by limiter."""

    followed: Followed
    progress: dict[int, Progress] = field(default_factory=dict)
    received: dict[int, Counted] = field(default_factory=dict)
    capped: dict[tuple[int, int], Counted] = field(default_factory=dict)
    waits: dict[Path, Waits] = field(default_factory=dict)
    programs_waited_s: float = 0.0
    stood_s: float = 0.0


class EvidenceTaker:
    """Takes evidence of the jobs that run, and keeps that of those that ended."""

    def __init__(self) -> None:
        self._switches: list[Progress] = []
        self._jobs: dict[int, _Job] = {}
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
        busy_bps = 0
        for job in jobs:
            if job.kind in COUNTED:
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

    def _look_at_agents(self, job: Followed, now_s: float) -> float:
        progress = self._jobs[job.tenant.tenant_id].progress
        longest_s = 0.0
        for pid in job.pids:
            agent = progress.setdefault(pid, Progress(pid))
            # A sleeping agent may have nothing to do: only a stopped one is
            # known to stand still.
            longest_s = max(longest_s, agent.look(now_s, has_work=False))
        self._look_at_programs(job)
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
            if limiter in job.capped:
                job.capped[limiter].take(at_s, sent_bytes, most_bps)
            else:
                job.capped[limiter] = Counted(at_s, sent_bytes, most_bps)
            if what == receive_cap:
                _receive(job, where, at_s, sent_bytes, rate_bps)

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
        evidence = _evidence(job, arrivals or {})
        if job.followed.is_whole:
            evidence = _with_pace(evidence, job, lost_s)
        self.ended.append(evidence)
        return evidence


def _receive(
    job: _Job, vm: int, at_s: float, sent_bytes: int, rate_bps: int
) -> None:
    """Counts what a VM has received, unless that may be all of it.

    Acknowledgements count too: what they hide of the last bytes is left to the
    time of the last one.
    """
    followed = job.followed
    if 8 * sent_bytes >= wire_bits(followed.tenant.volume_bytes):
        return
    # iperf3 sends for its time, whatever comes of it.
    ends_s = followed.began_s + followed.length_s
    if followed.kind == "iperf3" and at_s > ends_s:
        return
    if vm in job.received:
        job.received[vm].take(at_s, sent_bytes, rate_bps)
    elif followed.kind == "iperf3":
        # It connects first.
        job.received[vm] = Counted(at_s, sent_bytes, rate_bps)
    else:
        job.received[vm] = Counted(followed.began_s, 0, rate_bps)
        job.received[vm].take(at_s, sent_bytes, rate_bps)


def _evidence(job: _Job, arrivals: Mapping[int, Arrival]) -> JobEvidence:
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
    )
    if not followed.is_whole:
        return evidence
    evidence = replace(evidence, excess=_excess(job))
    if followed.kind not in COUNTED or not job.received:
        return evidence
    rate_bps = followed.tenant.rate_bps
    lacks = [
        _lacks(job, counted, arrivals.get(vm))
        for vm, counted in job.received.items()
    ]
    missing_bits, tail_bits = max(lacks)
    return replace(
        evidence,
        watched_s=min(vm.watched_s for vm in job.received.values()),
        missing_s=max(0.0, missing_bits / rate_bps),
        tail_s=tail_bits / rate_bps,
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


def _lacks(
    job: _Job, counted: Counted, arrival: Arrival | None
) -> tuple[float, float]:
    """Bits that a VM lacks over all of its job, and those after its last count."""
    if arrival is not None:
        tail_bits = counted.tail_lack(arrival)
        return counted.lack_bits + tail_bits, tail_bits
    # A packet counts when it ends: half of one is on its way.
    packet_bits = 8 * largest_packet_bytes(job.followed.tenant)
    lack_bits = counted.lack_in(job.followed.length_s) - packet_bits / 2
    return lack_bits, 0.0


def _excess(job: _Job) -> float:
    """The largest share of a cap's rate that it let through beyond it."""
    tenant = job.followed.tenant
    burst_bits = 8 * largest_packet_bytes(tenant) + BURST_S * tenant.cap_bps
    shares = [
        (cap.sent_bits - cap.due_bits - burst_bits) / max(1.0, cap.due_bits)
        for cap in job.capped.values()
    ]
    return max(0.0, max(shares, default=0.0))
