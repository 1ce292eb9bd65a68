"""Traffic of the network that is up: what links and tenants reserve, send, queue and drop.

Counters are read in the namespaces by the process that shows them; the keeper is asked for tenants.
"""

from __future__ import annotations

import socket
import time
from collections.abc import Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from jobs.linux import inside_network_namespace
from testbed.backends.emu.limiter_counters import CounterReader, Limiter
from testbed.backends.emu.netlink import RouteSocket
from testbed.backends.emu.sampling import SEND_CAP, limiters
from testbed.backends.emu.traffic_control import NETNS_DIR, Side
from testbed.runs.keeper_protocol import (
    NetworkLayout,
    NetworkState,
    ShowLayout,
    ShowNetwork,
    ShowPlans,
    TenantPlans,
    ask,
)

SAMPLE_S = 1.0


@dataclass(frozen=True)
class Traffic:
    """A directed link or a tenant over a sample: bit/s of the experiment, bytes on the wire.

    ``reserved_bps``: of a tenant, the sum of its VMs' bandwidths. ``sent_bps``: what has left the
    link, or the tenant's VMs. ``dropped``: packets, of a tenant at all its limits, also its VMs'.
    """

    name: str
    reserved_bps: float
    sent_bps: float
    queued_bytes: int
    dropped: int
    capacity_bps: float = 0.0


@dataclass(frozen=True)
class Sample:
    """All directed links in the plan's order, and all tenants."""

    interval_s: float
    links: tuple[Traffic, ...]
    tenants: tuple[Traffic, ...]


def samples() -> Iterator[tuple[NetworkState, Sample]]:
    """The network that is up and its traffic, again and again, each over a second.

    Raises what the keeper says, and OSError.
    """
    layout = ask(ShowLayout(), NetworkLayout)
    counters, known = None, None
    try:
        while True:
            state = ask(ShowNetwork(), NetworkState)
            tenants = [(each.name, each.wire_bps) for each in state.tenants]
            if counters is None or tenants != known:
                if counters is not None:
                    counters.close()
                plans, known = ask(ShowPlans(), TenantPlans), tenants
                counters = TrafficCounters(layout, plans, state.scale_rate)
            time.sleep(SAMPLE_S)
            yield state, counters.sample()
    finally:
        if counters is not None:
            counters.close()


class TrafficCounters:
    """The counters of a network with these tenants; a sample is the time since the one before."""

    def __init__(self, layout: NetworkLayout, plans: TenantPlans, scale_rate: float) -> None:
        self._plan, self._plans, self._scale_rate = layout.plan, plans, scale_rate
        of_tenants = limiters(plans.tenants, self._plan)
        rows = [row[:2] for row in of_tenants.values()]
        self._what, self._tenant = np.array(rows, np.int64).reshape(-1, 2).T
        n_links = 2 * len(self._plan.links)
        of_links = [Limiter(None, self._plan.sending_port(k).name) for k in range(n_links)]
        sides = [
            _side(netns) for netns in sorted({at for _, at in layout.switches.values()}, key=str)
        ]
        names = [vm.slot.netns for tenant in plans.tenants for vm in tenant.vms]
        vms = {netns: _side(netns) for netns in names}
        self._sockets = [side.route for side in (*sides, *vms.values())]
        self._reader = CounterReader(sides, vms, [*of_tenants, *of_links])
        self._at_s, self._last = time.monotonic(), self._reader.read()

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def sample(self) -> Sample:
        """Traffic since the last sample, or since these counters are read."""
        now_s, now, was = time.monotonic(), self._reader.read(), self._last
        interval_s = now_s - self._at_s
        self._at_s, self._last = now_s, now
        there = (now["sent_bytes"] >= 0) & (was["sent_bytes"] >= 0)
        sent_bytes, drops = (
            np.where(there, now[name] - was[name], 0) for name in ("sent_bytes", "drops")
        )
        moved = sent_bytes * 8 / interval_s / self._scale_rate, now["backlog_bytes"], drops
        n = len(self._tenant)
        of_limiters, of_links = [each[:n] for each in moved], [each[n:] for each in moved]
        return Sample(interval_s, self._of_links(*of_links), self._of_tenants(*of_limiters))

    def _of_links(self, *moved: NDArray[Any]) -> tuple[Traffic, ...]:
        plan, names = self._plan, self._plans.names
        reserved_bps = [0.0] * (2 * len(plan.links))
        for tenant in self._plans.tenants:
            for link, bps in tenant.link_bps:
                reserved_bps[link] += bps / self._scale_rate
        found = []
        for k, (bps, sent, queued, drops) in enumerate(zip(reserved_bps, *moved, strict=True)):
            link = plan.links[k // 2]
            low, high = names[link.lower.bridge], names[link.upper.bridge]
            name = f"{high} -> {low}" if k % 2 else f"{low} -> {high}"
            counted = float(sent), int(queued), int(drops)
            found.append(Traffic(name, bps, *counted, link.capacity_bps / self._scale_rate))
        return tuple(found)

    def _of_tenants(
        self, sent: NDArray[Any], queued: NDArray[Any], drops: NDArray[Any]
    ) -> tuple[Traffic, ...]:
        found = []
        for tenant in self._plans.tenants:
            of = self._tenant == tenant.tenant_id
            sending = of & (self._what == SEND_CAP)
            reserved_bps = len(tenant.vms) * tenant.rate_bps / self._scale_rate
            counted = float(sent[sending].sum()), int(queued[of].sum()), int(drops[of].sum())
            found.append(Traffic(tenant.job_id, reserved_bps, *counted))
        return tuple(found)


def _side(netns: str | None) -> Side:
    """A namespace's devices, and a socket there; None: the host's."""
    with inside_network_namespace(NETNS_DIR / netns) if netns else nullcontext():
        return Side(RouteSocket(), {name: index for index, name in socket.if_nameindex()})
