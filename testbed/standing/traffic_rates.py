"""Traffic of the standing network: reserved, sent, queued and dropped.

Counters are read in the namespaces by the process that shows them; the keeper
is asked for tenants.
"""

from __future__ import annotations

import socket
import time
from collections import Counter
from collections.abc import Generator, Iterator
from contextlib import AbstractContextManager, closing, nullcontext
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from jobs.linux import inside_network_namespace
from jobs.workload.distributions import Floats
from testbed.backends.emu.limiter_counters import (
    SEND_CAP,
    CounterReader,
    Limiter,
)
from testbed.backends.emu.netlink import RouteSocket
from testbed.backends.emu.sampling import limiters
from testbed.backends.emu.traffic_control import NETNS_DIR, Side
from testbed.plan.network_plan import TenantPlan
from testbed.standing.keeper_protocol import ShowNetwork, ask
from testbed.standing.network_layout import (
    NetworkLayout,
    ShowLayout,
    ShowPlans,
    TenantPlans,
)
from testbed.standing.network_state import NetworkState

SAMPLE_S = 1.0


@dataclass(frozen=True)
class TrafficRates:
    """A directed link or a tenant over a sample.

    Rates are in bit/s of the experiment, ``queued_bytes`` on the wire.
    ``reserved_bps``: of a tenant, the sum of its VMs' bandwidths, if it
    reserves them. ``sent_bps``: what has left the link, or the tenant's VMs.
    ``dropped``: packets, of a tenant at all its limits, also its VMs'.
    """

    name: str
    reserved_bps: float
    sent_bps: float = 0.0
    queued_bytes: int = 0
    dropped: int = 0
    capacity_bps: float = 0.0


@dataclass(frozen=True)
class TrafficSample:
    """All directed links in the plan's order, and all tenants."""

    interval_s: float
    links: tuple[TrafficRates, ...]
    tenants: tuple[TrafficRates, ...]


def samples() -> Generator[tuple[NetworkState, TrafficSample], None, None]:
    """The standing network and its traffic, again and again, over a second.

    Raises the keeper's errors, and OSError.
    """
    layout = ask(ShowLayout(), NetworkLayout)
    state = ask(ShowNetwork(), NetworkState)
    while True:
        # Counters are those of the tenants of one moment: when others come or
        # go, they are opened anew.
        plans = ask(ShowPlans(), TenantPlans)
        tenants = state.tenants
        counters = TrafficCounters(layout, plans, state.scale_rate)
        with closing(counters):
            # A tenant with a new rate is another one here: its reservation is
            # shown.
            while state.tenants == tenants:
                time.sleep(SAMPLE_S)
                yield state, counters.sample()
                state = ask(ShowNetwork(), NetworkState)


