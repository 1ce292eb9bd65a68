"""Samples beside the jobs, about once a second: links, queues, processors, wake-up lateness.

CPU time of processes under SCHED_IDLE counts as available: they run only where nothing else of
their group wants to, although the kernel counts their time as used.
"""

from __future__ import annotations

import os
import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import compress
from math import isfinite, isnan, nan
from pathlib import Path, PurePosixPath
from statistics import median
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import psutil
from numpy.typing import NDArray

from testbed import events
from testbed.backends.emu.cgroups import TOP, group_of
from testbed.backends.emu.limiter_counters import COUNTERS, NOT_COUNTED, Limiter
from testbed.plan import fidelity
from testbed.plan.batch_lines import VM_DEVICE
from testbed.plan.limits import RESERVED_CATCH_UP_S, largest_packet_bytes, reserved_catch_up_s
from testbed.plan.network_plan import NetworkPlan, TenantPlan
from testbed.spec.experiment import Scale

if TYPE_CHECKING:
    from testbed.backends.emu.emulation import Emulation

SAMPLE_EVERY_S = 1.0
SAMPLE_EVERY_AT_MOST_S = 5.0
# Of a processor, for the samples: where they cost more there are fewer.
SAMPLES_SHARE = 0.025
NEARLY_OVER = 0.97

LINK, SEND_CAP, RECEIVE_CAP = range(3)
COLUMNS = ("what", "tenant", "where", "rate_bps", "packet_bits", "bucket_bits", "most_bps")
LIMITER = np.dtype([(column, "i8") for column in COLUMNS])
"""A limiter of a tenant; ``where``: the directed link, or the VM by its index. ``packet_bits``: its
largest packet, which leaves at once and counts whole in one sample; ``bucket_bits``: what it sends
beyond its rate after a pause, where a packet has made its bucket larger than usual; ``most_bps``:
its ceiling, above its rate where bandwidth is lent."""


