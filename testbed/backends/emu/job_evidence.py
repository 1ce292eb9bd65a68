"""Collection of direct evidence on running jobs: traffic, waits and
standstills.

Processes are looked at ten times a second; traffic is counted with each sample
of the limiters.
"""

from __future__ import annotations

import time
from bisect import bisect_left
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import isfinite
from pathlib import Path
from typing import Any

from numpy.typing import NDArray

from jobs.demand import Demand
from jobs.request import Enforcement
from jobs.wire import FRAME_BYTES, wire_bits
from testbed.backends.emu.cgroups import members
from testbed.backends.emu.limiter_counters import (
    LINK,
    RECEIVE_CAP,
    WHOLE_LINK,
)
from testbed.backends.emu.process_progress import Progress, spent
from testbed.backends.emu.switch_evidence import SwitchEvidence
from testbed.backends.emu.work_evidence import Claim, Work, throttled_s
from testbed.plan.batch_lines import BURST_S
from testbed.plan.counted_traffic import (
    NONE,
    Arrival,
    Counted,
    CurveStep,
    Disturbance,
    HeldUp,
    LinkUse,
    disturbance,
)
from testbed.plan.direct_evidence import (
    AT_RATE,
    BAND,
    COUNTED,
    CURVES,
    LEAST_WATCHED,
    OFFLINE,
    PACED,
    JobEvidence,
    Kind,
)
from testbed.plan.fidelity import quantile
from testbed.plan.full_classes import (
    ClassCount,
    ClassDrops,
    FullClass,
    drops_of,
)
from testbed.plan.limits import largest_packet_bytes, switch_catch_up_s
from testbed.plan.network_plan import TenantPlan

LOOK_EVERY_S = 0.1
AGENTS_EVERY_S = 1.0
MANY_AGENTS = 64
"""Number of agents from which on they are looked at every AGENTS_EVERY_S."""
NEARLY_OVER = 0.97
"""Arrived share of a job's payload above which some of its VMs may have ended.
"""
SHORT_S = 3.0
"""Length of jobs up to which the regular samples may be too few."""
COUNTED_BY = 0.6
"""Share of a short job's time after which its traffic is counted once more."""
SEND_BURST_S = BURST_S
"""Size of the bucket of a VM's own cap, in s at the cap."""