class TrafficCounters:
    """Counters of a network with these tenants.

    A sample covers the time since the one before.
    """

    def __init__(
        self,
        layout: NetworkLayout,
        plans: TenantPlans,
        scale_rate: float,
    ) -> None:
        self._tenants = plans.tenants
        self._scale_rate = scale_rate
        self._links = _idle_links(layout, plans, scale_rate)
        of_tenants = limiters(plans.tenants, layout.plan)
        # Of each limiter of a tenant: its kind and the tenant's id.
        ids = [row[:2] for row in of_tenants.values()]
        # With two columns also where there is no tenant.
        self._limiter_ids = np.array(ids, np.int64).reshape(-1, 2)
        self._sides = _switch_sides(layout)
        self._vm_sides = _vm_sides(plans)
        self._reader = CounterReader(
            self._sides,
            self._vm_sides,
            [*of_tenants, *_ports(layout)],
        )
        self._last_s = time.monotonic()
        self._last = self._reader.read()

    def close(self) -> None:
        for side in (*self._sides, *self._vm_sides.values()):
            side.route.close()

    def sample(self) -> TrafficSample:
        """Traffic since the last sample; of the first, since the object was made."""
        now_s = time.monotonic()
        now = self._reader.read()
        interval_s = now_s - self._last_s
        rows = self._rows(now, interval_s)
        self._last_s = now_s
        self._last = now
        # In the order in which the reader was given the limiters.
        n_tenant_rows = len(self._limiter_ids)
        tenant_rows = rows[:n_tenant_rows]
        link_rows = rows[n_tenant_rows:]
        links = tuple(
            _with_counters(idle, row)
            for idle, row in zip(self._links, link_rows, strict=True)
        )
        tenants = tuple(
            self._tenant_traffic(tenant, tenant_rows)
            for tenant in self._tenants
        )
        return TrafficSample(interval_s, links, tenants)

    def _rows(
        self,
        now: NDArray[np.void],
        interval_s: float,
    ) -> Floats:
        """A row a limiter: bit/s sent, bytes in the queue, packets dropped."""
        sent_bps = self._increase(now, "sent_bytes") * 8 / interval_s
        columns = (
            sent_bps / self._scale_rate,
            now["backlog_bytes"],
            self._increase(now, "drops"),
        )
        return np.stack(columns, axis=1)

    def _increase(
        self,
        now: NDArray[np.void],
        counter: str,
    ) -> Floats:
        """Growth of a counter; 0 where it was missing at the last reading or now."""
        # The reader marks an object that is gone by a negative count.
        last = self._last
        known = (now["sent_bytes"] >= 0) & (last["sent_bytes"] >= 0)
        return np.where(known, now[counter] - last[counter], 0)

    def _tenant_traffic(
        self,
        tenant: TenantPlan,
        rows: Floats,
    ) -> TrafficRates:
        kinds, ids = self._limiter_ids.T
        is_own = ids == tenant.tenant_id
        total = rows[is_own].sum(axis=0)
        # A packet passes several limiters: what VMs send counts once, at the
        # caps where it leaves them.
        is_sending = is_own & (kinds == SEND_CAP)
        total[0] = rows[is_sending, 0].sum()
        reserved_bps = 0.0
        # A tenant on one server needs no link, and reserves all the same.
        if tenant.link_bps or not tenant.edges:
            wire_bps = len(tenant.vms) * tenant.rate_bps
            reserved_bps = wire_bps / self._scale_rate
        idle = TrafficRates(tenant.job_id, reserved_bps)
        return _with_counters(idle, total)


def _idle_links(
    layout: NetworkLayout,
    plans: TenantPlans,
    scale_rate: float,
) -> list[TrafficRates]:
    """Directed links with their names, capacities and reservations."""
    reserved_bps = Counter[int]()
    for tenant in plans.tenants:
        reserved_bps.update(dict(tenant.link_bps))
    links = []
    for number, link in enumerate(layout.plan.links):
        lower = plans.names[link.lower.bridge]
        upper = plans.names[link.upper.bridge]
        names = (f"{lower} -> {upper}", f"{upper} -> {lower}")
        for down, name in enumerate(names):
            directed = 2 * number + down
            capacity_bps = layout.plan.directed_bps(directed)
            idle = TrafficRates(
                name,
                reserved_bps[directed] / scale_rate,
                capacity_bps=capacity_bps / scale_rate,
            )
            links.append(idle)
    return links


def _with_counters(
    idle: TrafficRates,
    row: Floats,
) -> TrafficRates:
    sent_bps, queued_bytes, dropped = row.tolist()
    return replace(
        idle,
        sent_bps=sent_bps,
        queued_bytes=int(queued_bytes),
        dropped=int(dropped),
    )


def _ports(layout: NetworkLayout) -> Iterator[Limiter]:
    """Everything that leaves by each directed link, in the plan's order."""
    for number in range(2 * len(layout.plan.links)):
        port = layout.plan.sending_port(number)
        yield Limiter(None, port.name)


def _switch_sides(layout: NetworkLayout) -> list[Side]:
    # The host's own namespace is None among the names.
    namespaces = {netns for _, netns in layout.switches.values()}
    return list(map(_side, sorted(namespaces, key=str)))


def _vm_sides(plans: TenantPlans) -> dict[str, Side]:
    sides = {}
    for tenant in plans.tenants:
        for vm in tenant.vms:
            netns = vm.slot.netns
            sides[netns] = _side(netns)
    return sides


def _side(netns: str | None) -> Side:
    """A namespace's devices, and a socket there; None: the host's."""
    place: AbstractContextManager[object] = nullcontext()
    if netns is not None:
        place = inside_network_namespace(NETNS_DIR / netns)
    with place:
        devices = {name: index for index, name in socket.if_nameindex()}
        return Side(RouteSocket(), devices)
