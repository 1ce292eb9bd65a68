"""Samples beside the jobs, once a second: links, queues, processors, wake-up lateness.

CPU time of processes under SCHED_IDLE counts as available: they run only where nothing else of
their group wants to, although the kernel counts their time as used.
"""

from __future__ import annotations

import os
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import psutil

from jobs.wire import FRAME_BYTES
from testbed import events
from testbed.backends.emu.cgroups import group_of
from testbed.backends.emu.netlink import Counters
from testbed.plan import fidelity
from testbed.plan.network_plan import TenantPlan
from testbed.spec.experiment import Scale

if TYPE_CHECKING:
    from testbed.backends.emu.emulation import Emulation

SAMPLE_EVERY_S = 1.0
# The most that one VM's counters may take to be read: many times what they do.
VM_SAMPLE_S = 0.005
# A slow VM's TSO packet leaves at once and counts whole in one sample: six segments at most.
PACKET_BITS = 6 * FRAME_BYTES * 8

Limiter = tuple[str, int, int]
"""``link``, tenant, directed link; or ``send cap`` or ``receive cap``, tenant, VM."""


class LimiterSample(NamedTuple):
    """Counters of a limiter at an instant, and the rate that it should have."""

    at_s: float
    counters: Counters
    rate_bps: int


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
        self._last: tuple[float, dict[Limiter, LimiterSample]] | None = None
        self._starved, self._cap_limited = fidelity.Starved(), fidelity.CapLimited()
        self._exceeding = fidelity.Exceeding()
        self._waited: list[float] = []
        self._idle: list[float] = []
        self._steal: list[float] = []
        self._late_s: list[float] = []
        self._drops: Counter[str] = Counter()

    def start(self) -> None:
        """Begin sampling: counters from here on count."""
        self._processors = Processors()
        self._switches = [Waiting(pid or 0) for pid in self._emulation.network.switch_pids]
        self._next = time.monotonic() + SAMPLE_EVERY_S
        self._last = None

    def tick(
        self, timeout_s: float, tenants: Sequence[TenantPlan], cap_limited: Collection[int]
    ) -> float:
        """Sample if it is time; returns how long the caller may wait at most.

        ``cap_limited``: tenants, by number, whose VMs always send at their own caps.
        """
        now = time.monotonic()
        if self._next and now >= self._next:
            self._sample(tenants, cap_limited)
            # At least a second: over less, a single packet would be a large part of the rate.
            now = time.monotonic()
            self._next = now + SAMPLE_EVERY_S
        return max(0.0, min(timeout_s, self._next - now)) if self._next else timeout_s

    def slept(self, asked_s: float, took_s: float) -> None:
        """Take in a sleep that lasted its time.

        Time that this process spent on work, such as starting a job of many VMs or a policy's
        decision, is not lateness: only a sleeping process can wake late.
        """
        if self._next and 0.0 < asked_s <= took_s:
            self._late_s.append(took_s - asked_s)

    def _sample(self, tenants: Sequence[TenantPlan], cap_limited: Collection[int]) -> None:
        """Processors, then every tenant's limiters."""
        use = self._processors.sample()
        waited = [share for each in self._switches if (share := each.sample()) is not None]
        if tenants:
            self._idle.append(use.idle)
            self._steal.append(use.steal)
            # The switch's part that waited longest: packets of most jobs pass several.
            self._waited += [max(waited)] if waited else []
        now_s, samples = time.monotonic(), self._read(tenants)
        if self._last is not None:
            self._compare(now_s, *self._last, samples, cap_limited)
        self._last = (now_s, samples)

    def _read(self, tenants: Sequence[TenantPlan]) -> dict[Limiter, LimiterSample]:
        """Every tenant's class on every directed link it reserved, and both caps of its VMs."""
        network, found = self._emulation.network, {}
        at_s = time.monotonic()
        classes, devices = network.host_counters()
        for tenant in tenants:
            key = tenant.tenant_id
            for link, rate_bps in tenant.link_bps:
                if (key, link) in classes:
                    found["link", key, link] = LimiterSample(at_s, classes[key, link], rate_bps)
            for vm in tenant.vms:
                if (into := devices.get(vm.slot.port.name)) is not None:
                    found["receive cap", key, vm.index] = LimiterSample(at_s, into, tenant.rate_bps)
                read_s = time.monotonic()
                out = network.vm_counters(vm.slot)
                # Preempted in between, this process does not know when the counters were read.
                if out is not None and time.monotonic() - read_s < VM_SAMPLE_S:
                    found["send cap", key, vm.index] = LimiterSample(read_s, out, tenant.rate_bps)
        return found

    def _compare(
        self,
        at_s: float,
        before_s: float,
        before: dict[Limiter, LimiterSample],
        samples: dict[Limiter, LimiterSample],
        cap_limited: Collection[int],
    ) -> None:
        """Rates since the last sample, of limiters that were there then too."""
        sent: dict[int, float] = defaultdict(float)
        reserved: dict[int, int] = defaultdict(int)
        seen: set[str] = set()
        for limiter, now in samples.items():
            what, tenant, where = limiter
            if on_link := what == "link":
                reserved[where] += now.rate_bps
            was = before.get(limiter)
            if was is None:
                continue
            sample = self._class_sample(limiter, was, now)
            seen.add(sample.name)
            if on_link:
                sent[where] += sample.sent_bps
                # A VM's cap limits its own TCP by drops too; between VMs none should occur.
                self._drops[sample.name] += max(0, now.counters.drops - was.counters.drops)
                self._starved.take(sample)
            elif tenant in cap_limited:
                self._cap_limited.take(sample)
            self._exceeding.take(sample)
        # A long run keeps nothing of tenants that have gone; a missing sample ends a streak.
        for judge in (self._starved, self._cap_limited, self._exceeding):
            judge.keep(seen)
        rate = self._scale.rate
        links = [[k, sent[k] / rate, bps / rate] for k, bps in sorted(reserved.items())]
        if links:
            length_s = (at_s - before_s) * self._scale.time
            self._sink(events.LinkSample(self._now_s(), length_s, links))

    def _class_sample(
        self, limiter: Limiter, was: LimiterSample, now: LimiterSample
    ) -> fidelity.ClassSample:
        what, tenant, where = limiter
        interval_s = now.at_s - was.at_s
        name = f"tenant {tenant}, VM {where}, {what}"
        if what == "link":
            name = f"{self._emulation.datacentre.link_name(where)}, tenant {tenant}"
        return fidelity.ClassSample(
            name,
            min(was.rate_bps, now.rate_bps),
            (now.counters.sent_bytes - was.counters.sent_bytes) * 8 / interval_s,
            was.counters.backlog_bytes,
            now.counters.backlog_bytes,
            most_bps=max(was.rate_bps, now.rate_bps),
            packet_bps=0.0 if what == "link" else PACKET_BITS / interval_s,
        )

    def findings(self) -> list[fidelity.Finding]:
        """The judgement over everything sampled."""
        return [
            self._starved.finding(),
            self._cap_limited.finding(),
            self._exceeding.finding(),
            *fidelity.switch(self._waited),
            *fidelity.processor(self._idle, self._steal),
            *fidelity.lateness(self._late_s),
            *fidelity.leaks(self._emulation.network.unshaped_packets(), self._drops),
        ]