@dataclass(frozen=True)
class Followed:
    """A running job, as far as the collection of evidence needs to know it.

    - ``began_s``: its begin, on the counters' clock; ``length_s``: its planned
      time; ``pids``: processes of its agents that have not reported yet.
    - ``is_reserved``: it is in the foreground; ``is_whole``: it is in the
      foreground and has never moved; ``was_paused``: it was preempted.
    - ``groups``: control groups of the VMs in which a person's program runs.
    - ``is_paced``: its agents compute for a share of the time.
    - ``claims``: processors that its VMs use whenever they get them; ``nodes``:
      processors of its VMs' nodes whose background VMs use all time that its
      programs leave.
    - ``phases``: steps of its demand curve; ``is_continuous``: its VMs send
      without a pause; ``is_nearly_over``: some of its VMs may have sent all.
    - ``crowded``: for a job without a reservation, by VM, the directed links on
      the way to it that may be full; ``converging``: for a person's program,
      the directed links on which its VMs may send more than it has reserved.
    - ``band``: the share of its time by which it may be late.
    - ``resumed_s``: begin of its present agents, after a move; ``left_bytes``:
      payload that its VMs had to receive then, by VM; ``moving_s``: time of its
      moves beyond what they usually take.
    - ``arriving``: bits that reach a VM for each bit of its data; above 1 where
      acknowledgements are too many to be neglected.
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
    nodes: tuple[Claim, ...] = ()
    phases: tuple[CurveStep, ...] = ()
    is_continuous: bool = False
    crowded: Mapping[int, frozenset[int]] = field(default_factory=dict)
    is_nearly_over: bool = False
    band: float = BAND
    resumed_s: float = 0.0
    is_reserved: bool = True
    left_bytes: Mapping[int, int] | None = None
    moving_s: float = 0.0
    arriving: float = 1.0
    converging: frozenset[int] = frozenset()

    @property
    def since_s(self) -> float:
        """Time at which it began on its present nodes."""
        return max(self.began_s, self.resumed_s)

    def volume_bytes(self, vm: int) -> int:
        """Payload that a VM is to receive on its present node."""
        if self.left_bytes is None:
            return self.tenant.volume_bytes
        return self.left_bytes.get(vm, 0)


def may_converge(
    followed: Followed, demand: Demand, enforcement: Enforcement
) -> bool:
    """True for a person's program whose reservation was enforced all its time.

    Such a program may have several VMs send to one. The traffic of iperf3 is
    chosen by the testbed.
    """
    return (
        followed.kind == "command"
        and demand.kind != "iperf3"
        and followed.is_whole
        and not followed.was_paused
        and enforcement == "strict"
    )


class Waits:
    """Time for which programs in a VM's control group waited for a processor.

    It is the group's own count of stalls (PSI, ``cpu.pressure``) if the kernel
    keeps one; else the sum over the processes that are there at each look. Time
    for which the group's own quota, or its node's, stopped them does not count.
    """

    def __init__(self, group: Path) -> None:
        self._pressure = group / "cpu.pressure"
        self._first_us = self._stalled_us()
        self._stalled_s = 0.0
        self._by_process: dict[int, float] = {}
        self._agents: set[int] = set()
        self._group = group
        self._first_throttled_s = throttled_s(group)
        self._throttled_s = 0.0

    def _stalled_us(self) -> int | None:
        """Time in µs in which some process waited; None: the kernel keeps no
        count.
        """
        try:
            lines = self._pressure.read_text(encoding="ascii").splitlines()
            # The first line: some process waited; the second one: all did.
            return int(lines[0].rpartition("total=")[2])
        except (OSError, ValueError, IndexError):
            return None

    def look(self, agents: Collection[int]) -> float:
        """Seconds of waiting so far; ``agents`` are left out of sums over
        processes.
        """
        later_s = throttled_s(self._group) - self._first_throttled_s
        # A group that is gone reads as 0 s, but time never falls.
        self._throttled_s = max(self._throttled_s, later_s)
        return max(0.0, self._all_s(agents) - self._throttled_s)

    def _all_s(self, agents: Collection[int]) -> float:
        """Seconds of waiting so far, with those caused by quotas."""
        if self._first_us is not None:
            now_us = self._stalled_us()
            # A group that is gone has no count: its last one stays.
            if now_us is not None:
                self._stalled_s = (now_us - self._first_us) / 1e6
            return self._stalled_s
        # An agent that has reported is no longer in agents, but may still run.
        self._agents.update(agents)
        for pid in members(self._group):
            now = spent(pid)
            if now is not None and pid not in self._agents:
                self._by_process[pid] = now.waited_s
        return sum(self._by_process.values())


@dataclass
class _Cap:
    """The traffic of a VM's cap, whose bucket holds ``burst_s`` of its rate."""

    counted: Counted
    burst_s: float

    def excess(self, packet_bits: float, cap_bps: float) -> float:
        """Traffic beyond its rate, as a share of what the rate carries; 0 if
        none.

        Allowed are the contents of a bucket that was full at first, and a
        packet, which counts whole as it leaves.
        """
        allowed_bits = packet_bits + self.burst_s * cap_bps
        over_bits = self.counted.sent_bits - self.counted.due_bits
        due_bits = max(1.0, self.counted.due_bits)
        return max(0.0, (over_bits - allowed_bits) / due_bits)


