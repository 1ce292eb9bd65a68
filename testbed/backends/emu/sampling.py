"""Samples of links, queues, processors and late wake-ups, about once a second.

CPU time of processes under SCHED_IDLE counts as available, although the kernel
counts it as used: they run only while no other process of their group is ready.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import (
    Callable,
    Collection,
    Iterable,
    Mapping,
    Sequence,
)
from contextlib import suppress
from functools import partial
from math import isfinite, isnan, nan
from pathlib import Path, PurePosixPath
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from testbed import events
from testbed.backends.emu.cgroups import group_of, groups_of_run
from testbed.backends.emu.job_evidence import (
    NEARLY_OVER,
    EvidenceTaker,
    Followed,
)
from testbed.backends.emu.limiter_counters import (
    COUNTERS,
    LINK,
    NOT_COUNTED,
    RECEIVE_CAP,
    SEND_CAP,
    WHOLE_LINK,
    Limiter,
)
from testbed.backends.emu.process_progress import spent
from testbed.backends.emu.switch_evidence import SwitchEvidence
from testbed.plan import fidelity
from testbed.plan.batch_lines import VM_DEVICE
from testbed.plan.direct_evidence import controller_finding, lateness
from testbed.plan.limits import (
    RESERVED_CATCH_UP_S,
    largest_packet_bytes,
    reserved_catch_up_s,
)
from testbed.plan.network_plan import NetworkPlan, TenantPlan
from testbed.spec.experiment import Scale
from topologies.datacentre import down, up

if TYPE_CHECKING:
    from testbed.backends.emu.emulation import Emulation

SAMPLE_EVERY_S = 1.0
SAMPLE_EVERY_AT_MOST_S = 5.0
# Time between reads of classes that several VMs may fill. It is short, as a
# queue of 300 kB is empty after 80 ms at 30 Mbit/s.
CLASSES_EVERY_S = 0.025
# Share of a processor that samples may take: they are taken less often if they
# cost more.
SAMPLES_SHARE = 0.025

COLUMNS = (
    "what",
    "tenant",
    "where",
    "rate_bps",
    "packet_bits",
    "bucket_bits",
    "most_bps",
)
LIMITER = np.dtype([(column, "i8") for column in COLUMNS])
"""A limiter of a tenant.

