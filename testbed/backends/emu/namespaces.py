"""The VMs' network namespaces from inside: settings and the routing socket."""

from __future__ import annotations

import array
import fcntl
import socket
import struct
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

from jobs.linux import inside_network_namespace
from testbed.backends.emu.netlink import Refusal, RouteSocket, packed
from testbed.errors import RunFailed
from testbed.plan.batch_lines import VM_DEVICE, BatchLine, LinkUp, Section

NETNS_DIR = Path("/run/netns")
# VMs speak IPv4 only; neighbour discovery would be traffic that no tenant sends.
BASE_SYSCTLS = (
    ("net.ipv6.conf.all.disable_ipv6", "1"),
    ("net.ipv6.conf.default.disable_ipv6", "1"),
)
SIOCETHTOOL = 0x8946
ETHTOOL_STXCSUM = 0x17


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
                index_of = {device: index for index, device in socket.if_nameindex()}
                opened[name] = vm = VmNamespace(name, RouteSocket(), index_of[VM_DEVICE])
            up = Section(name, tuple(BatchLine("change", LinkUp(d)) for d in ("lo", VM_DEVICE)))
            messages = [packed(x.verb, x.item, index_of[x.item.dev]) for x in up.lines]
            raise_first(up, vm.socket.request(messages))
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


def raise_first(section: Section, refused: Sequence[Refusal]) -> None:
    """Raise RunFailed for the first refusal, if there is one, with the text of its line."""
    for refusal in refused:
        line = section.lines[refusal.position]
        where = f" in {section.netns}" if section.netns else ""
        raise RunFailed(f"{line.tool} refused {line.text()!r}{where}: {refusal.reason}")