@dataclass
class _ObservedJob:
    """A job and the evidence on it so far.

    - ``received``: traffic that each VM received, compared with its rate;
      ``capped``: traffic of each limiter, compared with its ceiling;
      ``classes``: by directed link, the classes that its VMs may fill.
    - ``samples``: number of samples; ``queued_samples``: those in which packets
      waited at one of its limiters.
    - ``programs_waited_s``: waits of its programs; ``shared_waited_s``: the
      part of them in which background VMs used all processor time that was
      left; ``nodes``: lack of processor time on its nodes meanwhile.
    - ``lack_s``: by VM, the time by which it fell behind on earlier nodes;
      ``watched_s``, ``disturbed_s``: time on earlier nodes.
    - ``end_stood_s``: the last standstill of an agent that waits for a program.
    """

    followed: Followed
    progress: dict[int, Progress] = field(default_factory=dict)
    received: dict[int, Counted] = field(default_factory=dict)
    capped: dict[tuple[int, int], _Cap] = field(default_factory=dict)
    waits: dict[Path, Waits] = field(default_factory=dict)
    programs_waited_s: float = 0.0
    shared_waited_s: float = 0.0
    nodes: Work = field(default_factory=Work)
    stood_s: float = 0.0
    end_stood_s: float = 0.0
    samples: int = 0
    queued_samples: int = 0
    drops: int = 0
    classes: dict[int, FullClass] = field(default_factory=dict)
    shared_links: bool = False
    held_up: dict[int, HeldUp] = field(default_factory=dict)
    work: Work = field(default_factory=Work)
    lack_s: dict[int, float] = field(default_factory=dict)
    watched_s: float = 0.0
    disturbed_s: float = 0.0

    def needs_count(self, now_s: float) -> bool:
        """True for a short job that has run for COUNTED_BY of its time and was
        not counted since.

        It may end before the next sample.
        """
        job = self.followed
        if job.kind not in COUNTED or job.length_s > SHORT_S:
            return False
        due_s = job.since_s + COUNTED_BY * job.length_s
        times_s = [vm.at_s for vm in self.received.values()]
        last_s = min(times_s, default=0.0)
        return last_s < due_s <= now_s and not job.is_nearly_over

    def look_at_agents(self, now_s: float) -> float:
        """Looks at the job's processes; returns the longest standstill of its
        agents since the last look, in s.
        """
        longest_s = 0.0
        for pid in self.followed.pids:
            agent = self.progress.setdefault(pid, Progress(pid))
            # A sleeping agent may have nothing to do: only a stopped one is
            # known to stand still.
            longest_s = max(longest_s, agent.look(now_s))
        self._look_at_programs(now_s)
        self.work.look(now_s, self.followed.claims)
        return longest_s

    def _look_at_programs(self, now_s: float) -> None:
        """Sums the waits of its VMs. As VMs may wait for each other, waits can
        add up.
        """
        waited_s = 0.0
        for group in self.followed.groups:
            # Not by setdefault: a new one reads its counters.
            if group not in self.waits:
                self.waits[group] = Waits(group)
            waited_s += self.waits[group].look(self.followed.pids)
        later_s = waited_s - self.programs_waited_s
        self.programs_waited_s = waited_s
        counted_s = self.nodes.watched_s
        self.nodes.look(now_s, self.followed.nodes)
        if self.nodes.watched_s > counted_s:
            self.shared_waited_s += later_s

    def add_agents_standstill(self, still_s: float) -> None:
        """Adds to the last standstill of an agent that waits for a program.

        Earlier ones delayed nothing, as the program ran on. In the last one the
        program may have ended unnoticed.
        """
        # The agent has made progress: the standstill was not its last.
        if still_s == 0.0:
            self.end_stood_s = 0.0
        self.end_stood_s += still_s

    def on_new_nodes(self, followed: Followed) -> _ObservedJob:
        """The same job on new nodes, with the evidence so far."""
        lack_s = dict(self.lack_s)
        packet_bits = 8 * largest_packet_bytes(self.followed.tenant)
        # The last byte's arrival is not known there, so the last count is the
        # end. On average, half a packet was on its way then.
        for vm, counted in self.received.items():
            earlier_s = lack_s.get(vm, 0.0)
            lack_bits = counted.lack_bits - packet_bits / 2
            lack_s[vm] = earlier_s + counted.seconds(lack_bits)
        return _ObservedJob(
            followed,
            stood_s=self.stood_s,
            samples=self.samples,
            queued_samples=self.queued_samples,
            drops=_doubtful_drops(self),
            shared_links=self.shared_links,
            work=self.work,
            lack_s=lack_s,
            watched_s=self.all_watched_s,
            disturbed_s=self.all_disturbed_s,
        )

    def class_drops(self) -> ClassDrops:
        """Drops of its ``classes``, in sum."""
        packets = 0
        full = 0
        for drops in drops_of(self.classes).values():
            packets += drops.packets
            full += drops.full
        return ClassDrops(packets, full)

    @property
    def all_watched_s(self) -> float:
        """Time watched on all its nodes: on each, that of the VM watched least."""
        times_s = [vm.watched_s for vm in self.received.values()]
        return self.watched_s + min(times_s, default=0.0)

    @property
    def all_disturbed_s(self) -> float:
        times_s = [vm.disturbed_s for vm in self.received.values()]
        return self.disturbed_s + max(times_s, default=0.0)