``tenant``: 0 for a whole link, as no tenant has that number. ``where``: the
directed link, or the VM's index. ``packet_bits``: the largest packet, which
leaves at once and counts whole in one sample. ``bucket_bits``: the part of its
bucket beyond the usual size, sent at once after a pause; it fits a large
packet. ``most_bps``: its ceiling, above its rate where bandwidth is lent.
"""


def limiters(
    tenants: Iterable[TenantPlan], plan: NetworkPlan
) -> dict[Limiter, tuple[int, ...]]:
    """Rows of :data:`LIMITER` for every limiter of the tenants.

    They are both caps of each VM, and a class on every directed link that the
    tenant reserved. If it reserved none, all links of its tree, whole, take the
    place of the classes.
    """
    rows: dict[Limiter, tuple[int, ...]] = {}
    for tenant in tenants:
        key = tenant.tenant_id
        packet = 8 * largest_packet_bytes(tenant)
        catch_up_s = max(
            0.0, reserved_catch_up_s(tenant) - RESERVED_CATCH_UP_S
        )
        for link, bps in tenant.link_bps:
            port = plan.sending_port(link).name
            bucket = round(catch_up_s * bps)
            most_bps = bps
            if tenant.lent_bps:
                most_bps = plan.directed_bps(link)
            row = (LINK, key, link, bps, packet, bucket, most_bps)
            rows[Limiter(None, port, key)] = row
        bps = tenant.rate_bps
        bucket = round(catch_up_s * bps)
        cap_bps = tenant.cap_bps
        for vm in tenant.vms:
            row = (RECEIVE_CAP, key, vm.index, bps, packet, bucket, cap_bps)
            rows[Limiter(None, vm.slot.port.name)] = row
            row = (SEND_CAP, key, vm.index, bps, packet, packet, cap_bps)
            rows[Limiter(vm.slot.netns, VM_DEVICE)] = row
        if not tenant.link_bps:
            rows.update(_whole_links(tenant, plan))
    return rows


def _whole_links(
    tenant: TenantPlan, plan: NetworkPlan
) -> dict[Limiter, tuple[int, ...]]:
    """Rows of :data:`LIMITER` for the links of a tenant's tree, both
    directions.
    """
    rows: dict[Limiter, tuple[int, ...]] = {}
    ports = [link.lower.name for link in plan.links]
    for edge in tenant.edges:
        number = ports.index(edge.lower.name)
        for link in (up(number), down(number)):
            bps = plan.directed_bps(link)
            port = plan.sending_port(link).name
            row = (WHOLE_LINK, 0, link, bps, 0, 0, bps)
            rows[Limiter(None, port)] = row
    return rows


class Watch:
    """Takes samples while the backend waits, and judges them at the end."""

    def __init__(
        self,
        emulation: Emulation,
        scale: Scale,
        sink: Callable[[events.Event], None],
        now_s: Callable[[], float],
    ) -> None:
        self._emulation = emulation
        self._scale = scale
        self._sink = sink
        self._now_s = now_s
        self._next = 0.0
        self._stood_s = 0.0
        self._held_up_s = 0.0
        self._tenants: Sequence[TenantPlan] | None = None
        self._borrowers: list[int] = []
        self._rows = np.zeros(0, LIMITER)
        self._last_s: float | None = None
        self._last = np.zeros(0, COUNTERS)
        self._last_bps = self._rows["rate_bps"]
        self._starved = fidelity.Starved()
        self._cap_limited = fidelity.CapLimited()
        self._exceeding = fidelity.Exceeding()
        self._received = fidelity.ReceivedShares()
        self._samples: list[fidelity.ProcessorSample] = []
        self._late_s: list[float] = []
        self._drops: Counter[str] = Counter()
        self._cost_s = 0.0
        self._classes: tuple[object, object] = (None, None)
        self._class_rows = np.zeros(0, LIMITER)
        self._classes_next_s = 0.0
        self.evidence = EvidenceTaker()
        self.lost_ports: list[tuple[int, int]] = []
        """VMs whose ports were gone at the last sample, as (tenant, VM)."""

    def start(self) -> None:
        """Begins sampling; counts of earlier times do not belong to the run."""
        # Here, as preparing the jobs of time 0 takes processor time, too.
        self._outside = Outside()
        self._processors = ProcessorSampler(self._outside)
        self.follow_switches()
        self._stood_s = self._emulation.controller_stood_s or 0.0
        self._held_up_s = self._emulation.held_up_s
        self._next = time.monotonic() + SAMPLE_EVERY_S
        self._last_s = None

    def follow_switches(self) -> None:
        """Samples the switch's present processes; called again after its
        restart.
        """
        network = self._emulation.network
        pids = network.switch_pids
        self._outside.not_counted = pids
        self._switches = [Waiting(pid or 0) for pid in pids]
        evidence = None
        if not network.forwards_in_kernel:
            evidence = SwitchEvidence(
                self._emulation.plan, network.forwarders
            )
        self.evidence.start(evidence)

    def tick(
        self,
        timeout_s: float,
        tenants: Sequence[TenantPlan],
        cap_limited: Mapping[int, float],
    ) -> float:
        """Samples if it is time; returns the time in s after which to call
        again.

        ``timeout_s``: the longest time to return. ``cap_limited``: the arrived
        share of its payload, by the number of a tenant whose VMs always send at
        their own caps.
        """
        now = time.monotonic()
        if self._next and now >= self._next:
            # This thread's processor time: its waits for a processor cost
            # no job anything.
            began_s = time.thread_time()
            self._sample(tenants, cap_limited)
            self._cost_s = time.thread_time() - began_s
            now = time.monotonic()
            # Over less than a second, a single packet would be a large part of
            # the rate.
            every_s = max(SAMPLE_EVERY_S, self._cost_s / SAMPLES_SHARE)
            self._next = now + min(SAMPLE_EVERY_AT_MOST_S, every_s)
        if not self._next:
            return timeout_s
        return max(0.0, min(timeout_s, self._next - now))

    def look(
        self, timeout_s: float, running: Callable[[], Sequence[Followed]]
    ) -> float:
        """Looks at the jobs' processes, and reads classes, each if it is time.

        Returns the time in s after which to call again, at most ``timeout_s``.
        """
        if not self._next:
            return timeout_s
        if self.evidence.due_in_s() <= 0:
            jobs = running()
            self.evidence.look(jobs)
            # A count reads the counters of a sample, and costs as much.
            is_cheap = self._cost_s <= SAMPLES_SHARE * SAMPLE_EVERY_S
            tenants = [job.tenant for job in jobs]
            if self.evidence.wants_count and is_cheap:
                self._count(tenants)
            self._follow_classes(tenants)
        due_in_s = self.evidence.due_in_s()
        if len(self._class_rows):
            due_in_s = min(due_in_s, self._read_classes())
        return max(0.0, min(timeout_s, due_in_s))

    def slept(self, asked_s: float, took_s: float) -> None:
        """Records how late this process woke from a sleep that was not cut
        short.

        ``asked_s``: the sleep's planned time; ``took_s``: its time without work
        of this process, such as a policy's decision, which is not lateness.
        """
        if self._next and 0.0 < asked_s <= took_s:
            self._late_s.append(took_s - asked_s)
            self.evidence.woke(took_s - asked_s)

    def _follow_classes(self, tenants: Sequence[TenantPlan]) -> None:
        """Sets up the reader of the classes that several VMs of a program may
        fill.
        """
        converging = self.evidence.converging()
        if converging:
            self._follow_new(tenants)
        # Tenants too: rates of the same classes may have changed.
        followed = (converging, self._tenants)
        if followed == self._classes:
            return
        self._classes = followed
        limiters_read = []
        rows = []
        for row, (what, tenant, link, *_) in enumerate(self._rows.tolist()):
            if what == LINK and (tenant, link) in converging:
                port = self._emulation.plan.sending_port(link).name
                limiters_read.append(Limiter(None, port, tenant))
                rows.append(row)
        self._class_rows = self._rows[rows]
        if rows:
            self._class_reader = self._emulation.network.counter_reader(
                limiters_read, one_by_one=True
            )
            # Drops count from the first read on, so it is done at once.
            self._classes_next_s = 0.0

    def _read_classes(self) -> float:
        """Reads the followed classes if it is time.

        Returns the time in s until the next read.
        """
        now_s = time.monotonic()
        if now_s >= self._classes_next_s:
            began_s = time.thread_time()
            self.evidence.read_classes(
                self._class_rows,
                self._class_reader.read(),
                self._switch_waited_s(),
            )
            cost_s = time.thread_time() - began_s
            every_s = max(CLASSES_EVERY_S, cost_s / SAMPLES_SHARE)
            self._classes_next_s = now_s + every_s
        return max(0.0, self._classes_next_s - now_s)

    def _switch_waited_s(self) -> float:
        """Time for which the switch's parts have waited for a processor so far,
        in sum; NaN: not known.
        """
        network = self._emulation.network
        # The kernel's datapath is no process that could wait.
        if network.forwards_in_kernel:
            return 0.0
        total_s = 0.0
        for pid in network.switch_pids:
            part = spent(pid or 0)
            if part is None:
                return nan
            total_s += part.waited_s
        return total_s

    def _follow_new(self, tenants: Sequence[TenantPlan]) -> None:
        """Adds the tenants that have come since the last sample to those
        followed.
        """
        known = list(self._tenants or ())
        new = [tenant for tenant in tenants if tenant not in known]
        if new:
            self._follow([*known, *new])

    def _count(self, tenants: Sequence[TenantPlan]) -> None:
        """Counts traffic between two samples, for a job too short for samples."""
        self._follow_new(tenants)
        self.evidence.count(self._rows, self._reader.read())

    def _sample(
        self,
        tenants: Sequence[TenantPlan],
        cap_limited: Mapping[int, float],
    ) -> None:
        """Samples the processors, then every tenant's limiters."""
        use = self._processors.sample()
        # The switch's part that waited longest: packets of most jobs pass
        # several.
        waits = [switch.sample() for switch in self._switches]
        longest = max(
            (wait for wait in waits if wait is not None), default=nan
        )
        if tenants != self._tenants:
            self._follow(tenants)
        now_s = time.monotonic()
        now = self._reader.read()
        self._note_lost_ports(now)
        self.evidence.count(self._rows, now)
        received = nan
        if self._last_s is not None:
            received = self._compare(now_s - self._last_s, now, cap_limited)
        if tenants:
            # VMs that are not cap-limited may pause: the traffic of others is
            # then no measure of a lack of processors.
            all_limited = all(
                tenant.tenant_id in cap_limited for tenant in tenants
            )
            if not all_limited:
                received = nan
            # The counters were read in time, so there is no share only because
            # a VM has just begun, or is about to end.
            unsettled = (
                all_limited and isnan(received) and self._is_timed(now)
            )
            self._samples.append(
                fidelity.ProcessorSample(*use, longest, received, unsettled)
            )
        self._last_s = now_s
        self._last = now
        self._last_bps = self._rows["rate_bps"]

    def _note_lost_ports(self, now: NDArray[Any]) -> None:
        # A negative count marks a limiter that is gone.
        of_vms = self._rows["what"] == RECEIVE_CAP
        lost = self._rows[of_vms & (now["sent_bytes"] < 0)]
        self.lost_ports = []
        for _, tenant, vm, *_ in lost.tolist():
            self.lost_ports.append((tenant, vm))

    def _is_timed(self, now: NDArray[Any]) -> bool:
        """True if the times are known at which both last samples were read."""
        late = self._read_too_late(self._last) or self._read_too_late(now)
        return not late

    def _read_too_late(self, counters: NDArray[Any]) -> bool:
        """True if the time is not known at which a counter of a VM was read."""
        of_vms = self._rows["what"] == RECEIVE_CAP
        present = counters["sent_bytes"] >= 0
        return bool((of_vms & present & np.isnan(counters["at_s"])).any())

    def _follow(self, tenants: Sequence[TenantPlan]) -> None:
        """Replaces the limiters by those of ``tenants``; drops all others."""
        rows = limiters(tenants, self._emulation.plan)
        old_rows = self._rows.tolist()
        # By kind, tenant and place: a limiter stays the same when its rate
        # changes.
        row_of = {tuple(row[:3]): i for i, row in enumerate(old_rows)}
        # A new limiter has -1, the row of the absent one that is added below.
        earlier_row = np.array(
            [row_of.get(row[:3], -1) for row in rows.values()],
            dtype=np.int64,
        )
        for judge in (self._starved, self._cap_limited, self._exceeding):
            judge.renumber(earlier_row)
        absent = np.array([NOT_COUNTED], COUNTERS)
        self._last = np.append(self._last, absent)[earlier_row]
        self._last_bps = np.append(self._last_bps, 0)[earlier_row]
        self._rows = np.array(list(rows.values()), LIMITER)
        self._reader = self._emulation.network.counter_reader(list(rows))
        self._tenants = list(tenants)
        self._borrowers = [t.tenant_id for t in tenants if t.lent_bps]

    def _compare(
        self,
        length_s: float,
        now: NDArray[Any],
        cap_limited: Mapping[int, float],
    ) -> float:
        """Judges the limiters' traffic since the last sample.

        ``length_s``: the time since then. Returns the share of their rates that
        cap-limited VMs received; NaN: not known.
        """
        rows = self._rows
        interval_s = now["at_s"] - self._last["at_s"]
        samples = self._class_samples(now, interval_s)
        on_link = rows["what"] == LINK
        not_borrowing = ~np.isin(rows["tenant"], self._borrowers)
        undisturbed = self._undisturbed(rows)
        self._starved.take(samples, on_link & undisturbed)
        of_limited = np.isin(rows["tenant"], list(cap_limited))
        self._cap_limited.take(
            samples, ~on_link & not_borrowing & of_limited & undisturbed
        )
        self._exceeding.take(samples, rows["what"] != WHOLE_LINK)
        # Drops are expected of caps, which limit TCP so, and of borrowers'
        # classes when a link is full; of no others.
        self._count_drops(samples, on_link & not_borrowing, now)
        known = on_link & samples.known
        self._record(length_s, rows[known], samples.sent_bps[known])
        # If a job is nearly over some of its VMs may have ended.
        sending = []
        for tenant, share in cap_limited.items():
            if share < NEARLY_OVER:
                sending.append(tenant)
        receiving = (
            samples.known
            & (rows["what"] == RECEIVE_CAP)
            & np.isin(rows["tenant"], sending)
        )
        return self._received.take(
            rows["tenant"][receiving],
            interval_s[receiving],
            samples.where(receiving),
        )

    def _undisturbed(self, rows: NDArray[Any]) -> NDArray[Any]:
        """Mask of the rows of tenants undisturbed since the last sample."""
        disturbed = [
            tenant
            for tenant in set(rows["tenant"].tolist())
            if self.evidence.is_disturbed(tenant, self._last_s or 0.0)
        ]
        return ~np.isin(rows["tenant"], disturbed)

    def _class_samples(
        self, now: NDArray[Any], interval_s: NDArray[Any]
    ) -> fidelity.ClassSamples:
        """Rates and queues of all limiters since the last sample."""
        was = self._last
        rows = self._rows
        sent_bytes = now["sent_bytes"] - was["sent_bytes"]
        # Rates may have changed in between: only less than the lower one is too
        # little, only more than the higher one too much. Only a queue at both
        # ends may have lasted all the time: the shorter one counts.
        return fidelity.ClassSamples(
            names=partial(self._name, rows),
            rate_bps=np.minimum(self._last_bps, rows["rate_bps"]),
            sent_bps=sent_bytes * 8 / interval_s,
            queue_bytes=np.minimum(
                was["backlog_bytes"], now["backlog_bytes"]
            ),
            most_bps=np.maximum(self._last_bps, rows["most_bps"]),
            packet_bps=rows["packet_bits"] / interval_s,
            packet_bits=rows["packet_bits"],
            bucket_bps=rows["bucket_bits"] / interval_s,
        )

    def _count_drops(
        self,
        samples: fidelity.ClassSamples,
        mask: NDArray[Any],
        now: NDArray[Any],
    ) -> None:
        """Adds the drops since the last sample of the limiters in ``mask``."""
        was = self._last
        counted = (was["sent_bytes"] >= 0) & (now["sent_bytes"] >= 0)
        drops = now["drops"] - was["drops"]
        dropping = mask & counted & (drops > 0)
        for row in np.flatnonzero(dropping).tolist():
            _, tenant, link, *_ = self._rows[row].tolist()
            if self.evidence.reads_class(tenant, link):
                continue
            packets = int(drops[row])
            self._drops[samples.names(row)] += packets
            self.evidence.drop(tenant, packets)

    def _record(
        self,
        length_s: float,
        rows: NDArray[Any],
        sent_bps: NDArray[Any],
    ) -> None:
        """Records the rates that all tenants sent and reserved on each link, in
        sum.
        """
        # Sums by number, not by sorting: under qemu's emulated processors numpy's
        # vectorised argsort ends the process.
        place = rows["where"]
        links = np.flatnonzero(np.bincount(place))
        if not links.size:
            return
        rate = self._scale.rate
        sent = np.bincount(place, sent_bps)[links] / rate
        reserved = np.bincount(place, rows["rate_bps"])[links] / rate
        columns = (links.tolist(), sent.tolist(), reserved.tolist())
        rates = list(map(list, zip(*columns, strict=True)))
        length_s *= self._scale.time
        self._sink(events.LinkSample(self._now_s(), length_s, rates))

    def _name(self, rows: NDArray[Any], row: int) -> str:
        what, tenant, place, *_ = rows[row].tolist()
        if what == LINK:
            return self._class_name(tenant, place)
        direction = "send" if what == SEND_CAP else "receive"
        return f"tenant {tenant}, VM {place}, {direction} cap"

    def _class_name(self, tenant: int, link: int) -> str:
        name = self._emulation.datacentre.link_name(link)
        return f"{name}, tenant {tenant}"

    @property
    def received(self) -> float:
        """Median share of their rates that cap-limited VMs received.

        NaN where it is not known.
        """
        known = [s.received for s in self._samples if isfinite(s.received)]
        return median(known) if known else nan

    def lacking(self) -> list[fidelity.Finding]:
        """Findings that are not ``ok`` on reserved traffic: too slow, or
        dropped.
        """
        _, lost = fidelity.leaks({}, self._drops)
        findings = (
            self._starved.finding(),
            self._cap_limited.finding(),
            lost,
        )
        return [finding for finding in findings if finding.level != "ok"]

    def findings(self) -> list[fidelity.Finding]:
        """Findings of all checks, over all samples."""
        unshaped = self._emulation.network.unshaped_packets()
        dropped = Counter(self._drops)
        full = {}
        for (tenant, link), drops in self.evidence.class_drops().items():
            name = self._class_name(tenant, link)
            dropped[name] += drops.packets
            full[name] = drops.full
        return [
            self._starved.finding(),
            self._cap_limited.finding(),
            self._exceeding.finding(),
            *fidelity.switch(self._samples),
            *fidelity.processor(self._samples),
            *lateness(self._late_s, self.evidence.ended),
            *fidelity.leaks(unshaped, dropped, full),
            *self._of_controller(),
        ]

    def _of_controller(self) -> list[fidelity.Finding]:
        """The finding on the controller's standstills since the start; none if
        they are not known.
        """
        stood_s = self._emulation.controller_stood_s
        if stood_s is None:
            return []
        held_up_s = self._emulation.held_up_s - self._held_up_s
        return [
            controller_finding(
                max(0.0, stood_s - self._stood_s),
                held_up_s,
                self.evidence.ended,
                is_ours=self._emulation.own_controller is None,
            )
        ]


