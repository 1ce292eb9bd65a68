"""The VMs' network namespaces from inside: settings, the routing socket, addresses, neighbours."""

from __future__ import annotations

import array
import errno
import fcntl
import socket
import struct
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from jobs.linux import inside_network_namespace
from testbed.backends.emu.netlink import (
    Refusal,
    RouteSocket,
    address_message,
    aimed,
    gso_message,
    link_up_message,
    neighbour_message,
    prefix_route_message,
)
from testbed.errors import RunFailed
from testbed.plan.installation import VM_DEVICE, VmHost

NETNS_DIR = Path("/run/netns")
# VMs speak IPv4 only; neighbour discovery would be traffic that no tenant sends.
BASE_SYSCTLS = (
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "1"),
)
SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17
GONE = frozenset({errno.ENOENT, errno.EADDRNOTAVAIL, errno.ENODEV})


@dataclass(frozen=True)
class VmNamespace:
    """A VM slot's namespace, held open by its routing socket."""

    name: str
    socket: RouteSocket
    ifindex: int


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
                loopback = socket.if_nametoindex("lo")
                vm = VmNamespace(name, RouteSocket(), socket.if_nametoindex(VM_DEVICE))
            opened[name] = vm
            up = [link_up_message(index) for index in (loopback, vm.ifindex)]
            _raise_first(vm.socket.request(up), ("link set lo up", "link set eth0 up"), name)
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


def add_hosts(hosts: Sequence[VmHost], vms: Mapping[str, VmNamespace]) -> None:
    """Addresses, neighbours and frame sizes of a tenant's VMs. All or nothing. Raises RunFailed.

    What was there before, and made the kernel refuse, stays.
    """
    done: list[tuple[VmHost, set[int]]] = []
    try:
        for host, messages in _messages(hosts, vms, add=True):
            refused = _requested(vms[host.netns].socket, messages)
            done.append((host, {refusal.position for refusal in refused}))
            _raise_first(refused, host.lines(), host.netns)
    except BaseException:
        for host, not_ours in done:
            messages = next(_messages([host], vms, add=False))[1]
            # Neighbours were added fourth and later, the address second.
            added_at = (*range(3, 2 + len(messages)), 1)
            ours = [m for m, at in zip(messages, added_at, strict=True) if at not in not_ours]
            vms[host.netns].socket.request(ours)
        raise


def _requested(route: RouteSocket, messages: Sequence[bytes]) -> list[Refusal]:
    """Refusals; the address goes first: where it is refused, another's route stays."""
    refused = route.request(messages[:2])
    if refused:
        return refused + [Refusal(i, 0, "not tried") for i in range(2, len(messages))]
    return [
        replace(refusal, position=refusal.position + 2) for refusal in route.request(messages[2:])
    ]


def remove_hosts(hosts: Sequence[VmHost], vms: Mapping[str, VmNamespace]) -> None:
    """The inverse of :func:`add_hosts`; what is gone already is no failure. Raises RunFailed."""
    refused = [
        (host, refusal)
        for host, messages in _messages(hosts, vms, add=False)
        for refusal in vms[host.netns].socket.request(messages)
        if refusal.number not in GONE
    ]
    for host, refusal in refused:
        _raise_first([refusal], host.removal_lines(), host.netns)


def set_gso(hosts: Sequence[VmHost], vms: Mapping[str, VmNamespace]) -> None:
    """The VMs' largest packet, for connections made from now on. Raises RunFailed."""
    for host in hosts:
        vm = vms[host.netns]
        refused = vm.socket.request([gso_message(host.gso_bytes, vm.ifindex)])
        _raise_first(refused, host.lines(), host.netns)


def _raise_first(refused: Sequence[Refusal], lines: Sequence[str], netns: str) -> None:
    for refusal in refused:
        line = lines[refusal.position]
        raise RunFailed(f"ip refused {line!r} in {netns}: {refusal.reason}")


def _messages(
    hosts: Sequence[VmHost], vms: Mapping[str, VmNamespace], *, add: bool
) -> Iterator[tuple[VmHost, list[bytes]]]:
    """Each VM's requests, in the order of its lines.

    The neighbours are the same for all VMs (but for itself): they are packed once.
    """
    packed = {
        neighbour: neighbour_message(neighbour.ip, neighbour.mac, add=add)
        for host in hosts[:2]
        for neighbour in host.neighbours
    }
    for host in hosts:
        index = vms[host.netns].ifindex
        address = address_message(host.address, add=add, ifindex=index)
        neighbours = [aimed(packed[neighbour], index) for neighbour in host.neighbours]
        if not add:
            yield host, [*neighbours, address]
            continue
        gso = gso_message(host.gso_bytes, index)
        route = prefix_route_message(host.address, host.window_segments, ifindex=index)
        yield host, [gso, address, route, *neighbours]
