"""Execution of a plan's lines, all or nothing, and counters: on the host and in VMs' namespaces.

A tenant of 32 VMs is some thousand lines in 33 namespaces: a ``tc -batch`` and an ``ip -batch`` in
each would take longer than the tenant may, therefore netlink.
"""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.linux import inside_network_namespace
from testbed.backends.emu.netlink import TC_H_ROOT, Counters, Refusal, RouteSocket, packed
from testbed.errors import RunFailed
from testbed.plan.batch_lines import VM_DEVICE, BatchLine, LinkUp, Section, TcItem
from testbed.plan.limits import DEFAULT_CLASS_MINOR

GONE = frozenset({errno.ENOENT, errno.EADDRNOTAVAIL, errno.ENODEV})


@dataclass(frozen=True)
class VmNamespace:
    """A VM slot's namespace, held open by its routing socket."""

    name: str
    socket: RouteSocket
    ifindex: int


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
                _raise_first(section, refused)
        except BaseException:
            for section in reversed(done):
                self._send(section.undo())
            raise

    def remove(self, sections: Sequence[Section]) -> None:
        """Remove everything; what is gone already is no failure. Raises RunFailed at the end."""
        sent = [(section, self._send(section)) for section in sections]
        for section, refused in sent:
            _raise_first(section, [refusal for refusal in refused if refusal.number not in GONE])

    def _send(self, section: Section) -> list[Refusal]:
        if section.netns is None:
            at, indices = self.host, self.devices
        else:
            vm = self.vms[section.netns]
            at, indices = vm.socket, {VM_DEVICE: vm.ifindex}
        return at.request([
            packed(line.verb, line.item, indices.get(line.item.dev, 0)) for line in section.lines
        ])  # fmt: skip


def _raise_first(section: Section, refused: Sequence[Refusal]) -> None:
    """Raise RunFailed for the first refusal, if there is one, with the text of its line."""
    for refusal in refused:
        line = section.lines[refusal.position]
        where = f" in {section.netns}" if section.netns else ""
        refused_by = "tc refused" if isinstance(line.item, TcItem) else "ip refused"
        raise RunFailed(f"{refused_by} {line.text()!r}{where}: {refusal.reason}")


# ---------------------------------------------------------------------------------- namespaces


NETNS_DIR = Path("/run/netns")
# VMs speak IPv4 only; neighbour discovery would be traffic that no tenant sends.
BASE_SYSCTLS = (
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "1"),
)
SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17


def open_namespaces(
    names: Iterable[str], sysctls: Sequence[tuple[str, str]], *, checksum_offload: bool
) -> dict[str, VmNamespace]:
    """Set up each namespace and open a socket in it. On failure all sockets are closed again.

    ``checksum_offload`` False: VMs fill in checksums themselves, for a switch that cannot.
    """
    opened: dict[str, VmNamespace] = {}
    try:
        for name in names:
            with inside_network_namespace(NETNS_DIR / name):
                for key, value in (*BASE_SYSCTLS, *sysctls):
                    _set_sysctl(key, value)
                if not checksum_offload:
                    _checksum_offload_off(VM_DEVICE)
                index_of = {device: index for index, device in socket.if_nameindex()}
                opened[name] = vm = VmNamespace(name, RouteSocket(), index_of[VM_DEVICE])
            up = Section(name, tuple(BatchLine("change", LinkUp(d)) for d in ("lo", VM_DEVICE)))
            messages = [packed(x.verb, x.item, index_of[x.item.dev]) for x in up.lines]
            _raise_first(up, vm.socket.request(messages))
    except BaseException:
        for vm in opened.values():
            vm.socket.close()
        raise
    return opened


def _set_sysctl(key: str, value: str) -> None:
    path = Path("/proc/sys") / key.replace(".", "/")
    try:
        path.write_text(value, encoding="ascii")
    except FileNotFoundError:
        if not key.startswith("net.ipv6."):
            raise


def _checksum_offload_off(device: str) -> None:
    """``ethtool -K DEV tx off``, for the namespace this thread is in."""
    value = array.array("B", struct.pack("=II", ETHTOOL_STXCSUM, 0))
    request = struct.pack("16sP", device.encode(), value.buffer_info()[0])
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as control:
        fcntl.ioctl(control, SIOCETHTOOL, request)


# ------------------------------------------------------------------------------------ counters


def by_device(qdiscs: Iterable[Counters]) -> dict[int, Counters]:
    """All that leaves a device, by its index."""
    return {qdisc.ifindex: qdisc for qdisc in qdiscs if qdisc.parent == TC_H_ROOT}


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


def unshaped(qdiscs: Iterable[Counters], devices: Mapping[str, int]) -> dict[str, int]:
    """Device -> packets that left past every limit, for devices (name -> index) of ours alone.

    HTB sends at once what finds no class (``direct_packets_stat``).
    """
    found = by_device(qdiscs)
    return {
        name: found[index].direct_packets
        for name, index in devices.items()
        if index in found and found[index].direct_packets
    }
