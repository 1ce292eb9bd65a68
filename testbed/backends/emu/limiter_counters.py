"""The counters of many limiters, read again and again beside the jobs.

A network of 448 VMs has some 5,000 queueing disciplines in 456 namespaces. The switches' namespaces
are dumped, a VM's own is asked for its one limiter; only what is wanted is unpacked.
"""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from testbed.backends.emu import netlink
from testbed.backends.emu.netlink import HEADER, QDISC_DUMP, ROOT_HANDLE, TC_H_ROOT, TCMSG

if TYPE_CHECKING:
    from testbed.backends.emu.traffic_control import Side

Counted = tuple[float, int, int, int]
COUNTERS = np.dtype(
    [("at_s", "f8"), ("sent_bytes", "i8"), ("drops", "i8"), ("backlog_bytes", "i8")]
)
"""Counters of a limiter and the time of their reading, in s; NaN where that is not known."""
NOT_COUNTED: Counted = (np.nan, -1, 0, 0)
"""Of a limiter that is not there."""
# The most that the kernel may take for a datagram: many times what it does. Preempted in
# between, this process does not know when the counters were read.
READ_S = 0.005
_QDISC = struct.Struct("=IH14xi4xI")  # nlmsghdr: size, kind; tcmsg: ifindex, parent
# gnet_stats_basic: bytes; gnet_stats_queue: packets, bytes, drops; each after its attribute's kind.
_BASIC, _QUEUE = struct.Struct("=xxHQ"), struct.Struct("=xxHIII")
_KINDS = netlink.TCA_STATS_BASIC, netlink.TCA_STATS_QUEUE


class Limiter(NamedTuple):
    """All that leaves a device, or one of its classes, by the class's minor number; in a VM's
    namespace, or (None) on the switches' side.
    """

    netns: str | None
    device: str
    minor: int | None = None


class CounterReader:
    """Reads the counters of the same limiters again and again."""

    def __init__(
        self, sides: Sequence[Side], vms: Mapping[str, Side], limiters: Sequence[Limiter]
    ) -> None:
        self._n = len(limiters)
        self._places_of: dict[int, tuple[int, int]] = {}
        # By side: its socket, the question, and the row of each limiter, by interface and parent.
        asked: dict[int, tuple[Side, bytes, dict[tuple[int, int], int]]] = {}
        side_of = {device: side for side in sides for device in side.index_of}
        for row, (netns, device, minor) in enumerate(limiters):
            side = side_of.get(device) if netns is None else vms[netns]
            if side is not None and device in side.index_of:
                index = side.index_of[device]
                request = netlink.root_qdisc_request(index) if netns else QDISC_DUMP
                parent = TC_H_ROOT if minor is None else ROOT_HANDLE | minor
                asked.setdefault(id(side), (side, request, {}))[2][index, parent] = row
        self._asked = tuple(asked.values())

    def read(self) -> NDArray[Any]:
        """A row of :data:`COUNTERS` for each limiter. Raises OSError."""
        found = [NOT_COUNTED] * self._n
        for side, request, row_of in self._asked:
            for earliest_s, latest_s, data in side.route.ask(request):
                at_s = earliest_s if latest_s - earliest_s < READ_S else np.nan
                self._unpack(data, at_s, row_of, found)
        return np.array(found, COUNTERS)

    def _unpack(
        self, data: bytes, at_s: float, row_of: dict[tuple[int, int], int], found: list[Counted]
    ) -> None:
        """Puts the counters that are wanted into their rows."""
        at, end = 0, len(data)
        data += bytes(_QDISC.size)
        while at < end:
            size, kind, *key = _QDISC.unpack_from(data, at)
            if kind == netlink.RTM_NEWQDISC:
                row = row_of.get((key[0], key[1]))
                if row is not None:
                    found[row] = (at_s, *self._counters(data, at, size))
            elif kind == netlink.NLMSG_ERROR:
                netlink.raise_unless_gone(data[at : at + size])
            at += (size + 3) & ~3

    def _counters(self, data: bytes, at: int, size: int) -> tuple[int, int, int]:
        """Bytes sent, drops, backlog. Nearly all messages of one size have one layout."""
        basic_at, queue_at = self._places_of.get(size, (0, 0))
        basic, sent = _BASIC.unpack_from(data, at + basic_at)
        queue, _, backlog, drops = _QUEUE.unpack_from(data, at + queue_at)
        if (basic, queue) == _KINDS:
            return sent, drops, backlog
        self._places_of[size] = _places(memoryview(data)[at : at + size])
        return self._counters(data, at, size)


def _places(message: memoryview) -> tuple[int, int]:
    """Where the two attributes with counters begin."""
    found = {}
    for kind, begin, end in netlink.places(message, HEADER.size + TCMSG.size, len(message)):
        if kind == netlink.TCA_STATS2:
            for stat, at, _ in netlink.places(message, begin, end):
                found[stat] = at - netlink.ATTRIBUTE.size
    return found[netlink.TCA_STATS_BASIC], found[netlink.TCA_STATS_QUEUE]
