"""What is sampled beside the jobs, once a second: links, queues, processors, lateness."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING

from testbed import events
from testbed.backends.emu.counters import Counters
from testbed.backends.emu.daemon import switch_pid
from testbed.backends.emu.processors import Processors, Waiting
from testbed.plan.network import TenantPlan
from testbed.plan.validity import (
    ClassSample,
    Finding,
    lateness,
    leaks,
    processor,
    starved,
    switch,
)
from testbed.spec.experiment import Scale

if TYPE_CHECKING:
    from testbed.backends.emu.world import LiveWorld

SAMPLE_EVERY_S = 1.0


class Watch:
    """Samples while the backend waits; :meth:`findings` judges at the end."""

    def __init__(
        self,
        world: LiveWorld,
        scale: Scale,
        sink: Callable[[events.Event], None],
        now_s: Callable[[], float],
    ) -> None:
        self._world = world
        self._scale = scale
        self._sink = sink
        self._now_s = now_s
        self._next = 0.0
        self._last: tuple[float, Mapping[tuple[int, int], Counters]] | None = None
        self._classes: list[ClassSample] = []
        self._processors: Processors | None = None
        self._switch: Waiting | None = None
        self._waited: list[float] = []
        self._idle: list[float] = []
        self._steal: list[float] = []
        self._late_s: list[float] = []
        self._drops: dict[str, int] = {}

    def start(self) -> None:
        """Begin sampling: counters from here on count."""
        self._processors = Processors()
        pid = switch_pid()
        self._switch = None if pid is None else Waiting(pid)
        self._next = time.monotonic() + SAMPLE_EVERY_S
        self._last = None

    def tick(self, timeout_s: float, tenants: Sequence[TenantPlan]) -> float:
        """Sample if it is time; returns how long the caller may wait at most."""
        now = time.monotonic()
        if self._next and now >= self._next:
            self._sample(tenants)
            now = time.monotonic()
            self._next = max(self._next + SAMPLE_EVERY_S, now)
        return max(0.0, min(timeout_s, self._next - now)) if self._next else timeout_s

    def slept(self, asked_s: float, took_s: float) -> None:
        """Take in a sleep that lasted its time. What this process was busy with, such as starting
        a job of many VMs or a policy's decision, is not lateness: only who sleeps can wake late.
        """
        if self._next and 0.0 < asked_s <= took_s:
            self._late_s.append(took_s - asked_s)

    def _sample(self, tenants: Sequence[TenantPlan]) -> None:
        """Processors, then every tenant's class on every directed link it reserved."""
        if self._processors is not None:
            use = self._processors.sample()
            if tenants:
                self._idle.append(use.idle)
                self._steal.append(use.steal)
        waited = None if self._switch is None else self._switch.sample()
        if waited is not None and tenants:
            self._waited.append(waited)
        at = time.monotonic()
        counters = self._world.network.class_counters()
        if self._last is not None:
            self._compare(at, self._last, counters, tenants)
        self._last = (at, counters)

    def _compare(
        self,
        at: float,
        last: tuple[float, Mapping[tuple[int, int], Counters]],
        counters: Mapping[tuple[int, int], Counters],
        tenants: Sequence[TenantPlan],
    ) -> None:
        """Rates since the last sample, of tenants that were there then too."""
        before_at, before = last
        interval_s = at - before_at
        sent: dict[int, float] = {}
        reserved: dict[int, int] = {}
        for tenant in tenants:
            for link, rate_bps in tenant.link_bps:
                reserved[link] = reserved.get(link, 0) + rate_bps
                key = (tenant.tenant_id, link)
                if key not in before or key not in counters:
                    continue
                was, now = before[key], counters[key]
                sent_bps = (now.sent_bytes - was.sent_bytes) * 8 / interval_s
                sent[link] = sent.get(link, 0.0) + sent_bps
                name = f"{self._world.datacentre.link_name(link)}, tenant {tenant.tenant_id}"
                self._classes.append(
                    ClassSample(name, rate_bps, sent_bps, was.backlog_bytes, now.backlog_bytes)
                )
                if now.drops > was.drops:
                    self._drops[name] = self._drops.get(name, 0) + now.drops - was.drops
        if reserved:
            rate = self._scale.rate
            links = [
                [k, sent.get(k, 0.0) / rate, bps / rate] for k, bps in sorted(reserved.items())
            ]
            self._sink(events.LinkSample(self._now_s(), interval_s * self._scale.time, links))

    def findings(self) -> list[Finding]:
        """The judgement over everything sampled."""
        return [
            starved(self._classes),
            *switch(self._waited),
            *processor(self._idle, self._steal),
            *lateness(self._late_s),
            *leaks(self._world.network.unshaped_packets(), self._drops),
        ]