# ---------------------------------------------------------------------------------- processors


PROC = Path("/proc")
PF_KTHREAD = 0x00200000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


class ProcessorUse(NamedTuple):
    """Shares of all processors since the last sample.

    ``idle``: available; ``steal``: stolen by a hypervisor; ``others``: used by
    other programs than the run's, NaN: not known.
    """

    idle: float
    steal: float
    others: float


class ProcessorSampler:
    """Samples of the processors, each over the time since the last one.

    ``outside_s``: returns the processor time of other programs so far, in s.
    """

    def __init__(
        self, outside_s: Callable[[], float] = lambda: nan
    ) -> None:
        # psutil's own shares are of the time since its last call, by whichever
        # sampler.
        self._times = psutil.cpu_times()
        self._at = time.monotonic()
        self._sched_idle_s = sched_idle_s()
        self._read_outside_s = outside_s
        self._outside_s = outside_s()

    def sample(self) -> ProcessorUse:
        """The use since the last sample. Takes some milliseconds."""
        times = psutil.cpu_times()
        # user, nice, system, idle, iowait, irq, softirq, steal. Times of
        # virtual machines, which follow, are part of user. iowait may fall.
        passed = np.maximum(0.0, np.subtract(times, self._times))[:8]
        self._times = times
        shares = passed / max(1e-9, passed.sum())
        at = time.monotonic()
        # Two samples at one instant must not divide by zero.
        total_s = max(1e-9, (at - self._at) * (os.cpu_count() or 1))
        self._at = at
        idle_class_s = sched_idle_s()
        spent_s = gained_s(self._sched_idle_s, idle_class_s)
        self._sched_idle_s = idle_class_s
        outside_s = self._read_outside_s()
        others = (outside_s - self._outside_s) / total_s
        self._outside_s = outside_s
        # A processor whose task waits for the disk is free for others.
        idle = shares[3:5].sum() + spent_s / total_s
        return ProcessorUse(min(1.0, idle), shares[7], others)


