"""Traffic of the network that is up: what links and tenants reserve, send, queue and drop.

Counters are read in the namespaces by the process that shows them; the keeper is asked for tenants.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Generator
from contextlib import closing, nullcontext
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from jobs.linux import inside_network_namespace
from testbed.backends.emu.limiter_counters import CounterReader, Limiter
from testbed.backends.emu.netlink import RouteSocket
from testbed.backends.emu.sampling import SEND_CAP, limiters
from testbed.backends.emu.traffic_control import NETNS_DIR, Side
from testbed.runs.keeper_protocol import ShowNetwork, ask
from testbed.runs.network_layout import NetworkLayout, ShowLayout, ShowPlans, TenantPlans
from testbed.runs.network_state import NetworkState

SAMPLE_S = 1.0


@dataclass(frozen=True)
class Traffic:
    """A directed link or a tenant over a sample: bit/s of the experiment, bytes on the wire.

    ``reserved_bps``: of a tenant, the sum of its VMs' bandwidths, if it reserves them.
    ``sent_bps``: what has left the link, or the tenant's VMs. ``dropped``: packets, of a tenant at
    all its limits, also its VMs'.
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


def samples() -> Generator[tuple[NetworkState, Sample], None, None]:
    """The network that is up and its traffic, again and again, each over a second.

    Raises what the keeper says, and OSError.
    """
    layout, state = ask(ShowLayout(), NetworkLayout), ask(ShowNetwork(), NetworkState)
    while True:
        plans, tenants = ask(ShowPlans(), TenantPlans), state.tenants
        with closing(TrafficCounters(layout, plans, state.scale_rate)) as counters:
            while state.tenants == tenants:
                time.sleep(SAMPLE_S)
                yield state, counters.sample()
                state = ask(ShowNetwork(), NetworkState)


class TrafficCounters:
    """The counters of a network with these tenants; a sample is the time since the one before."""

    def __init__(self, layout: NetworkLayout, plans: TenantPlans, scale_rate: float) -> None:
        plan, self._tenants, self._scale_rate = layout.plan, plans.tenants, scale_rate
        reserved_bps = Counter[int]()
        for tenant in plans.tenants:
            reserved_bps.update(dict(tenant.link_bps))
        self._links = []
        for k, link in enumerate(link for link in plan.links for _ in range(2)):
            ends = [plans.names[end.bridge] for end in (link.lower, link.upper)]
            rates_bps = reserved_bps[k] / scale_rate, link.capacity_bps / scale_rate
            self._links.append((" -> ".join(reversed(ends) if k % 2 else ends), *rates_bps))
        found = limiters(plans.tenants, plan)
        self._rows = np.array([row[:2] for row in found.values()], np.int64).reshape(-1, 2)
        ports = [Limiter(None, plan.sending_port(k).name) for k in range(len(self._links))]
        namespaces = sorted({netns for _, netns in layout.switches.values()}, key=str)
        sides = [_side(netns) for netns in namespaces]
        vms = {vm.slot.netns: _side(vm.slot.netns) for t in plans.tenants for vm in t.vms}
        self._sockets = [side.route for side in (*sides, *vms.values())]
        self._reader = CounterReader(sides, vms, [*found, *ports])
        self._at_s, self._last = time.monotonic(), self._reader.read()

    def close(self) -> None:
        for each in self._sockets:
            each.close()

    def sample(self) -> Sample:
        """Traffic since the last sample, or since these counters are read."""
        now_s, now, was = time.monotonic(), self._reader.read(), self._last
        interval_s, self._at_s, self._last = now_s - self._at_s, now_s, now
        there = (now["sent_bytes"] >= 0) & (was["sent_bytes"] >= 0)
        sent, drops = (np.where(there, now[x] - was[x], 0) for x in ("sent_bytes", "drops"))
        sent_bps = sent * 8 / interval_s / self._scale_rate
        moved = np.stack((sent_bps, now["backlog_bytes"], drops), axis=1)
        links, tenants = [], []
        for (name, reserved_bps, most_bps), row in zip(
            self._links, moved[len(self._rows) :], strict=True
        ):
            links.append(_traffic(name, reserved_bps, row, most_bps))
        for tenant in self._tenants:
            of = self._rows[:, 1] == tenant.tenant_id
            row = moved[: len(of)][of].sum(axis=0)
            row[0] = moved[: len(of), 0][of & (self._rows[:, 0] == SEND_CAP)].sum()
            is_reserved = tenant.link_bps or not tenant.edges
            rate_bps = tenant.rate_bps if is_reserved else 0
            reserved_bps = len(tenant.vms) * rate_bps / self._scale_rate
            tenants.append(_traffic(tenant.job_id, reserved_bps, row))
        return Sample(interval_s, tuple(links), tuple(tenants))


def _traffic(
    name: str, reserved_bps: float, moved: NDArray[np.float64], capacity_bps: float = 0.0
) -> Traffic:
    sent_bps, queued, dropped = moved.tolist()
    return Traffic(name, reserved_bps, sent_bps, int(queued), int(dropped), capacity_bps)


def _side(netns: str | None) -> Side:
    """A namespace's devices, and a socket there; None: the host's."""
    with inside_network_namespace(NETNS_DIR / netns) if netns else nullcontext():
        return Side(RouteSocket(), {name: index for index, name in socket.if_nameindex()})
