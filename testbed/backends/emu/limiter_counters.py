"""Counters of many limiters, read repeatedly while jobs run.

A network of 448 VMs has some 5,000 queueing disciplines in 456 namespaces. A
reading dumps the switches' namespaces, asks each VM's for its one limiter, and
unpacks only the wanted counters.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.backends.emu import netlink
from testbed.backends.emu.netlink import (
    HEADER,
    QDISC_DUMP,
    ROOT_HANDLE,
    TC_H_ROOT,
    TCMSG,
)

if TYPE_CHECKING:
    from testbed.backends.emu.traffic_control import Side

LINK, SEND_CAP, RECEIVE_CAP, WHOLE_LINK = range(4)
"""Kinds of limiters: a tenant's class on a link, both caps of a VM, all of a
link.
"""
Counted = tuple[float, int, int, int]
COUNTERS = np.dtype(
    [
        ("at_s", "f8"),
        ("sent_bytes", "i8"),
        ("drops", "i8"),
        ("backlog_bytes", "i8"),
    ]
)
"""Counters of a limiter and the time of reading in s, NaN where unknown."""
NOT_COUNTED: Counted = (np.nan, -1, 0, 0)
"""Counters of a limiter that does not exist."""
# Many times what the kernel needs for a datagram. Where a reply took longer,
# this process was preempted, and the time of its counters is unknown.
READ_S = 0.005
# nlmsghdr: size, kind; tcmsg: ifindex, parent.
_QDISC = struct.Struct("=IH14xi4xI")
# gnet_stats_basic: bytes; gnet_stats_queue: packets, bytes, drops; each after
# its attribute's kind.
_BASIC = struct.Struct("=xxHQ")
_QUEUE = struct.Struct("=xxHIII")


class Limiter(NamedTuple):
    """All that leaves a device, or one of its classes by its minor number.

    ``netns`` is a VM's namespace; None: the device is on the switches' side.
    """

    netns: str | None
    device: str
    minor: int | None = None


class _Dump(NamedTuple):
    """A side's request, and the row of each limiter by interface and parent."""

    side: Side
    request: bytes
    row_of: dict[tuple[int, int], int]


class CounterReader:
    """Reads the counters of the same limiters again and again."""

    def __init__(
        self,
        sides: Sequence[Side],
        vms: Mapping[str, Side],
        limiters: Sequence[Limiter],
        *,
        one_by_one: bool = False,
    ) -> None:
        """``sides``: those of the switches; ``vms``: of VMs, by namespace.

        ``one_by_one``: each limiter is asked for by itself, as few are wanted.
        """
        self._n = len(limiters)
        self._places_of: dict[int, tuple[int, int]] = {}
        dumps: dict[tuple[int, ...], _Dump] = {}
        side_of: dict[str, Side] = {}
        for switches in sides:
            side_of |= dict.fromkeys(switches.index_of, switches)
        for row, (netns, device, minor) in enumerate(limiters):
            side = side_of.get(device) if netns is None else vms[netns]
            # A device that is gone has no counters.
            if side is None or device not in side.index_of:
                continue
            index = side.index_of[device]
            # The limiter of a whole device stands at its root; a class's
            # queue has the class as its parent.
            parent = TC_H_ROOT if minor is None else ROOT_HANDLE | minor
            # By identity: the devices of a side are a dictionary, which has
            # no hash.
            key: tuple[int, ...] = (id(side),)
            request = QDISC_DUMP
            if netns is not None or one_by_one:
                request = netlink.qdisc_request(index, parent)
            if one_by_one:
                key = (id(side), index, parent)
            if key not in dumps:
                dumps[key] = _Dump(side, request, {})
            dumps[key].row_of[index, parent] = row
        self._dumps = tuple(dumps.values())

    def read(self) -> NDArray[Any]:
        """A row of :data:`COUNTERS` for each limiter. Raises OSError."""
        # A list of tuples, converted once: writing single elements of an array
        # is slow.
        rows = [NOT_COUNTED] * self._n
        for side, request, row_of in self._dumps:
            for earliest_s, latest_s, data in side.route.ask(request):
                at_s = earliest_s
                if latest_s - earliest_s >= READ_S:
                    at_s = np.nan
                self._unpack(data, at_s, row_of, rows)
        return np.array(rows, COUNTERS)

    def _unpack(
        self,
        data: bytes,
        at_s: float,
        row_of: dict[tuple[int, int], int],
        rows: list[Counted],
    ) -> None:
        """Puts the counters that are wanted into their rows."""
        at = 0
        end = len(data)
        # Room for unpacking a whole structure of a short last message.
        data += bytes(_QDISC.size)
        while at < end:
            size, kind, index, parent = _QDISC.unpack_from(data, at)
            if kind == netlink.RTM_NEWQDISC:
                row = row_of.get((index, parent))
                if row is not None:
                    rows[row] = (at_s, *self._counters(data, at, size))
            elif kind == netlink.NLMSG_ERROR:
                netlink.raise_unless_gone(data[at : at + size])
            # Messages are aligned to 4 bytes.
            at += (size + 3) & ~3

    def _counters(
        self,
        data: bytes,
        at: int,
        size: int,
    ) -> tuple[int, int, int]:
        """Bytes sent, drops, backlog."""
        # Messages of one size nearly always have one layout: try the offsets of
        # the last one, and search only where other attributes are there.
        basic_at, queue_at = self._places_of.get(size, (0, 0))
        basic, sent = _BASIC.unpack_from(data, at + basic_at)
        queue, _, backlog, drops = _QUEUE.unpack_from(data, at + queue_at)
        if (
            basic == netlink.TCA_STATS_BASIC
            and queue == netlink.TCA_STATS_QUEUE
        ):
            return sent, drops, backlog
        self._places_of[size] = _places(memoryview(data)[at : at + size])
        return self._counters(data, at, size)


def _places(message: memoryview) -> tuple[int, int]:
    """Offsets of the two attributes with counters."""
    offsets = {}
    first = HEADER.size + TCMSG.size
    for kind, begin, end in netlink.places(message, first, len(message)):
        if kind == netlink.TCA_STATS2:
            for stat, at, _ in netlink.places(message, begin, end):
                offsets[stat] = at - netlink.ATTRIBUTE.size
    basic_at = offsets[netlink.TCA_STATS_BASIC]
    return basic_at, offsets[netlink.TCA_STATS_QUEUE]