class EvidenceTaker:
    """Collects evidence on running jobs, and keeps that on ended ones
    (``ended``).
    """

    def __init__(self) -> None:
        self._switch: SwitchEvidence | None = None
        self._jobs: dict[int, _ObservedJob] = {}
        self._disturbed: dict[int, Disturbance] = {}
        self._left: dict[str, _ObservedJob] = {}
        self._links: dict[int, LinkUse] = {}
        self.wants_count = False
        self._wakeups: list[tuple[float, float]] = []
        self._next_s = 0.0
        self._agents_next_s = 0.0
        self._class_drops: dict[tuple[int, int], ClassDrops] = {}
        self.ended: list[JobEvidence] = []

    def start(self, switch: SwitchEvidence | None) -> None:
        """``switch``: the evidence on the switch; None: the kernel forwards
        packets.
        """
        self._switch = switch

    def due_in_s(self) -> float:
        return self._next_s - time.monotonic()

    def look(self, jobs: Sequence[Followed]) -> None:
        """Looks at the switch and the agents of the jobs that run now."""
        now_s = time.monotonic()
        self._next_s = now_s + LOOK_EVERY_S
        running = self._update(jobs)
        if self._switch is not None:
            at_rate = []
            for job in jobs:
                if self._sends_at_rate(job, now_s):
                    at_rate.append(job.tenant)
            self._switch.look(now_s, at_rate)
        n_agents = sum(len(job.pids) for job in jobs)
        look_at_agents = (
            n_agents < MANY_AGENTS or now_s >= self._agents_next_s
        )
        if look_at_agents:
            self._agents_next_s = now_s + AGENTS_EVERY_S
        for observed in running:
            job = observed.followed
            longest_s = 0.0
            if self._switch is not None and job.kind not in OFFLINE:
                longest_s = self._switch.stood_s(job.tenant)
            if look_at_agents:
                agents_s = observed.look_at_agents(now_s)
                # A program runs on while its agent stands still.
                if job.groups:
                    observed.add_agents_standstill(agents_s)
                else:
                    longest_s = max(longest_s, agents_s)
            # Switch and agent may stand still at the same time, which must
            # not count twice.
            observed.stood_s += longest_s
        self.wants_count = any(job.needs_count(now_s) for job in running)

    def _update(self, jobs: Sequence[Followed]) -> list[_ObservedJob]:
        """Evidence on the jobs that run now; the others are off their nodes."""
        running = {}
        for job in jobs:
            tenant_id = job.tenant.tenant_id
            if tenant_id not in self._jobs:
                self._jobs[tenant_id] = self._follow(job)
            observed = self._jobs[tenant_id]
            observed.followed = job
            # It stays true: traffic that was held up then is missing for good.
            observed.shared_links |= bool(job.crowded)
            running[tenant_id] = observed
        for tenant_id in self._jobs.keys() - running.keys():
            self._jobs[tenant_id].work.pause()
        return list(running.values())

    def _follow(self, job: Followed) -> _ObservedJob:
        earlier = self._left.pop(job.job_id, None)
        if earlier is None:
            return _ObservedJob(job)
        return earlier.on_new_nodes(job)

    def leave(self, tenant_id: int) -> None:
        """Keeps the evidence on a job that leaves its VMs and resumes
        elsewhere.
        """
        job = self._off_nodes(tenant_id)
        if job is not None:
            self._left[job.followed.job_id] = job

    def forget(self, job_id: str, tenant_id: int | None) -> None:
        """Drops the evidence on a job that ends without a verdict, or begins
        anew. ``tenant_id``: None for one that is off its nodes.
        """
        self._left.pop(job_id, None)
        if tenant_id is not None:
            self._off_nodes(tenant_id)

    def _off_nodes(self, tenant_id: int) -> _ObservedJob | None:
        """Ends the evidence on a tenant; None for an unknown one."""
        job = self._jobs.pop(tenant_id, None)
        self._disturbed.pop(tenant_id, None)
        if job is not None:
            # Elsewhere the job has another tenant number.
            self._end_traffic(job)
            _add_class_drops(self._class_drops, tenant_id, job)
            job.work.pause()
        return job

    def disturb(self, tenant_id: int, outage_s: float) -> None:
        """Records that the experiment has stopped a job, or changed its rate.

        ``outage_s``: the time for which it was stopped; infinite for a job that
        stands still from now on.
        """
        earlier = self._disturbed.get(tenant_id, NONE)
        later = disturbance(time.monotonic(), outage_s)
        self._disturbed[tenant_id] = earlier.followed_by(later)

    def is_disturbed(self, tenant_id: int, since_s: float) -> bool:
        """True if the experiment may have disturbed its traffic after
        ``since_s``.
        """
        return since_s < self._disturbed.get(tenant_id, NONE).until_s

    def woke(self, late_s: float) -> None:
        """Records by how much the run's own process has now woken up late."""
        self._wakeups.append((time.monotonic(), late_s))

    def drop(self, tenant_id: int, packets: int) -> None:
        """Adds drops of a tenant's classes on links, those in
        :meth:`class_drops` excepted.
        """
        if tenant_id in self._jobs:
            self._jobs[tenant_id].drops += packets

    def converging(self) -> frozenset[tuple[int, int]]:
        """Tenants, each with a directed link on which its VMs may send more
        than it has reserved.
        """
        links = []
        for tenant_id, job in self._jobs.items():
            links += [(tenant_id, link) for link in job.followed.converging]
        return frozenset(links)

    def read_classes(
        self, rows: NDArray[Any], counters: NDArray[Any], waited_s: float
    ) -> None:
        """Takes counters of the classes in :meth:`converging`.

        ``waited_s``: time for which the switch has waited for a processor so
        far.
        """
        for row, counted in zip(
            rows.tolist(), counters.tolist(), strict=True
        ):
            _, tenant_id, link, rate_bps, *_ = row
            job = self._jobs.get(tenant_id)
            if job is None or link not in job.followed.converging:
                continue
            if link not in job.classes:
                job.classes[link] = FullClass(job.followed.tenant)
            count = ClassCount._make([*counted, waited_s])
            job.classes[link].take(count, rate_bps)

    def reads_class(self, tenant_id: int, link: int) -> bool:
        """True if :meth:`class_drops` counts the drops of this class."""
        job = self._jobs.get(tenant_id)
        if job is None or link not in job.followed.converging:
            return False
        return link in job.classes

    def class_drops(self) -> dict[tuple[int, int], ClassDrops]:
        """Drops of the classes in :meth:`converging`, by tenant and directed
        link.
        """
        result = dict(self._class_drops)
        for tenant_id, job in self._jobs.items():
            _add_class_drops(result, tenant_id, job)
        return result

    def _sends_at_rate(self, job: Followed, now_s: float) -> bool:
        """True if it sends at its rate now, so that a part of the switch that
        stands still holds up its traffic.
        """
        disturbed = self._disturbed.get(job.tenant.tenant_id, NONE)
        may_send = job.is_reserved and now_s >= disturbed.until_s
        if job.is_nearly_over or now_s < job.since_s:
            return False
        if job.kind == "iperf3":
            # It sends nothing while it connects, or exchanges its results.
            received = self._jobs[job.tenant.tenant_id].received
            ends_s = job.began_s + job.length_s
            return may_send and bool(received) and now_s < ends_s
        return job.kind in AT_RATE and may_send

    def count(self, rows: NDArray[Any], counters: NDArray[Any]) -> None:
        """Takes counters of the limiters in ``rows``, in the same order."""
        self._count_queues(rows, counters)
        self._count_links(rows, counters)
        for row, counted in zip(
            rows.tolist(), counters.tolist(), strict=True
        ):
            what, tenant_id, where, rate_bps, *_, most_bps = row
            at_s, sent_bytes, *_ = counted
            job = self._jobs.get(tenant_id)
            # The job or limiter is gone, or the time of its count is unknown.
            if job is None or sent_bytes < 0 or not isfinite(at_s):
                continue
            limiter = (what, where)
            followed = job.followed
            if self._switch is not None and followed.kind not in OFFLINE:
                self._switch.count(
                    followed.tenant, limiter, at_s, sent_bytes
                )
            if what == LINK:
                continue
            disturbed = self._disturbed.get(tenant_id, NONE)
            count = (at_s, sent_bytes, most_bps)
            if limiter in job.capped:
                job.capped[limiter].counted.take(*count, disturbed)
            else:
                burst_s = SEND_BURST_S
                if what == RECEIVE_CAP:
                    burst_s = switch_catch_up_s(followed.tenant)
                job.capped[limiter] = _Cap(Counted(*count), burst_s)
            if what == RECEIVE_CAP:
                _count_received(
                    job,
                    vm=where,
                    count=(at_s, sent_bytes, rate_bps),
                    disturbed=disturbed,
                    links=self._links,
                )

    def _count_links(
        self, rows: NDArray[Any], counters: NDArray[Any]
    ) -> None:
        """Takes counters of links that jobs without a reservation use."""
        whole = rows["what"] == WHOLE_LINK
        for row, counted in zip(
            rows[whole].tolist(), counters[whole].tolist(), strict=True
        ):
            _, _, link, rate_bps, *_ = row
            at_s, sent_bytes, *_ = counted
            if link in self._links:
                self._links[link].take(at_s, sent_bytes, rate_bps)
            else:
                self._links[link] = LinkUse(at_s, sent_bytes, rate_bps)

    def _count_queues(
        self, rows: NDArray[Any], counters: NDArray[Any]
    ) -> None:
        """Counts jobs' samples, and those in which their packets wait."""
        waiting = counters["backlog_bytes"] > 0
        sampled = set(rows["tenant"].tolist())
        queued = set(rows["tenant"][waiting].tolist())
        for tenant_id, job in self._jobs.items():
            job.samples += tenant_id in sampled
            job.queued_samples += tenant_id in queued

    def finish_stopped(
        self, followed: Followed, ran_s: float, *, computes: bool = False
    ) -> JobEvidence | None:
        """The evidence on a job that its reservation's end stops now.

        Its agents do not report, so the time that they lost is not known.
        ``ran_s``: its time on nodes. ``computes``: it only computes, and needs
        no more time than was planned.
        """
        tenant_id = followed.tenant.tenant_id
        # A short one may be stopped before the first look.
        if tenant_id not in self._jobs:
            self._jobs[tenant_id] = self._follow(followed)
        short_s = 0.0
        if computes or (followed.is_whole and not followed.was_paused):
            short_s = max(0.0, followed.length_s - ran_s)
        return self.finish(
            tenant_id, lost_s=None, short_s=short_s, cut_off=computes
        )

    def finish(
        self,
        tenant_id: int,
        *,
        lost_s: float | None = 0.0,
        arrivals: Mapping[int, Arrival] | None = None,
        resent: int | None = None,
        done_s: Mapping[Claim, float] | None = None,
        short_s: float = 0.0,
        cut_off: bool = False,
    ) -> JobEvidence | None:
        """The evidence on a job that has ended, also kept for the verdict; None
        if the job is not known.

        - ``lost_s``: the time by which its slowest agent reports to be behind;
          None: not known.
        - ``arrivals``: by VM, of VMs that had a volume to receive.
        - ``resent``: segments that its VMs' TCP sent again; None: not counted.
        - ``done_s``: the time at which VMs that compute were done, on the clock
          of the looks.
        - ``short_s``: the time that was left to run when its reservation's end
          stopped it; ``cut_off``: it only computes, and was to end by then.
        """
        job = self._jobs.pop(tenant_id, None)
        if job is None:
            return None
        for claim, at_s in (done_s or {}).items():
            job.work.end(claim, at_s)
        _add_class_drops(self._class_drops, tenant_id, job)
        disturbed = self._disturbed.pop(tenant_id, NONE)
        self._end_traffic(job)
        evidence = replace(
            _evidence(job, arrivals or {}, disturbed),
            late_wake_s=self._late_wake_s(job.followed.began_s),
            resent_s=_resent_s(job, resent),
            short_s=short_s,
            cut_off=cut_off,
        )
        if job.followed.is_whole and not job.followed.was_paused:
            evidence = _with_pace(evidence, job, lost_s)
        if evidence.held_s is None:
            evidence = _with_work(evidence, job.work)
        self.ended.append(evidence)
        return evidence

    def _late_wake_s(self, since_s: float) -> float:
        """Lateness of wake-ups since an instant, 99th percentile."""
        # They are sorted by time.
        first = bisect_left(self._wakeups, (since_s, 0.0))
        late_s = [late for _, late in self._wakeups[first:]]
        if not late_s:
            return 0.0
        return quantile(late_s, 0.99)

    def _end_traffic(self, job: _ObservedJob) -> None:
        """Ends the switch's evidence on a job.

        For a job that may pause, the time for which its packets waited counts as
        a standstill.
        """
        if self._switch is None:
            return
        tenant_id = job.followed.tenant.tenant_id
        if job.followed.kind not in AT_RATE:
            waited_s = self._switch.waited_s(tenant_id)
            job.stood_s = max(job.stood_s, waited_s)
        self._switch.forget(tenant_id)