class Outside:
    """Processor time in s of processes outside the run's control group.

    It counts from the first call on, and never falls. NaN if this process is in
    no run's group. Left out are the kernel's threads, which work for the run
    too, and the processes in ``not_counted``, the machine's own switch.

    When a child ends, its whole time is added to that of the parent that waited
    for it. The part counted before is then subtracted. If no process waits for
    it (its parent ignores SIGCHLD), its time since the last call is lost.
    """

    def __init__(self) -> None:
        self._run = groups_of_run(group_of(PROC / "self", "cpu"))
        self.not_counted: Collection[int | None] = ()
        self._counted: dict[tuple[int, int], bool] = {}
        self._last: dict[int, Used] = {}
        self._sum_s = 0.0 if self._run else nan

    def __call__(self) -> float:
        if not self._run:
            return nan
        current: dict[int, Used] = {}
        counted: dict[tuple[int, int], bool] = {}
        outside = set()
        for pid in psutil.pids():
            try:
                # Of processes inside, too: their times are subtracted when
                # they end and a parent outside has waited for them.
                used = used_ticks(pid)
                current[pid] = used
                # The group of a process is read once, as that costs a file.
                key = (pid, used.began)
                if key in self._counted:
                    counted[key] = self._counted[key]
                else:
                    counted[key] = self._is_outside(pid)
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile
            if counted[key] and pid not in self.not_counted:
                outside.add(pid)
        if self._last:
            ticks = gained_ticks(self._last, current, outside)
            self._sum_s += ticks / TICKS_PER_S
        self._counted = counted
        self._last = current
        return self._sum_s

    def _is_outside(self, pid: int) -> bool:
        group = PurePosixPath(group_of(PROC / str(pid), "cpu"))
        return not any(map(group.is_relative_to, self._run))


