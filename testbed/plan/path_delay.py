"""Delay and loss of a tenant's paths, and what they make of a transfer. Pure.

Times are of the emulated wire.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from jobs.wire import SEGMENT_BYTES
from testbed.plan.network_plan import Link, TenantPlan
from topologies.datacentre import LinkQuality, time_text

# Mathis et al., "The macroscopic behavior of the TCP congestion avoidance
# algorithm" (1997): with random losses p a connection has at most
# sqrt(3/2)/sqrt(p) segments a round trip.
MATHIS = math.sqrt(1.5)

FIRST_RECEIVE_WINDOW_BYTES = 65_535
"""The most that a receiver's first window can be (RFC 7323: that of a handshake
is not scaled).
"""


@dataclass(frozen=True)
class PathDelay:
    """The longest paths between a tenant's VMs, each figure's own.

    ``one_way_s`` without jitter, ``latest_s`` and ``round_trip_s`` with all of
    it; ``loss_share``: of the packets from one VM to another.
    """

    one_way_s: float = 0.0
    latest_s: float = 0.0
    round_trip_s: float = 0.0
    loss_share: float = 0.0

    def lossy_bps(self) -> float:
        """The most that one TCP connection gets by its losses, about."""
        if self.loss_share == 0.0 or self.round_trip_s == 0.0:
            return math.inf
        segments = MATHIS / math.sqrt(self.loss_share)
        return 8 * SEGMENT_BYTES * segments / self.round_trip_s


def path_delay(tenant: TenantPlan) -> PathDelay:
    """Of all pairs of the tenant's VMs. O(links of its tree)."""
    edges = tenant.edges
    if not any(
        quality.needs_netem for e in edges for quality in e.qualities
    ):
        return PathDelay()
    at = {vm.slot.port.bridge for vm in tenant.vms}
    # What passes is a product of what each link lets pass: sums of
    # logarithms, so that a path is as long as its links together.
    kept = _longest(edges, at, lambda q: -math.log1p(-q.loss_share))
    return PathDelay(
        one_way_s=_longest(edges, at, lambda q: q.delay_s),
        latest_s=_longest(edges, at, _latest_s),
        round_trip_s=_longest(edges, at, _latest_s, both_ways=True),
        loss_share=-math.expm1(-kept),
    )


def _latest_s(quality: LinkQuality) -> float:
    return quality.delay_s + quality.jitter_s


def _longest(
    edges: Sequence[Link],
    servers: set[str],
    length: Callable[[LinkQuality], float],
    *,
    both_ways: bool = False,
) -> float:
    """The longest path, up and down a tree, between two of its servers.

    ``edges``: children before their parents. ``both_ways``: there and back.
    """
    # Bridge -> the longest way up to it from a server below, and down.
    deepest = dict.fromkeys(servers, (0.0, 0.0))
    longest = 0.0
    for edge in edges:
        up, down = (length(quality) for quality in edge.qualities)
        if both_ways:
            up = down = up + down
        up += deepest[edge.lower.bridge][0]
        down += deepest[edge.lower.bridge][1]
        # A second branch meets at this bridge: the longest path may turn
        # here.
        other = deepest.get(edge.upper.bridge)
        if other is not None:
            longest = max(longest, up + other[1], other[0] + down)
            up = max(up, other[0])
            down = max(down, other[1])
        deepest[edge.upper.bridge] = (up, down)
    return longest


def slow_start_s(
    rate_bps: float, round_trip_s: float, window_bytes: float
) -> float:
    """Time that a sender with a rate is idle until its window holds it no more.

    The window doubles each round trip: after it has sent one it waits for the
    rest of the trip.
    """
    idle_s = 0.0
    # Doubling nothing would never end.
    window = max(1.0, window_bytes)
    needed = rate_bps * round_trip_s / 8
    while window < needed:
        idle_s += round_trip_s - 8 * window / rate_bps
        window *= 2
    return idle_s


def added_s(
    rate_bps: float, path: PathDelay, window_bytes: float
) -> tuple[float, float]:
    """By how much a transfer ends after its estimate: at least, and at most.

    Its connections stand before it starts. The last byte is late by the path,
    and the first windows may have to be waited for. Of losses nothing is known.
    """
    idle_s = slow_start_s(rate_bps, path.round_trip_s, window_bytes)
    # Whatever the sender may send: Linux states 64 kB first, and more once data
    # have come.
    if rate_bps * path.round_trip_s / 8 > FIRST_RECEIVE_WINDOW_BYTES:
        idle_s = max(idle_s, path.round_trip_s)
    return path.one_way_s, path.latest_s + idle_s


def delay_text(
    path: PathDelay, added: tuple[float, float], window_bytes: int
) -> str:
    """Comments above a tenant's lines; empty without delay and loss."""
    text = ""
    if path.round_trip_s:
        later = " to ".join(dict.fromkeys(map(time_text, added)))
        text = (
            f"# delay: round trips of up to {time_text(path.round_trip_s)};"
            f" a transfer ends {later} after its estimate"
            f" (first window {window_bytes:,} bytes)\n"
        )
    if path.loss_share:
        text += (
            f"# loss: up to {path.loss_share * 100:.2g} % of packets between"
            " two VMs; no reservation can be kept to"
        )
        most_bps = path.lossy_bps()
        if most_bps < math.inf:
            text += (
                f"; a TCP connection gets about {most_bps / 1e6:.3g} Mbit/s"
                " at most"
            )
        text += "\n"
    return text
