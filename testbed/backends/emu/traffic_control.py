"""Execution of a plan's lines, all or nothing, and counters: on the host and in the VMs.

A tenant of 32 VMs is some thousand lines in 33 namespaces: a ``tc -batch`` and an ``ip -batch`` in
each would take longer than the tenant may, therefore netlink.
"""

from __future__ import annotations

import errno
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TypeVar

from testbed.backends.emu.namespaces import VmNamespace, raise_first
from testbed.backends.emu.netlink import TC_H_ROOT, Counters, Refusal, RouteSocket, packed
from testbed.plan.batch_lines import VM_DEVICE, Section
from testbed.plan.limits import DEFAULT_CLASS_MINOR

GONE = frozenset({errno.ENOENT, errno.EADDRNOTAVAIL, errno.ENODEV})


@dataclass(frozen=True)
class TrafficControl:
    """One network in the kernel: the host's socket and devices (name -> index), the VMs'."""

    host: RouteSocket
    devices: Mapping[str, int]
    vms: Mapping[str, VmNamespace]

    def close(self) -> None:
        self.host.close()
        for vm in self.vms.values():
            vm.socket.close()

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
                raise_first(section, refused)
        except BaseException:
            for section in reversed(done):
                self._send(section.undo())
            raise

    def remove(self, sections: Sequence[Section]) -> None:
        """Remove everything; what is gone already is no failure. Raises RunFailed at the end."""
        sent = [(section, self._send(section)) for section in sections]
        for section, refused in sent:
            raise_first(section, [refusal for refusal in refused if refusal.number not in GONE])

    def _send(self, section: Section) -> list[Refusal]:
        if section.netns is None:
            at, indices = self.host, self.devices
        else:
            vm = self.vms[section.netns]
            at, indices = vm.socket, {VM_DEVICE: vm.ifindex}
        return at.request([
            packed(line.verb, line.item, indices.get(line.item.dev, 0)) for line in section.lines
        ])  # fmt: skip


# ------------------------------------------------------------------------------------ counters


Name = TypeVar("Name")


def by_device(qdiscs: Iterable[Counters], name_of: Mapping[int, Name]) -> dict[Name, Counters]:
    """All that leaves a device. ``name_of``: device index -> what it is called, as its link."""
    return {name_of[q.ifindex]: q for q in qdiscs if q.parent == TC_H_ROOT and q.ifindex in name_of}


def by_class(
    qdiscs: Iterable[Counters], directed_of: Mapping[int, int]
) -> dict[tuple[int, int], Counters]:
    """(tenant, directed link) -> what that tenant has sent there: its class's queue."""
    return {
        (q.parent & 0xFFFF, directed_of[q.ifindex]): q
        for q in qdiscs
        if q.kind == "bfifo"
        and q.ifindex in directed_of
        and q.parent & 0xFFFF != DEFAULT_CLASS_MINOR
    }


def unshaped(qdiscs: Iterable[Counters], name_of: Mapping[int, str]) -> dict[str, int]:
    """Device -> packets that left past every limit, for the devices of ``name_of`` alone.

    HTB sends at once what finds no class (``direct_packets_stat``).
    """
    return {
        name_of[q.ifindex]: q.direct_packets
        for q in qdiscs
        if q.direct_packets and q.ifindex in name_of
    }