class Used(NamedTuple):
    """Processor time of a process so far, in ticks.

    ``ticks``: its own; ``child_ticks``: that of ended children that it waited
    for. Both are 0 for the kernel's threads. ``began``: its start, by which a
    later process with the same number is known.
    """

    parent: int
    began: int
    ticks: int
    child_ticks: int


def used_ticks(pid: int) -> Used:
    """Reads ``/proc/PID/stat``.

    Raises OSError, ValueError or IndexError if the process has ended.
    """
    # The command's name, in parentheses, may itself hold blanks, parentheses
    # and any other bytes; a long one may be cut within a character.
    text = (PROC / str(pid) / "stat").read_text(errors="replace")
    fields = text.rpartition(")")[2].split()
    # The list begins with the state, field 3 of proc_pid_stat(5).
    parent = int(fields[1])
    began = int(fields[19])
    user, system, children_user, children_system = map(int, fields[11:15])
    if int(fields[6]) & PF_KTHREAD:
        return Used(parent, began, ticks=0, child_ticks=0)
    return Used(
        parent, began, user + system, children_user + children_system
    )


def gained_ticks(
    before: Mapping[int, Used],
    after: Mapping[int, Used],
    counted: Collection[int],
) -> int:
    """Ticks that ``counted`` processes and their children used in between.

    When a child has ended, its parent's ``child_ticks`` have grown by its whole
    time; the time that it had ``before`` is subtracted. If the parent has ended
    too, the time may be in any ancestor's ``child_ticks``, or in none. It is
    subtracted from as many ancestors as needed, ``counted`` ones first, so that
    it never counts twice.
    """
    stayed: set[int] = set()
    running: dict[int, int] = {}
    ended: dict[int, int] = {}
    for pid, now in after.items():
        running[pid] = now.ticks
        ended[pid] = now.child_ticks
        old = before.get(pid)
        if old is not None and old.began == now.began:
            stayed.add(pid)
            running[pid] -= old.ticks
            ended[pid] -= old.child_ticks
    _take_off_gone(ended, before, stayed, counted)
    return sum(running[pid] + ended[pid] for pid in counted)