def _add_class_drops(
    result: dict[tuple[int, int], ClassDrops],
    tenant_id: int,
    job: _ObservedJob,
) -> None:
    """Adds a job's drops. Every tenant of a run has a number of its own."""
    for link, drops in drops_of(job.classes).items():
        result[tenant_id, link] = drops


def _count_received(
    job: _ObservedJob,
    vm: int,
    count: tuple[float, int, int],
    disturbed: Disturbance,
    links: Mapping[int, LinkUse],
) -> None:
    """Counts the traffic that a VM has received, until it may have all.

    Acknowledgements are counted too, so the count reaches the volume a little
    early. The rest is judged by the arrival of the last byte.
    """
    followed = job.followed
    at_s, sent_bytes, rate_bps = count
    data_bits = wire_bits(followed.volume_bytes(vm))
    if 8 * sent_bytes >= data_bits * followed.arriving:
        return
    # iperf3 sends for its time, without a volume.
    ends_s = followed.began_s + followed.length_s
    if followed.kind == "iperf3" and at_s > ends_s:
        return
    if vm not in job.received and followed.kind == "iperf3":
        # It has connected before: its time at the rate begins here.
        job.received[vm] = Counted(*count)
        return
    if vm not in job.received:
        job.received[vm] = Counted(followed.since_s, 0, rate_bps)
    counted = job.received[vm]
    before_s = counted.watched_s
    before_bits = counted.lack_bits
    counted.take(*count, disturbed)
    job.held_up.setdefault(vm, HeldUp()).take(
        counted.watched_s - before_s,
        (counted.lack_bits - before_bits) / max(1.0, rate_bps),
        [links.get(link) for link in followed.crowded.get(vm, ())],
    )