def limiters(tenants: Iterable[TenantPlan], plan: NetworkPlan) -> dict[Limiter, tuple[int, ...]]:
    """Every tenant's class on every directed link it reserved, and both caps of its VMs: rows of
    :data:`LIMITER`.
    """
    found: dict[Limiter, tuple[int, ...]] = {}
    for tenant in tenants:
        key, bps, packet = tenant.tenant_id, tenant.rate_bps, 8 * largest_packet_bytes(tenant)
        catch_up_s = max(0.0, reserved_catch_up_s(tenant) - RESERVED_CATCH_UP_S)
        for link, link_bps in tenant.link_bps:
            name, bucket = plan.sending_port(link).name, round(catch_up_s * link_bps)
            most_bps = plan.links[link // 2].capacity_bps if tenant.lent_bps else link_bps
            row = (LINK, key, link, link_bps, packet, bucket, most_bps)
            found[Limiter(None, name, key)] = row
        for vm in tenant.vms:
            port, at, bucket = vm.slot.port.name, vm.index, round(catch_up_s * bps)
            most_bps = tenant.cap_bps
            found[Limiter(None, port)] = (RECEIVE_CAP, key, at, bps, packet, bucket, most_bps)
            sends = (SEND_CAP, key, at, bps, packet, packet, most_bps)
            found[Limiter(vm.slot.netns, VM_DEVICE)] = sends
    return found


class Watch:
    """Takes samples while the backend waits; :meth:`findings` judges at the end."""

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
        self._tenants: Sequence[TenantPlan] | None = None
        self._borrowers: list[int] = []
        self._rows = np.zeros(0, LIMITER)
        self._last_s: float | None = None
        self._last, self._last_bps = np.zeros(0, COUNTERS), self._rows["rate_bps"]
        self._starved, self._cap_limited = fidelity.Starved(), fidelity.CapLimited()
        self._exceeding = fidelity.Exceeding()
        self._received = fidelity.Received()
        self._samples: list[fidelity.ProcessorSample] = []
        self._late_s: list[float] = []
        self._drops: Counter[str] = Counter()
        self.lost_ports: list[tuple[int, int]] = []
        """Tenants and VMs whose ports were not there at the last sample."""

    def start(self) -> None:
        """Begin sampling: counters from here on count."""
        switches = self._emulation.network.switch_pids
        self._processors = Processors(Outside(switches))
        self._switches = [Waiting(pid or 0) for pid in switches]
        self._next = time.monotonic() + SAMPLE_EVERY_S
        self._last_s = None

    def tick(
        self, timeout_s: float, tenants: Sequence[TenantPlan], cap_limited: Mapping[int, float]
    ) -> float:
        """Sample if it is time; returns how long the caller may wait at most.

        ``cap_limited``: tenants, by number, whose VMs always send at their own caps, and the share
        of their payload that has arrived.
        """
        now = time.monotonic()
        if self._next and now >= self._next:
            began_s = time.thread_time()
            self._sample(tenants, cap_limited)
            cost_s = time.thread_time() - began_s
            now = time.monotonic()
            # At least a second: over less, a single packet would be a large part of the rate.
            every_s = max(SAMPLE_EVERY_S, cost_s / SAMPLES_SHARE)
            self._next = now + min(SAMPLE_EVERY_AT_MOST_S, every_s)
        return max(0.0, min(timeout_s, self._next - now)) if self._next else timeout_s

    def slept(self, asked_s: float, took_s: float) -> None:
        """Take in a sleep that lasted its time.

        Time that this process spent on work, such as starting a job of many VMs or a policy's
        decision, is not lateness: only a sleeping process can wake late.
        """
        if self._next and 0.0 < asked_s <= took_s:
            self._late_s.append(took_s - asked_s)

    def _sample(self, tenants: Sequence[TenantPlan], cap_limited: Mapping[int, float]) -> None:
        """Processors, then every tenant's limiters."""
        use = self._processors.sample()
        waited = [share for each in self._switches if (share := each.sample()) is not None]
        if tenants != self._tenants:
            self._follow(tenants)
        now_s, now = time.monotonic(), self._reader.read()
        lost = self._rows[(self._rows["what"] == RECEIVE_CAP) & (now["sent_bytes"] < 0)]
        self.lost_ports = [(tenant, vm) for _, tenant, vm, *_ in lost.tolist()]
        received = nan
        if self._last_s is not None:
            received = self._compare(now_s - self._last_s, now, cap_limited)
        if tenants:
            alone = all(tenant.tenant_id in cap_limited for tenant in tenants)
            # The switch's part that waited longest: packets of most jobs pass several.
            longest = max(waited, default=nan)
            received = received if alone else nan
            unsettled = alone and isnan(received) and not self._read_too_late(self._last, now)
            self._samples.append(fidelity.ProcessorSample(*use, longest, received, unsettled))
        self._last_s, self._last, self._last_bps = now_s, now, self._rows["rate_bps"]

    def _read_too_late(self, *counters: NDArray[Any]) -> bool:
        """True if a VM's counter was there, and it is not known when it was read."""
        of = self._rows["what"] == RECEIVE_CAP
        there = (each[of] for each in counters)
        return any((np.isnan(c["at_s"]) & (c["sent_bytes"] >= 0)).any() for c in there)

    def _follow(self, tenants: Sequence[TenantPlan]) -> None:
        """The limiters of other tenants from now on; a long run keeps nothing of those gone."""
        there = limiters(tenants, self._emulation.plan)
        row_of = {(*row[:3],): i for i, row in enumerate(self._rows.tolist())}
        was = np.array([row_of.get(row[:3], -1) for row in there.values()], dtype=np.int64)
        for judge in (self._starved, self._cap_limited, self._exceeding):
            judge.renumber(was)
        self._last = np.append(self._last, np.array([NOT_COUNTED], COUNTERS))[was]
        self._last_bps = np.append(self._last_bps, 0)[was]
        self._rows = np.array(list(there.values()), LIMITER)
        self._reader = self._emulation.network.counter_reader(list(there))
        self._tenants = list(tenants)
        self._borrowers = [tenant.tenant_id for tenant in tenants if tenant.lent_bps]

    def _compare(
        self, length_s: float, now: NDArray[Any], cap_limited: Mapping[int, float]
    ) -> float:
        """Rates since the last sample, of limiters that were there and were read then too.

        Returns what cap-limited VMs received of their rates; NaN where there are none.
        """
        was, was_bps, rows = self._last, self._last_bps, self._rows
        interval_s = now["at_s"] - was["at_s"]
        sent_bps = (now["sent_bytes"] - was["sent_bytes"]) * 8 / interval_s
        on_link = rows["what"] == LINK
        at_rate = ~np.isin(rows["tenant"], self._borrowers)
        samples = fidelity.ClassSamples(
            partial(self._name, rows),
            np.minimum(was_bps, rows["rate_bps"]),
            sent_bps,
            np.minimum(was["backlog_bytes"], now["backlog_bytes"]),
            np.maximum(was_bps, rows["most_bps"]),
            rows["packet_bits"] / interval_s,
            rows["packet_bits"],
            rows["bucket_bits"] / interval_s,
        )
        self._starved.take(samples, on_link)
        of_caps = ~on_link & at_rate & np.isin(rows["tenant"], list(cap_limited))
        self._cap_limited.take(samples, of_caps)
        self._exceeding.take(samples)
        # A VM's cap limits its own TCP by drops too; between VMs none should occur, at any time,
        # unless they borrow until a link is full.
        there = on_link & at_rate & (was["sent_bytes"] >= 0) & (now["sent_bytes"] >= 0)
        drops = np.where(there, now["drops"] - was["drops"], 0)
        for row in np.flatnonzero(drops > 0).tolist():
            self._drops[samples.names(row)] += int(drops[row])
        known = on_link & samples.known
        self._record(length_s, rows[known], sent_bps[known])
        # Of a job that is nearly over some VMs have ended.
        sending = [tenant for tenant, share in cap_limited.items() if share < NEARLY_OVER]
        of = samples.known & (rows["what"] == RECEIVE_CAP) & np.isin(rows["tenant"], sending)
        return self._received.take(rows["tenant"][of], interval_s[of], samples.where(of))

    def _record(self, length_s: float, rows: NDArray[Any], sent_bps: NDArray[Any]) -> None:
        """Records the rates sent and reserved on every directed link, over all tenants."""
        links, place = np.unique(rows["where"], return_inverse=True)
        sums = [np.bincount(place, of) / self._scale.rate for of in (sent_bps, rows["rate_bps"])]
        found = list(map(list, zip(links.tolist(), *(each.tolist() for each in sums), strict=True)))
        if found:
            self._sink(events.LinkSample(self._now_s(), length_s * self._scale.time, found))

    def _name(self, rows: NDArray[Any], row: int) -> str:
        what, tenant, where, *_ = rows[row].tolist()
        if what == LINK:
            return f"{self._emulation.datacentre.link_name(where)}, tenant {tenant}"
        return f"tenant {tenant}, VM {where}, {'send' if what == SEND_CAP else 'receive'} cap"

    @property
    def received(self) -> float:
        """Share of their rates that cap-limited VMs received, the median sample; NaN: not known."""
        known = [s.received for s in self._samples if isfinite(s.received)]
        return median(known) if known else nan

    def lacking(self) -> list[fidelity.Finding]:
        """Where reserved traffic got less than its share, or lost packets: nothing if nowhere."""
        _, lost = fidelity.leaks({}, self._drops)
        found = self._starved.finding(), self._cap_limited.finding(), lost
        return [one for one in found if one.level != "ok"]

    def findings(self) -> list[fidelity.Finding]:
        """The judgement over everything sampled."""
        return [
            self._starved.finding(),
            self._cap_limited.finding(),
            self._exceeding.finding(),
            *fidelity.switch(self._samples),
            *fidelity.processor(self._samples),
            *fidelity.lateness(self._late_s),
            *fidelity.leaks(self._emulation.network.unshaped_packets(), self._drops),
        ]


# ---------------------------------------------------------------------------------- processors


PROC = Path("/proc")
PF_KTHREAD = 0x00200000
TICKS_PER_S = os.sysconf("SC_CLK_TCK")
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


class Use(NamedTuple):
    """Shares of all processors since the last sample: available, stolen by a hypervisor, used by
    others than the run (NaN: not known).
    """

    idle: float
    steal: float
    others: float

    @property
    def busy(self) -> float:
        return 1.0 - self.idle


class Processors:
    """Samples; each covers the time since the one before, the first since this was made.

    ``outside_s``: the processor time of others so far.
    """

    def __init__(self, outside_s: Callable[[], float] = lambda: nan) -> None:
        psutil.cpu_times_percent(interval=None)
        self._at = time.monotonic()
        self._sched_idle_s = sched_idle_s()
        self._read_outside_s, self._outside_s = outside_s, outside_s()

    def sample(self) -> Use:
        """The time since the last sample. Takes some milliseconds."""
        cpu = psutil.cpu_times_percent(interval=None)
        at, now = time.monotonic(), sched_idle_s()
        spent_s = gained_s(self._sched_idle_s, now)
        have_s = max(1e-9, (at - self._at) * (os.cpu_count() or 1))
        self._at, self._sched_idle_s = at, now
        before_s, self._outside_s = self._outside_s, self._read_outside_s()
        idle = (cpu.idle + cpu.iowait) / 100 + spent_s / have_s
        others = (self._outside_s - before_s) / have_s
        return Use(min(1.0, idle), getattr(cpu, "steal", 0.0) / 100, others)


class Outside:
    """Processor time of processes outside the run's control group since the first call, in s.

    It never falls. What a child used that has ended is with its parent, if that waited for it, less
    what was known of the child before; what one used since the last call that nobody waits for (its
    parent ignores SIGCHLD) is lost. Not counted: the kernel's threads, which work for the run too,
    and the machine's own switch, ``not_counted``. NaN where this process is in no run's group.
    """

    def __init__(self, not_counted: Collection[int | None]) -> None:
        main = PurePosixPath(group_of(PROC / "self", "cpu"))
        self._run = str(main.parent) if main.parent.parent.name == TOP else None
        self._not_counted = set(not_counted)
        self._counted: dict[tuple[int, int], bool] = {}
        self._last: dict[int, Used] = {}
        self._sum_s = nan if self._run is None else 0.0

    def __call__(self) -> float:
        if self._run is None:
            return nan
        there, counted = dict[int, Used](), dict[tuple[int, int], bool]()
        for pid in psutil.pids():
            try:
                used = there[pid] = used_ticks(pid)
                known = self._counted.get((pid, used.began))
                counted[pid, used.began] = self._is_outside(pid) if known is None else known
            except (OSError, ValueError, IndexError):
                continue  # it has ended meanwhile
        if self._last:
            outside = {pid for pid, _ in compress(counted, counted.values())}
            self._sum_s += gained_ticks(self._last, there, outside) / TICKS_PER_S
        self._counted, self._last = counted, there
        return self._sum_s

    def _is_outside(self, pid: int) -> bool:
        group = PurePosixPath(group_of(PROC / str(pid), "cpu"))
        return pid not in self._not_counted and not group.is_relative_to(str(self._run))


class Used(NamedTuple):
    """Processor time of a process so far, and of its ended children that it waited for, in ticks;
    0 for the kernel's threads. ``began``: when, which tells it from a later one of its number.
    """

    parent: int
    began: int
    own: int
    children: int


OWN, CHILDREN = Used._fields.index("own"), Used._fields.index("children")


def used_ticks(pid: int) -> Used:
    """From ``/proc/PID/stat``; raises OSError, ValueError or IndexError if it has ended."""
    fields = (PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
    user, system, of_children, in_kernel = map(int, fields[11:15])
    used = (0, 0) if int(fields[6]) & PF_KTHREAD else (user + system, of_children + in_kernel)
    return Used(int(fields[1]), int(fields[19]), *used)


def gained_ticks(
    before: Mapping[int, Used], after: Mapping[int, Used], counted: Collection[int]
) -> int:
    """Ticks that ``counted`` processes and their children used between two samples.

    A child that has ended is in its parent's ``children`` as a whole, so what was known of it is
    taken off there. Where its parent has ended too, that or one further up has it, or nobody: it is
    taken off those, first off ``counted`` ones, so that nothing known of before is counted again.
    """
    stayed = {pid for pid in before if pid in after and before[pid].began == after[pid].began}
    own, ended = (
        {
            pid: now[field] - (before[pid][field] if pid in stayed else 0)
            for pid, now in after.items()
        }
        for field in (OWN, CHILDREN)
    )
    gone = before.keys() - stayed
    # Those whose parents stayed come first: only these can have waited for them.
    for pid in sorted(gone, key=lambda pid: (before[pid].parent not in stayed, pid)):
        known, above = before[pid].own + before[pid].children, before[pid].parent
        waiters = [above] if above in stayed else ancestors(above, before, stayed)
        for waiter in sorted(waiters, key=lambda it: it not in counted):
            taken = min(known, ended[waiter])
            ended[waiter], known = ended[waiter] - taken, known - taken
    return sum(own[pid] + ended[pid] for pid in counted)


def ancestors(pid: int, processes: Mapping[int, Used], stayed: Collection[int]) -> list[int]:
    """Of a process, from near to far, as far as they ``stayed``."""
    found, seen = [], set[int]()
    while pid in processes and pid not in seen:
        seen.add(pid)
        found += [pid] if pid in stayed else []
        pid = processes[pid].parent
    return found


class Waiting:
    """Run-queue wait of one thread, the first of a process: ready to run, but without a processor.

    Waiting for a quota to be filled up again counts: the thread is ready all the while.
    """

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._at, self._waited_s = time.monotonic(), waited_s(pid)

    def sample(self) -> float | None:
        """As a share of the time since the last one; None where the kernel does not tell."""
        began, before_s = self._at, self._waited_s
        self._at, self._waited_s = time.monotonic(), waited_s(self._pid)
        if self._waited_s is None or before_s is None:
            return None
        return min(1.0, (self._waited_s - before_s) / max(1e-9, self._at - began))


def waited_s(pid: int) -> float | None:
    """Wait since the start, in s (the second of the three numbers of ``/proc/PID/schedstat``)."""
    try:
        return int((PROC / str(pid) / "schedstat").read_text().split()[1]) / 1e9
    except (OSError, ValueError, IndexError):
        return None


def sched_idle_s() -> dict[int, float]:
    """CPU time of every SCHED_IDLE process that competes with this one, in s, by its number.

    The class counts where processes compete as such: within this one's control group, and in those
    above it, where they meet the group that it is in. Other groups get their share whatever is in
    them; with the kernel's autogroup (Debian's default) every session is one.
    """
    with suppress(FileNotFoundError):
        if AUTOGROUP.read_text().strip() != "0":
            return {}
    ours = group_of(PROC / "self", "cpu")
    found = {}
    for pid in psutil.pids():
        try:
            idle_class = os.sched_getscheduler(pid) == os.SCHED_IDLE
            if idle_class and competes(group_of(PROC / str(pid), "cpu"), ours):
                found[pid] = sum(psutil.Process(pid).cpu_times()[:2])
        except (OSError, ValueError, psutil.Error):
            continue  # it has ended meanwhile
    return found


def competes(theirs: str, ours: str) -> bool:
    """True if a process of one control group competes as such, by its class, with another group:
    the same one, or one below.
    """
    return ours == theirs or ours.startswith(theirs.rstrip("/") + "/")


def gained_s(before: Mapping[int, float], after: Mapping[int, float]) -> float:
    """CPU time of the processes that were there both times.

    Those that came or went meanwhile count for nothing: used time is never taken for idle.
    """
    return sum(max(0.0, now - before[pid]) for pid, now in after.items() if pid in before)
