"""Direct evidence taken of the jobs that run: their traffic, waits and standstills.

Processes are looked at ten times a second, traffic with each sample of the
limiters.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any, NamedTuple

from numpy.typing import NDArray

from testbed.plan.direct_evidence import COUNTED, JobEvidence, Kind
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
# Of what it is to receive, a VM that has this has nearly all: headers count
# in what is counted, not in the volume.
NEARLY_ALL = 0.95
# What a cap's bucket holds.
BURST_S = RESERVED_CATCH_UP_S
PROC = Path("/proc")


@dataclass(frozen=True)
class Followed:
    """A running job of which evidence is taken.

    ``began_s`` is on the clock of the counters; ``length_s`` the time that it
    takes by its plan; ``pids`` its agents. ``is_whole``: it has run where it
    began, at one rate, without a pause or a failure of the file's.
    """

    job_id: str
    kind: Kind
    tenant: TenantPlan
    began_s: float
    length_s: float
    pids: tuple[int, ...]
    is_whole: bool = True


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

    def __init__(self, at_s: float, sent_bytes: int, rate_bps: float) -> None:
        self._at_s = at_s
        self._sent_bytes = sent_bytes
        self._rate_bps = rate_bps
        self.watched_s = 0.0
        self.due_bits = 0.0
        self.sent_bits = 0.0
        self._first: tuple[float, float] | None = None

    def take(self, at_s: float, sent_bytes: int, rate_bps: float) -> None:
        length_s = at_s - self._at_s
        self.watched_s += length_s
        self.due_bits += self._rate_bps * length_s
        self.sent_bits += 8.0 * (sent_bytes - self._sent_bytes)
        self._at_s = at_s
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


@dataclass
class _Job:
    """Evidence so far. ``received`` and ``capped`` are by VM, and by limiter."""

    followed: Followed
    progress: dict[int, Progress] = field(default_factory=dict)
    received: dict[int, Counted] = field(default_factory=dict)
    capped: dict[tuple[int, int], Counted] = field(default_factory=dict)
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
        look_at_agents = agents < MANY_AGENTS or now_s >= self._agents_next_s
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
        return longest_s

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
        for row in zip(*(column.tolist() for column in columns), strict=True):
            what, tenant, where, rate_bps, most_bps, at_s, sent_bytes = row
            job = self._jobs.get(tenant)
            # Classes on links have the lowest number.
            if job is None or what == 0 or sent_bytes < 0 or not isfinite(at_s):
                continue
            limiter = (what, where)
            if limiter in job.capped:
                job.capped[limiter].take(at_s, sent_bytes, most_bps)
            else:
                job.capped[limiter] = Counted(at_s, sent_bytes, most_bps)
            if what == receive_cap:
                _receive(job, where, at_s, sent_bytes, rate_bps)

    def finish(self, tenant_id: int, lost_s: float = 0.0) -> JobEvidence | None:
        """The evidence of a job that has ended; kept for the verdict.

        ``lost_s``: by which its slowest agent says that it fell behind.
        """
        job = self._jobs.pop(tenant_id, None)
        if job is None:
            return None
        evidence = replace(_evidence(job), lost_s=lost_s)
        self.ended.append(evidence)
        return evidence


def _receive(
    job: _Job, vm: int, at_s: float, sent_bytes: int, rate_bps: int
) -> None:
    """Counts what a VM has received, unless it has nearly all."""
    followed = job.followed
    if sent_bytes > NEARLY_ALL * followed.tenant.volume_bytes:
        return
    if vm in job.received:
        job.received[vm].take(at_s, sent_bytes, rate_bps)
    elif followed.kind == "iperf3":
        # It connects first.
        job.received[vm] = Counted(at_s, sent_bytes, rate_bps)
    else:
        job.received[vm] = Counted(followed.began_s, 0, rate_bps)
        job.received[vm].take(at_s, sent_bytes, rate_bps)


def _evidence(job: _Job) -> JobEvidence:
    followed = job.followed
    tenant = followed.tenant
    packet_bits = 8 * largest_packet_bytes(tenant)
    watched_s = missing_s = excess = 0.0
    received = list(job.received.values())
    if followed.is_whole and followed.kind in COUNTED and received:
        rate_bps = tenant.rate_bps
        lacks = [vm.lack_in(followed.length_s) for vm in received]
        # In a shuffle VMs wait for each other: all of them together count.
        lack_bits = max(lacks)
        if followed.kind == "shuffle":
            lack_bits = sum(lacks) / len(lacks)
        # A packet counts when it ends: half of one is on its way.
        missing_s = max(0.0, (lack_bits - packet_bits / 2) / rate_bps)
        watched_s = min(vm.watched_s for vm in received)
    caps = list(job.capped.values())
    if not followed.is_whole:
        caps = []
    for cap in caps:
        burst_bits = packet_bits + BURST_S * tenant.cap_bps
        over_bits = cap.sent_bits - cap.due_bits - burst_bits
        excess = max(excess, over_bits / max(1.0, cap.due_bits))
    waits = [agent.waited_s for agent in job.progress.values()]
    return JobEvidence(
        followed.job_id,
        followed.kind,
        followed.length_s,
        followed.began_s,
        watched_s,
        missing_s,
        excess,
        waited_s=max(waits, default=0.0),
        stood_s=job.stood_s,
    )
