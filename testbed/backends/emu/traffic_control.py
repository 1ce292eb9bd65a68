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
        """Device -> packets that left past every limit."""
        found = self.route.unshaped()
        return {
            name: found[index]
            for name, index in self.index_of.items()
            if index in found
        }

    def request(self, lines: Sequence[BatchLine]) -> list[KernelRefusal]:
        """Have the kernel do all of it, in order; returns what it refused."""
        return self.route.request(
            [
                packed(x.verb, x.item, self.index_of.get(x.item.dev, 0))
                for x in lines
            ]
        )


@dataclass(frozen=True)
class TrafficControl:
    """One network in the kernel: the switches' sides of it, and the VMs' by
    their namespaces.
    """

    sides: Sequence[Side]
    vms: Mapping[str, Side]

    def close(self) -> None:
        for side in (*self.sides, *self.vms.values()):
            side.route.close()

    def apply(self, sections: Sequence[BatchSection]) -> None:
        """Add or change. Raises RunFailed naming the first refused line; then
        nothing has changed.

        What was there before, and made the kernel refuse, stays.
        """
        done: list[BatchSection] = []
        try:
            for section in sections:
                refused = self._send(section)
                bad = {refusal.position for refusal in refused}
                kept = tuple(
                    line
                    for i, line in enumerate(section.lines)
                    if i not in bad
                )
                done.append(BatchSection(section.netns, kept))
                _raise_first(section, refused)
        except BaseException:
            for section in reversed(done):
                self._send(section.undo())
            raise

    def remove(self, sections: Sequence[BatchSection]) -> None:
        """Remove everything; what is gone already is no failure. Raises
        RunFailed at the end.
        """
        sent = [(section, self._send(section)) for section in sections]
        for section, refused in sent:
            _raise_first(
                section,
                [
                    refusal
                    for refusal in refused
                    if refusal.number not in GONE
                ],
            )

    def _send(self, section: BatchSection) -> list[KernelRefusal]:
        """The refusals, each with its place in the section."""
        if section.netns is not None:
            return self.vms[section.netns].request(section.lines)
        places_of: dict[int, list[int]] = defaultdict(list)
        for place, line in enumerate(section.lines):
            places_of[self._side(line.item.dev)].append(place)
        return [
            replace(refusal, position=places[refusal.position])
            for side, places in places_of.items()
            for refusal in self.sides[side].request(
                [section.lines[place] for place in places]
            )
        ]

    def _side(self, device: str) -> int:
        """The side that has a device; of one unknown, the first, where it will
        be refused.
        """
        return next(
            (
                i
                for i, side in enumerate(self.sides)
                if device in side.index_of
            ),
            0,
        )


def _raise_first(
    section: BatchSection, refused: Sequence[KernelRefusal]
) -> None:
    """Raise RunFailed for the first refusal, if there is one, with the text of
    its line.
    """
    for refusal in refused:
        line = section.lines[refusal.position]
        where = f" in {section.netns}" if section.netns else ""
        refused_by = (
            "tc refused" if isinstance(line.item, TcItem) else "ip refused"
        )
        raise RunFailed(
            f"{refused_by} {line.text()!r}{where}: {refusal.reason}"
        )


# ---------------------------------------------------------------------------------- namespaces


NETNS_DIR = Path("/run/netns")
# VMs speak IPv4 only; neighbour discovery would be traffic that no tenant
# sends. That of "all" sets "default" too, of which devices to come begin.
BASE_SYSCTLS = (
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    # TCP that a lost link has stopped tries again every second, not after a
    # time that doubles up to two minutes. From Linux 6.15 on.
    ("net.ipv4.tcp_rto_max_ms", "1000"),
)
SIOCETHTOOL = 0x8946
ETHTOOL_GLINK = 0x0A
ETHTOOL_STXCSUM = 0x17


def open_namespaces(
    names: Iterable[str],
    sysctls: Sequence[tuple[str, str]],
    *,
    checksum_offload: bool,
) -> dict[str, Side]:
    """Set up each namespace and open a socket in it. On failure all sockets are
    closed again.

    ``checksum_offload`` False: VMs fill in checksums themselves, for a switch
    that cannot.
    """
    opened: dict[str, Side] = {}

    def set_up(name: str) -> None:
        with inside_network_namespace(NETNS_DIR / name):
            set_sysctls(*sysctls)
            if not checksum_offload:
                _ethtool(
                    VM_DEVICE, ETHTOOL_STXCSUM, 0
                )  # ethtool -K DEV tx off
            index_of = {
                device: index for index, device in socket.if_nameindex()
            }
            opened[name] = vm = Side(RouteSocket(), index_of)
        up = BatchSection(
            name,
            tuple(
                BatchLine("change", LinkUp(d)) for d in ("lo", VM_DEVICE)
            ),
        )
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
    """Settings of the namespace this thread is in: those of all VMs that its
    kernel has, and ``sysctls``.
    """
    for setting in (*BASE_SYSCTLS, *sysctls):
        key, value = setting
        path = Path("/proc/sys") / key.replace(".", "/")
        try:
            path.write_text(value, encoding="ascii")
        except FileNotFoundError:
            if setting not in BASE_SYSCTLS:
                raise


def _ethtool(device: str, command: int, value: int) -> int:
    """The answer to a request of ethtool, for the namespace this thread is in.
    Raises OSError.
    """
    asked = array.array("I", (command, value))
    request = struct.pack("16sP", device.encode(), asked.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, request)
    return asked[1]


def has_carrier(device: str) -> bool:
    """True if a device of the namespace this thread is in, and its other end,
    are up now.

    The kernel's own flag for it (``IFF_RUNNING``) may lag behind by up to a
    second.
    """
    try:
        return bool(_ethtool(device, ETHTOOL_GLINK, 0))
    except OSError:
        return False
