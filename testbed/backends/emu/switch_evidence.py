"""Standstills of the switch's parts while traffic waits for them.

A part without traffic does nothing, which is no standstill. Traffic waits for
one where jobs that send at their rate all the time pass it, or where limiters
that feed it have sent something since it last ran.
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
"""Traffic at which a userspace switch has something to do all the time."""
PACKETS = 12
"""Packets that wait for a part beyond doubt, where it has less to do."""

LimiterKey = tuple[int, int]
"""Kind of a limiter, and its place: a directed link, or a VM by its index."""


class Forwarder(NamedTuple):
    """A process that forwards packets, and its bridges by name."""

    pid: int
    bridges: frozenset[str]


@dataclass
class _Entering:
    """A tenant's traffic that enters parts.

    ``part_of``: the part that a limiter feeds; ``counted``: its last count;
    ``round_trip_s``: by its links' delay; TCP that begins waits so long between
    its windows.
    ``bps``: by part a rate at which the tenant's traffic enters it, at least;
    ``waiting``: by part the time between two counts in which something came and
    the part did not run; ``waited_s``: how long something waited up to
    ``until_s``.
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
    """Looks at the parts of a switch."""

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
        """Looks at every part. ``at_rate``: they send at their rates now."""
        self._stood_s = []
        for part, progress in enumerate(self._progress):
            work = self._work(part, at_rate)
            self._stood_s.append(progress.look(now_s, work))
        for traffic in self._traffic.values():
            self._settle(traffic, now_s)

    def _settle(self, traffic: _Entering, now_s: float) -> None:
        """Looks once more: what came before a count may have been passed on."""
        for part, (from_s, at_s) in list(traffic.waiting.items()):
            if now_s - at_s < STANDSTILL_S:
                continue
            del traffic.waiting[part]
            if self._progress[part].still_since_s <= from_s:
                # Several limiters feed one part: their times count once.
                begin_s = max(from_s, traffic.until_s)
                traffic.waited_s += max(0.0, at_s - begin_s)
                traffic.until_s = max(traffic.until_s, at_s)

    def _work(
        self, part: int, at_rate: Sequence[TenantPlan]
    ) -> PendingWork | None:
        """Work that a part has all the time; None where it may have none."""
        entering_bps = 0.0
        packet_bits = 0
        round_trip_s = 0.0
        for tenant in at_rate:
            traffic = self._of(tenant)
            bps = traffic.bps.get(part, 0.0)
            entering_bps += bps
            if bps > 0.0:
                packet_bits = max(packet_bits, traffic.packet_bits)
                round_trip_s = max(round_trip_s, traffic.round_trip_s)
        if entering_bps <= 0.0:
            return None
        # A switch that works at such rates polls: it hardly rests at all.
        if entering_bps > BUSY_BPS:
            return PendingWork(STANDSTILL_S + round_trip_s, RUNNING)
        # At lower rates it wakes up for each packet, for next to no time.
        packets_s = PACKETS * packet_bits / entering_bps
        least_s = max(STANDSTILL_S, packets_s) + round_trip_s
        return PendingWork(least_s, running=0.0)

    def stood_s(self, tenant: TenantPlan) -> float:
        """Part of the last look's time in which a tenant's traffic was held up."""
        parts = self._of(tenant).parts
        return max((self._stood_s[part] for part in parts), default=0.0)

    def count(
        self,
        tenant: TenantPlan,
        limiter: LimiterKey,
        at_s: float,
        sent_bytes: int,
    ) -> None:
        """Takes in a count of a limiter that feeds a part."""
        traffic = self._of(tenant)
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
        if self._progress[part].still_since_s <= before_s:
            traffic.waiting[part] = (before_s, at_s)

    def waited_s(self, tenant_id: int) -> float:
        """Seconds for which what a tenant has sent waited, by its limiters."""
        if tenant_id not in self._traffic:
            return 0.0
        return self._traffic[tenant_id].waited_s

    def forget(self, tenant_id: int) -> None:
        """Drops all that is known of a tenant that is gone."""
        self._traffic.pop(tenant_id, None)

    def _of(self, tenant: TenantPlan) -> _Entering:
        """A tenant's traffic; anew where it took other paths."""
        traffic = self._traffic.get(tenant.tenant_id)
        if traffic is None or traffic.tenant is not tenant:
            traffic = self._followed(tenant, traffic)
            self._traffic[tenant.tenant_id] = traffic
        return traffic

    def _followed(
        self, tenant: TenantPlan, earlier: _Entering | None
    ) -> _Entering:
        part_of: dict[LimiterKey, int] = {}
        bps: dict[int, float] = {}
        for vm in tenant.vms:
            # Of a part that has just ended nothing is known.
            part = self._part_of_bridge.get(vm.slot.port.bridge)
            if part is not None:
                part_of[SEND_CAP, vm.index] = part
                bps[part] = bps.get(part, 0.0) + tenant.rate_bps
        # A class on a link sends from one bridge into the next one, which may
        # be another part's.
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
        # What it waited on its old paths it has waited.
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