def _take_off_gone(
    ended: dict[int, int],
    before: Mapping[int, Used],
    stayed: Collection[int],
    counted: Collection[int],
) -> None:
    """Subtracts earlier time of gone processes from that of their waiters'
    ``ended`` children.
    """
    # Processes whose parents stayed come first: only the parent can have their
    # time.
    gone = sorted(pid for pid in before if pid not in stayed)
    gone.sort(key=lambda pid: before[pid].parent not in stayed)
    for pid in gone:
        known = before[pid].ticks + before[pid].child_ticks
        parent = before[pid].parent
        waiters = [parent]
        if parent not in stayed:
            waiters = ancestors(parent, before, stayed)
        waiters.sort(key=lambda waiter: waiter not in counted)
        for waiter in waiters:
            part = min(known, ended[waiter])
            ended[waiter] -= part
            known -= part


def ancestors(
    pid: int,
    processes: Mapping[int, Used],
    stayed: Collection[int],
) -> list[int]:
    """Those of a process and its ancestors that ``stayed``, nearest first."""
    line = []
    # Process numbers that are used again can make a circle.
    seen: set[int] = set()
    while pid in processes and pid not in seen:
        seen.add(pid)
        if pid in stayed:
            line.append(pid)
        pid = processes[pid].parent
    return line