def _evidence(
    job: _ObservedJob,
    arrivals: Mapping[int, Arrival],
    disturbed: Disturbance,
) -> JobEvidence:
    followed = job.followed
    waits_s = [agent.waited_s for agent in job.progress.values()]
    evidence = JobEvidence(
        followed.job_id,
        followed.kind,
        followed.length_s,
        followed.began_s,
        waited_s=max(waits_s, default=0.0),
        stood_s=job.stood_s + job.end_stood_s,
        queued=job.queued_samples / max(1, job.samples),
        drops=_doubtful_drops(job),
        full_drops=job.class_drops().full,
        moving_s=followed.moving_s,
        band=followed.band,
    )
    if not followed.is_reserved:
        return evidence
    evidence = replace(evidence, excess=_excess(job))
    if not followed.is_whole and followed.kind not in AT_RATE:
        return evidence
    # Without a reservation its VMs' caps limit it, or full links.
    unreserved = followed.kind == "best effort" and followed.is_continuous
    is_counted = followed.kind in COUNTED or unreserved
    if not is_counted or not job.received:
        return evidence
    if followed.kind in CURVES:
        return _with_curve(evidence, job, arrivals, disturbed)
    if unreserved:
        return _with_cap(evidence, job, arrivals, disturbed)
    return _with_rate(evidence, job, arrivals, disturbed)


