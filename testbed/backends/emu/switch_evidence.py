"""Standstills of the switch's parts while traffic waits for them.

A part is a process that forwards packets on some of the bridges. Without
traffic it does nothing, which is no standstill. Traffic waits for a part if
jobs that send at their rate all the time pass it, or if limiters that feed it
have sent something since it last ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from testbed.backends.emu.limiter_counters import LINK, SEND_CAP
from testbed.backends.emu.process_progress import (
    RUNNING,
    STANDSTILL_S,
    PendingWork,
    Progress,
)
from testbed.plan.limits import largest_packet_bytes
from testbed.plan.network_plan import NetworkPlan, TenantPlan
from testbed.plan.path_delay import path_delay

BUSY_BPS = 20_000_000
"""Traffic above which a userspace switch is busy all the time."""
PACKETS = 12
"""Packets that must arrive during a standstill, at lower traffic, to be sure.
"""

LimiterKey = tuple[int, int]
"""Kind of a limiter, and its place: a directed link, or a VM by its index."""


class Forwarder(NamedTuple):
    """A process that forwards packets, and its bridges by name."""

    pid: int
    bridges: frozenset[str]


@dataclass
class _Entering:
    """A tenant's traffic that enters parts.

    - ``parts``: all parts that its packets pass.
    - ``part_of``: by limiter, the part that it feeds; ``counted``: by limiter,
      the time and bytes of its last count.
    - ``bps``: by part, the highest rate known at which the traffic entered it.
    - ``round_trip_s``: by its links' delay; TCP that begins is silent for so
      long between its windows.
    - ``waiting``: by part, begin and end of an interval between counts in which
      packets came and the part seemed not to run, until it is confirmed.
    - ``waited_s``: time for which packets waited, up to ``until_s``.
    """

    tenant: TenantPlan
    parts: frozenset[int]
    part_of: Mapping[LimiterKey, int]
    bps: dict[int, float]
    packet_bits: int
    round_trip_s: float
    counted: dict[LimiterKey, tuple[float, int]] = field(
        default_factory=dict
    )
    waiting: dict[int, tuple[float, float]] = field(default_factory=dict)
    waited_s: float = 0.0
    until_s: float = -inf


class SwitchEvidence:
    """Collects evidence on the parts of a switch."""

    def __init__(
        self,
        plan: NetworkPlan,
        forwarders: Sequence[Forwarder],
    ) -> None:
        self._plan = plan
        self._progress = [Progress(part.pid) for part in forwarders]
        self._part_of_bridge: dict[str, int] = {}
        for number, part in enumerate(forwarders):
            names = dict.fromkeys(part.bridges, number)
            self._part_of_bridge.update(names)
        self._traffic: dict[int, _Entering] = {}
        self._stood_s: list[float] = []

    def look(self, now_s: float, at_rate: Sequence[TenantPlan]) -> None:
        """Looks at every part. ``at_rate``: tenants that send at their rates
        now.
        """
        self._stood_s = []
        for part, progress in enumerate(self._progress):
            work = self._work(part, at_rate)
            self._stood_s.append(progress.look(now_s, work))
        for traffic in self._traffic.values():
            self._confirm_waits(traffic, now_s)

    def _confirm_waits(self, traffic: _Entering, now_s: float) -> None:
        """Adds the intervals in which a part did not run, by this look at it.

        Only a look after the count is sure: the part may have run just before
        the count.
        """
        for part, (from_s, at_s) in list(traffic.waiting.items()):
            if now_s - at_s < STANDSTILL_S:
                continue
            del traffic.waiting[part]
            if self._progress[part].progressed_s <= from_s:
                # Intervals of several limiters overlap: they count once.
                begin_s = max(from_s, traffic.until_s)
                traffic.waited_s += max(0.0, at_s - begin_s)
                traffic.until_s = max(traffic.until_s, at_s)

    def _work(
        self, part: int, at_rate: Sequence[TenantPlan]
    ) -> PendingWork | None:
        """Work that a part has all the time; None if it may have none."""
        entering_bps = 0.0
        packet_bits = 0
        round_trip_s = 0.0
        for tenant in at_rate:
            traffic = self._traffic_of(tenant)
            bps = traffic.bps.get(part, 0.0)
            entering_bps += bps
            if bps > 0.0:
                packet_bits = max(packet_bits, traffic.packet_bits)
                round_trip_s = max(round_trip_s, traffic.round_trip_s)
        if entering_bps <= 0.0:
            return None
        # At such rates a switch polls: it runs nearly all the time.
        if entering_bps > BUSY_BPS:
            return PendingWork(STANDSTILL_S + round_trip_s, RUNNING)
        # At lower rates it wakes up for each packet, and hardly runs.
        packets_s = PACKETS * packet_bits / entering_bps
        least_s = max(STANDSTILL_S, packets_s) + round_trip_s
        return PendingWork(least_s, running=0.0)

    def stood_s(self, tenant: TenantPlan) -> float:
        """Standstill in s, found by the last look, of the parts that a tenant's
        packets pass: that of the part with the longest.
        """
        parts = self._traffic_of(tenant).parts
        return max((self._stood_s[part] for part in parts), default=0.0)

    def count(
        self,
        tenant: TenantPlan,
        limiter: LimiterKey,
        at_s: float,
        sent_bytes: int,
    ) -> None:
        """Takes a count of a limiter; ignores one that feeds no part."""
        traffic = self._traffic_of(tenant)
        part = traffic.part_of.get(limiter)
        if part is None:
            return
        before_s, before_bytes = traffic.counted.get(
            limiter, (at_s, sent_bytes)
        )
        traffic.counted[limiter] = (at_s, sent_bytes)
        if at_s <= before_s or sent_bytes <= before_bytes:
            return
        bps = 8 * (sent_bytes - before_bytes) / (at_s - before_s)
        traffic.bps[part] = max(traffic.bps.get(part, 0.0), bps)
        if self._progress[part].progressed_s <= before_s:
            traffic.waiting[part] = (before_s, at_s)

    def waited_s(self, tenant_id: int) -> float:
        """Seconds for which a tenant's packets waited, by its limiters' counts."""
        if tenant_id not in self._traffic:
            return 0.0
        return self._traffic[tenant_id].waited_s

    def forget(self, tenant_id: int) -> None:
        """Drops the evidence on a tenant that is gone."""
        self._traffic.pop(tenant_id, None)

    def _traffic_of(self, tenant: TenantPlan) -> _Entering:
        """A tenant's traffic; a new one if its plan has changed."""
        traffic = self._traffic.get(tenant.tenant_id)
        if traffic is None or traffic.tenant is not tenant:
            traffic = self._new_traffic(tenant, traffic)
            self._traffic[tenant.tenant_id] = traffic
        return traffic

    def _new_traffic(
        self, tenant: TenantPlan, earlier: _Entering | None
    ) -> _Entering:
        part_of: dict[LimiterKey, int] = {}
        bps: dict[int, float] = {}
        for vm in tenant.vms:
            # The bridge may be of a part that has just ended.
            part = self._part_of_bridge.get(vm.slot.port.bridge)
            if part is not None:
                part_of[SEND_CAP, vm.index] = part
                bps[part] = bps.get(part, 0.0) + tenant.rate_bps
        # A class on a link feeds the part of the next bridge, which may differ
        # from that of its own.
        for link, _ in tenant.link_bps:
            bridge = self._plan.receiving_port(link).bridge
            if bridge in self._part_of_bridge:
                part_of[LINK, link] = self._part_of_bridge[bridge]
        traffic = _Entering(
            tenant,
            self._parts_of(tenant),
            part_of,
            bps,
            packet_bits=8 * largest_packet_bytes(tenant),
            round_trip_s=path_delay(tenant).round_trip_s,
        )
        # Waits on its old paths still count.
        if earlier is not None:
            traffic.waited_s = earlier.waited_s
            traffic.until_s = earlier.until_s
        return traffic

    def _parts_of(self, tenant: TenantPlan) -> frozenset[int]:
        """Parts that the tenant's packets pass."""
        bridges = {vm.slot.port.bridge for vm in tenant.vms}
        for edge in tenant.edges:
            bridges |= {edge.lower.bridge, edge.upper.bridge}
        known = bridges & self._part_of_bridge.keys()
        return frozenset(self._part_of_bridge[bridge] for bridge in known)