# ---------------------------------------------------------------------------------- processors


PROC = Path("/proc")
AUTOGROUP = Path("/proc/sys/kernel/sched_autogroup_enabled")


class Use(NamedTuple):
    """Shares of all processors since the last sample: available, and stolen by a hypervisor."""

    idle: float
    steal: float

    @property
    def busy(self) -> float:
        return 1.0 - self.idle


class Processors:
    """Samples; each covers the time since the one before, the first since this was made."""

    def __init__(self) -> None:
        psutil.cpu_times_percent(interval=None)
        self._at = time.monotonic()
        self._sched_idle_s = sched_idle_s()

    def sample(self) -> Use:
        """The time since the last sample. Takes some milliseconds."""
        cpu = psutil.cpu_times_percent(interval=None)
        at, now = time.monotonic(), sched_idle_s()
        spent_s = gained_s(self._sched_idle_s, now)
        have_s = max(1e-9, (at - self._at) * (os.cpu_count() or 1))
        self._at, self._sched_idle_s = at, now
        idle = (cpu.idle + cpu.iowait) / 100 + spent_s / have_s
        return Use(min(1.0, idle), getattr(cpu, "steal", 0.0) / 100)


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
    for folder in PROC.iterdir():
        if folder.name.isdecimal():
            pid = int(folder.name)
            try:
                idle_class = os.sched_getscheduler(pid) == os.SCHED_IDLE
                if idle_class and competes(group_of(folder, "cpu"), ours):
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