def _with_cap(
    evidence: JobEvidence,
    job: _ObservedJob,
    arrivals: Mapping[int, Arrival],
    disturbed: Disturbance,
) -> JobEvidence:
    """Adds the time by which traffic without a reservation fell behind its VMs'
    caps.

    Time in which links that it shared were full is left out: they delay it by
    design.
    """
    counted = _with_rate(evidence, job, arrivals, disturbed)
    # Only the caps could limit it: the machine caused whatever is missing.
    if not job.shared_links:
        return replace(counted, held_s=0.0)
    held_up = [job.held_up[vm] for vm in job.received]
    watched_s = min(vm.watched_s for vm in held_up)
    # Extrapolated from the time watched.
    lack_s = max(vm.lack for vm in held_up) * evidence.length_s
    return replace(
        counted, watched_s=watched_s, held_s=lack_s, missing_s=0.0
    )


def _with_rate(
    evidence: JobEvidence,
    job: _ObservedJob,
    arrivals: Mapping[int, Arrival],
    disturbed: Disturbance,
) -> JobEvidence:
    """Adds the time that its rate needs for its missing traffic."""
    missing_s = max(job.lack_s.values(), default=0.0)
    tail_s = 0.0
    for vm, counted in job.received.items():
        present_s, vm_tail_s = _missing_s(
            job, counted, arrivals.get(vm), disturbed
        )
        lack_s = job.lack_s.get(vm, 0.0) + present_s
        if lack_s > missing_s:
            missing_s = lack_s
            tail_s = vm_tail_s
    return replace(
        evidence,
        watched_s=job.all_watched_s,
        disturbed_s=job.all_disturbed_s,
        missing_s=max(0.0, missing_s),
        tail_s=tail_s,
    )