class Waiting:
    """Waits of a process's first thread: ready, but not running.

    Waits for a new period of a CPU quota count, as the thread is ready then.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._at = time.monotonic()
        self._spent = spent(pid)

    def sample(self) -> float | None:
        """Waited share of the time since the last sample; None: not known."""
        began = self._at
        before = self._spent
        self._at = time.monotonic()
        self._spent = spent(self._pid)
        if self._spent is None or before is None:
            return None
        waited_s = self._spent.waited_s - before.waited_s
        return min(1.0, waited_s / max(1e-9, self._at - began))


def sched_idle_s() -> dict[int, float]:
    """CPU time so far in s, by process, of processes under SCHED_IDLE that
    leave processors to this one.

    They do only in this process's control group and in the groups above it
    (:func:`competes`). Any other group gets its share whatever the class of its
    processes. With the kernel's autogroup (Debian's default) every session is a
    group: the result is empty.
    """
    with suppress(FileNotFoundError):
        if AUTOGROUP.read_text().strip() != "0":
            return {}
    ours = group_of(PROC / "self", "cpu")
    times: dict[int, float] = {}
    for pid in psutil.pids():
        try:
            # The flag is about its children's class, not its own.
            policy = os.sched_getscheduler(pid) & ~os.SCHED_RESET_ON_FORK
            if policy == os.SCHED_IDLE and competes(
                group_of(PROC / str(pid), "cpu"), ours
            ):
                cpu = psutil.Process(pid).cpu_times()
                times[pid] = cpu.user + cpu.system
        except (OSError, ValueError, psutil.Error):
            continue  # it has ended meanwhile
    return times


def competes(theirs: str, ours: str) -> bool:
    """True if processes of the group ``theirs`` compete with those of ``ours``
    by scheduling class: ``ours`` is ``theirs``, or below it.
    """
    # The root group alone ends in a slash.
    return ours == theirs or ours.startswith(theirs.rstrip("/") + "/")


def gained_s(
    before: Mapping[int, float], after: Mapping[int, float]
) -> float:
    """CPU time in s used in between by processes that are in both.

    Others do not count, so that the result is never too high.
    """
    both = before.keys() & after.keys()
    return sum(max(0.0, after[pid] - before[pid]) for pid in both)
