"""Execution of a plan's limits, all or nothing, and their counters: on the host and in the VMs.

A tenant of 32 VMs is a few hundred lines in 33 namespaces: a ``tc -batch`` in each would take
longer than the tenant may, therefore netlink.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from testbed.backends.emu.namespaces import VmNamespace
from testbed.backends.emu.netlink import (
    TC_H_ROOT,
    QdiscCounters,
    Refusal,
    RouteSocket,
    aimed,
    tc_message,
)
from testbed.errors import RunFailed
from testbed.plan.limits import DEFAULT_CLASS_MINOR, Section, TcLine

GONE = frozenset({errno.ENOENT, errno.ENODEV})


class TrafficControl:
    """The limits of one network: the host's socket and devices (name -> index), the VMs'."""

    def __init__(
        self, host: RouteSocket, devices: Mapping[str, int], vms: Mapping[str, VmNamespace]
    ) -> None:
        self._host = host
        self._devices = devices
        self._vms = vms
        self._packed: tuple[tuple[TcLine, ...], list[bytes]] = ((), [])

    def apply(self, sections: Sequence[Section]) -> None:
        """Add or change. Raises RunFailed naming the first refused line; then nothing has changed.

        What was there before, and made the kernel refuse, stays.
        """
        done: list[Section] = []
        try:
            for section in sections:
                refused = self._send(section)
                bad = {refusal.position for refusal in refused}
                kept = tuple(line for i, line in enumerate(section.lines) if i not in bad)
                done.append(Section(section.netns, kept))
                _raise_first(section, refused)
        except BaseException:
            for section in reversed(done):
                undo = tuple(line.undo() for line in reversed(section.lines))
                self._send(Section(section.netns, undo))
            raise

    def remove(self, sections: Sequence[Section]) -> None:
        """Remove everything; what is gone already is no failure. Raises RunFailed at the end."""
        refused = [(section, refusal) for section in sections for refusal in self._send(section)]
        for section, refusal in refused:
            if refusal.number not in GONE:
                _raise_first(section, [refusal])

    def _send(self, section: Section) -> list[Refusal]:
        if section.netns is None:
            return self._host.request(
                [tc_message(line, self._devices.get(line.item.dev, 0)) for line in section.lines]
            )
        vm = self._vms[section.netns]
        if self._packed[0] != section.lines:
            # A tenant's VMs get the same lines: these are packed once.
            self._packed = (section.lines, [tc_message(line) for line in section.lines])
        return vm.socket.request([aimed(message, vm.ifindex) for message in self._packed[1]])


def _raise_first(section: Section, refused: Sequence[Refusal]) -> None:
    for refusal in refused:
        line = section.lines[refusal.position].text()
        where = f" in {section.netns}" if section.netns else ""
        raise RunFailed(f"tc refused {line!r}{where}: {refusal.reason}")


# ------------------------------------------------------------------------------------ counters


Name = TypeVar("Name")


@dataclass(frozen=True)
class Counters:
    """Counters of a link, one tenant on it, or a VM's cap since it was set up."""

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
        if q.kind == "bfifo"
        and q.ifindex in directed_of
        and q.parent & 0xFFFF != DEFAULT_CLASS_MINOR
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