def _with_curve(
    evidence: JobEvidence,
    job: _ObservedJob,
    arrivals: Mapping[int, Arrival],
    disturbed: Disturbance,
) -> JobEvidence:
    """Adds the time by which its traffic ended behind its demand curve.

    Nothing is added for a job that was disturbed, as its place in the curve is
    not known, or if a VM's last byte is not known.
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
    evidence: JobEvidence,
    job: _ObservedJob,
    lost_s: float | None,
) -> JobEvidence:
    """Adds the time that its agents lost, or that its programs waited."""
    followed = job.followed
    if followed.kind in PACED:
        return replace(evidence, lost_s=lost_s)
    if followed.is_paced:
        return replace(evidence, held_s=lost_s)
    if job.waits:
        # A program waits by design beside background VMs that use all the time
        # it leaves. The machine causes at most the node's lack of processor time.
        waited_s = job.programs_waited_s - job.shared_waited_s
        waited_s += min(job.shared_waited_s, job.nodes.lack_s)
        return replace(evidence, held_s=waited_s)
    return evidence


def _with_work(evidence: JobEvidence, work: Work) -> JobEvidence:
    """Adds the processor time that its computing VMs lacked, if watched enough.

    This holds at any tier, as such VMs use whatever they get.
    """
    if work.watched_s < LEAST_WATCHED * evidence.length_s:
        return evidence
    return replace(evidence, held_s=work.lack_s)


def _missing_s(
    job: _ObservedJob,
    counted: Counted,
    arrival: Arrival | None,
    disturbed: Disturbance,
) -> tuple[float, float]:
    """Time that a VM's missing traffic takes: in all its time on its present
    node, and after its last count.
    """
    if arrival is not None:
        all_bits = arrival.wire_bits * job.followed.arriving
        tail_bits = counted.tail_lack(
            arrival._replace(wire_bits=all_bits), disturbed
        )
        lack_s = counted.seconds(counted.lack_bits + tail_bits)
        return lack_s, counted.seconds(tail_bits)
    # A packet counts at its end: on average, half of one is on its way.
    packet_bits = 8 * largest_packet_bytes(job.followed.tenant)
    lack_bits = counted.lack_in(job.followed.length_s) - packet_bits / 2
    return counted.seconds(lack_bits), 0.0


def _doubtful_drops(job: _ObservedJob) -> int:
    """Drops of its classes on links, except those of full classes."""
    of_classes = job.class_drops()
    return job.drops + of_classes.packets - of_classes.full


def _resent_s(job: _ObservedJob, resent: int | None) -> float:
    """Longest time that a VM's cap needs to send dropped packets again.

    Their traffic is at most that of as many largest packets, and at most that
    of all segments that TCP sent again (``resent``). These also repeat packets
    that a VM's own cap dropped.
    """
    tenant = job.followed.tenant
    lost_bits = 8 * largest_packet_bytes(tenant) * _doubtful_drops(job)
    if resent is not None:
        lost_bits = min(lost_bits, 8 * FRAME_BYTES * resent)
    return lost_bits / max(1.0, tenant.cap_bps)


def _excess(job: _ObservedJob) -> float:
    """The largest excess of its VMs' caps (:meth:`_Cap.excess`)."""
    tenant = job.followed.tenant
    packet_bits = 8.0 * largest_packet_bytes(tenant)
    shares = [
        cap.excess(packet_bits, tenant.cap_bps)
        for cap in job.capped.values()
    ]
    return max(shares, default=0.0)
