"""Execution of a plan's lines, all or nothing, and counters: on the host and in
VMs' namespaces.

A tenant of 32 VMs is some thousand lines in 33 namespaces: a ``tc -batch`` and
an ``ip -batch`` in each would take longer than the tenant may, therefore
netlink.
"""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.linux import inside_network_namespace
from jobs.live.connections import VM_SYSCTLS
from testbed.backends.emu.netlink import (
    GONE,
    KernelRefusal,
    RouteSocket,
    packed,
)
from testbed.errors import RunFailed
from testbed.plan.batch_lines import (
    VM_DEVICE,
    BatchLine,
    BatchSection,
    LinkUp,
    TcItem,
)


@dataclass(frozen=True)
class Side:
    """Devices in one network namespace, by name, and a routing socket there."""

    route: RouteSocket
    index_of: Mapping[str, int]

    def unshaped(self) -> dict[str, int]:
        """Packets that left without a limit, by device. Raises OSError."""
        packets_of = self.route.unshaped()
        return {
            name: packets_of[index]
            for name, index in self.index_of.items()
            if index in packets_of
        }

    def request(self, lines: Sequence[BatchLine]) -> list[KernelRefusal]:
        """Carries out lines in order; returns those that the kernel refused."""
        # Index 0, of an unknown device, is refused by the kernel.
        return self.route.request(
            [
                packed(
                    line.verb,
                    line.item,
                    self.index_of.get(line.item.dev, 0),
                )
                for line in lines
            ]
        )


@dataclass(frozen=True)
class TrafficControl:
    """The kernel's part of one network.

    ``sides``: devices in the switches' namespaces; ``vms``: those of VMs, by
    namespace.
    """

    sides: Sequence[Side]
    vms: Mapping[str, Side]

    def close(self) -> None:
        for side in (*self.sides, *self.vms.values()):
            side.route.close()

    def apply(self, sections: Sequence[BatchSection]) -> None:
        """Adds or changes limits, addresses and links: all or nothing.

        Raises RunFailed naming the first refused line, after taking back those
        that were carried out. A refused line is not taken back: that would
        remove the object of the same name that made the kernel refuse it.
        """
        done: list[BatchSection] = []
        try:
            for section in sections:
                refused = self._send(section)
                done.append(_without(section, refused))
                _raise_first(section, refused)
        except BaseException:
            for section in reversed(done):
                self._send(section.undo())
            raise

    def remove(self, sections: Sequence[BatchSection]) -> None:
        """Removes everything. Lines whose object is gone are no failure.

        Raises RunFailed for any other refusal, after all lines were sent.
        """
        sent = [(section, self._send(section)) for section in sections]
        for section, refused in sent:
            failed = [r for r in refused if r.number not in GONE]
            _raise_first(section, failed)

    def _send(self, section: BatchSection) -> list[KernelRefusal]:
        """Sends a section; returns refusals with their place in the section."""
        if section.netns is not None:
            return self.vms[section.netns].request(section.lines)
        # Switch ports: each line goes to the namespace that has its device.
        # One batch a namespace, and each refusal at its place in the section.
        places_of: dict[int, list[int]] = defaultdict(list)
        for place, line in enumerate(section.lines):
            places_of[self._side(line.item.dev)].append(place)
        refused = []
        for side, places in places_of.items():
            lines = [section.lines[place] for place in places]
            for refusal in self.sides[side].request(lines):
                place = places[refusal.position]
                refused.append(replace(refusal, position=place))
        return refused

    def _side(self, device: str) -> int:
        """Index of the side that has a device.

        The first for an unknown device, which is refused there.
        """
        for i, side in enumerate(self.sides):
            if device in side.index_of:
                return i
        return 0


def _without(
    section: BatchSection, refused: Sequence[KernelRefusal]
) -> BatchSection:
    """The section without the lines that were refused."""
    positions = {refusal.position for refusal in refused}
    kept = []
    for position, line in enumerate(section.lines):
        if position not in positions:
            kept.append(line)
    return BatchSection(section.netns, tuple(kept))


