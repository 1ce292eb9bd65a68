"""What the kernel has counted on links: one dump of all queueing disciplines, read by plan."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TypeVar

from testbed.backends.emu.messages import TC_H_ROOT
from testbed.backends.emu.netlink import QdiscCounters
from testbed.plan.limits import UNCLAIMED_MINOR

Name = TypeVar("Name")


@dataclass(frozen=True)
class Counters:
    """What a link, one tenant on it, or a VM's cap has counted since it was set up."""

    sent_bytes: int
    drops: int
    backlog_bytes: int
    overlimits: int


def by_device(qdiscs: Iterable[QdiscCounters], name_of: Mapping[int, Name]) -> dict[Name, Counters]:
    """All that leaves a device. ``name_of``: device index -> what it is called, as its link."""
    return {
        name_of[q.ifindex]: _counters(q)
        for q in qdiscs
        if q.parent == TC_H_ROOT and q.ifindex in name_of
    }


def by_class(
    qdiscs: Iterable[QdiscCounters], directed_of: Mapping[int, int]
) -> dict[tuple[int, int], Counters]:
    """(tenant, directed link) -> what that tenant has sent there: its class's queue."""
    return {
        (q.parent & 0xFFFF, directed_of[q.ifindex]): _counters(q)
        for q in qdiscs
        if q.kind == "bfifo" and q.ifindex in directed_of and q.parent & 0xFFFF != UNCLAIMED_MINOR
    }


def unshaped(qdiscs: Iterable[QdiscCounters], name_of: Mapping[int, str]) -> dict[str, int]:
    """Device -> packets that left past every limit, for the devices of ``name_of`` alone.

    HTB sends at once what finds no class (``direct_packets_stat``).
    """
    return {
        name_of[q.ifindex]: q.direct_packets
        for q in qdiscs
        if q.direct_packets and q.ifindex in name_of
    }


def _counters(qdisc: QdiscCounters) -> Counters:
    return Counters(qdisc.sent_bytes, qdisc.drops, qdisc.backlog_bytes, qdisc.overlimits)