def _raise_first(
    section: BatchSection, refused: Sequence[KernelRefusal]
) -> None:
    """Raises RunFailed for the first refusal, if any, with its line's text."""
    for refusal in refused:
        line = section.lines[refusal.position]
        where = f" in {section.netns}" if section.netns else ""
        # The commands that take such lines.
        refused_by = "ip refused"
        if isinstance(line.item, TcItem):
            refused_by = "tc refused"
        raise RunFailed(
            f"{refused_by} {line.text()!r}{where}: {refusal.reason}"
        )


# ---------------------------------------------------------------------------------- namespaces


NETNS_DIR = Path("/run/netns")
UP_DEVICES = ("lo", VM_DEVICE)
"""Of a VM's namespace."""
# VMs speak IPv4 only: IPv6's neighbour discovery would be traffic that no tenant
# sends. Writing "all" also sets "default", which later devices start with.
BASE_SYSCTLS = (
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    # After a lost link TCP retries every second: without it the times double
    # up to two minutes. Linux has this setting from 6.15 on.
    ("net.ipv4.tcp_rto_max_ms", "1000"),
    # TCP counts its patience in retries: 15 of at most a second would be 14.4 s,
    # and a connection of a program in a VM would end (ETIMEDOUT) when its path,
    # or the machine, stands still for as long. So many are four minutes.
    ("net.ipv4.tcp_retries2", "255"),
)
SIOCETHTOOL = 0x8946
ETHTOOL_GLINK = 0x0A
ETHTOOL_STXCSUM = 0x17


def open_namespaces(
    names: Iterable[str], *, checksum_offload: bool
) -> dict[str, Side]:
    """Sets up each VM's namespace, and opens a routing socket in it.

    ``checksum_offload`` False: VMs compute checksums themselves, for a switch
    that cannot. On failure all sockets are closed again.
    """
    opened: dict[str, Side] = {}

    def set_up(name: str) -> None:
        with inside_network_namespace(NETNS_DIR / name):
            set_sysctls(*VM_SYSCTLS)
            if not checksum_offload:
                # As by `ethtool -K DEV tx off`.
                _ethtool(VM_DEVICE, ETHTOOL_STXCSUM)
            index_of = {
                device: index for index, device in socket.if_nameindex()
            }
            # Kept open: a socket stays in the namespace where it was made.
            vm = Side(RouteSocket(), index_of)
            opened[name] = vm
        # Programs expect a loopback, which a new namespace has down.
        lines = [BatchLine("change", LinkUp(dev)) for dev in UP_DEVICES]
        up = BatchSection(name, tuple(lines))
        _raise_first(up, vm.request(up.lines))

    try:
        for name in names:
            set_up(name)
    except BaseException:
        for vm in opened.values():
            vm.route.close()
        raise
    return opened


def set_sysctls(*sysctls: tuple[str, str]) -> None:
    """Writes BASE_SYSCTLS and ``sysctls`` in this thread's network namespace.

    Base settings that the kernel does not have are left out. Raises
    FileNotFoundError for any other.
    """
    for setting in (*BASE_SYSCTLS, *sysctls):
        key, value = setting
        path = Path("/proc/sys") / key.replace(".", "/")
        try:
            path.write_text(value, encoding="ascii")
        except FileNotFoundError:
            if setting not in BASE_SYSCTLS:
                raise


def _ethtool(device: str, command: int) -> int:
    """Value that the kernel returns for an ethtool request with 0. Raises
    OSError.

    The device is one of this thread's network namespace.
    """
    # struct ethtool_value, which the kernel reads and writes by its address.
    exchanged = array.array("I", (command, 0))
    address = exchanged.buffer_info()[0]
    request = struct.pack("16sP", device.encode(), address)
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, request)
    return exchanged[1]


def has_carrier(device: str) -> bool:
    """True if a device and its other end are up.

    The device is one of this thread's network namespace. Asked by ethtool,
    since the flag IFF_RUNNING may lag behind by up to a second.
    """
    try:
        return bool(_ethtool(device, ETHTOOL_GLINK))
    except OSError:
        return False
