"""A network plan as a real network, and its removal: bridges, cables, VM namespaces, limits.

Everything is recorded in the cleanup journal before it is made; removal follows the journal, the
same way whether the run ends well, is interrupted, or is cleaned up after by another.
"""

from __future__ import annotations

import socket
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from jobs.wire import MTU_BYTES
from testbed.backends.emu import cleanup_journal
from testbed.backends.emu.cleanup import remove_network, uninterrupted
from testbed.backends.emu.cleanup_journal import expedited_rcu
from testbed.backends.emu.commands import ip_batch
from testbed.backends.emu.namespaces import (
    NETNS_DIR,
    VmNamespace,
    add_hosts,
    open_namespaces,
    remove_hosts,
    set_gso,
)
from testbed.backends.emu.netlink import RouteSocket
from testbed.backends.emu.open_vswitch import (
    Datapath,
    check_ports,
    datapath_type,
    ensure_running,
    larger_receive_buffers,
    prime_send_socket,
    rows,
    up_arguments,
    vsctl,
)
from testbed.backends.emu.traffic_control import (
    Counters,
    TrafficControl,
    by_class,
    by_device,
    unshaped,
)
from testbed.errors import MachineCannot
from testbed.plan.installation import VM_DEVICE, tenant_hosts
from testbed.plan.limits import (
    Mode,
    borrowing_lines,
    network_limits,
    no_borrowing_lines,
    removal_lines,
    rerate_lines,
    tenant_limits,
)
from testbed.plan.network_plan import NetworkPlan, Slot, TenantPlan


@dataclass(frozen=True)
class SwitchConditions:
    """The switch, for provenance. ``offload`` None on the kernel's datapath."""

    datapath: Datapath
    version: str
    offload: bool | None
    send_buffer_bytes: int


@dataclass(frozen=True)
class _Handles:
    """Sockets and devices of a network that is up. ``directed_of``: index -> directed link."""

    host: RouteSocket
    devices: dict[str, int]
    directed_of: dict[int, int]
    vms: dict[str, VmNamespace]
    limits: TrafficControl

    def close(self) -> None:
        self.host.close()
        for vm in self.vms.values():
            vm.socket.close()


class Network:
    """The live network of a plan. A context manager: up on entry, down on exit."""

    def __init__(
        self,
        plan: NetworkPlan,
        book: cleanup_journal.CleanupJournal,
        controller_port: int,
        *,
        vm_sysctls: Sequence[tuple[str, str]] = (),
        datapath: Datapath | None = None,
    ) -> None:
        self.plan = plan
        self.conditions: SwitchConditions | None = None
        self._journal = book
        self._controller_port = controller_port
        self._vm_sysctls = tuple(vm_sysctls)
        self._datapath = datapath or datapath_type()
        self._handles: _Handles | None = None
        self._open = False

    def __enter__(self) -> Network:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    # -- up and down --------------------------------------------------------------------------

    def up(self) -> None:
        """Make everything. On failure, or Ctrl-C, what was made is removed again.

        Raises MachineCannot if a name is taken (then nothing was made), RunFailed.
        """
        ensure_running(self._journal)
        self._refuse_taken_names()
        try:
            with expedited_rcu(self._journal):
                self._make()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Remove everything. A second call does nothing."""
        with uninterrupted():
            if self._handles is not None:
                self._handles.close()
                self._handles = None
            remove_network(self._journal)

    def _make(self) -> None:
        """Devices, then the switch and the link limits side by side, then the VMs' insides."""
        self._make_devices()
        with ExitStack() as on_failure:
            host = RouteSocket()
            on_failure.callback(host.close)
            devices = self._own_devices()
            arguments = up_arguments(
                self.plan, self._journal.tag.run, self._datapath, self._controller_port
            )
            # The switch takes longest, a packet socket a port: tc sets the link limits meanwhile.
            buffers = larger_receive_buffers(self._journal)
            with buffers, ThreadPoolExecutor(max_workers=1) as beside:
                switching = beside.submit(vsctl, arguments)
                TrafficControl(host, devices, {}).apply(network_limits(self.plan))
                switching.result()
            check_ports(self.plan)
            # The bridges' own devices outlive a switch that dies: they are marked as well.
            ip_batch(bridge_lines(self.plan, self._journal.tag.group))
            self.conditions = self._inspect_switch()
            names = [slot.netns for slot in self.plan.slots]
            offload = self.conditions.offload is not False
            vms = open_namespaces(names, self._vm_sysctls, checksum_offload=offload)
            on_failure.pop_all()
        sending = [self.plan.sending_port(d).name for d in range(2 * len(self.plan.links))]
        directed_of = {devices[name]: directed for directed, name in enumerate(sending)}
        limits = TrafficControl(host, devices, vms)
        self._handles = _Handles(host, devices, directed_of, vms, limits)

    def _make_devices(self) -> None:
        """Namespaces and veth pairs, recorded before they are made, and up."""
        group = self._journal.tag.group
        self._record()
        ip_batch(up_lines(self.plan, group))
        self._note_inodes()
        _silence_ipv6(device_names(self.plan))
        ip_batch(start_lines(group))

    def _own_devices(self) -> dict[str, int]:
        index_of = {name: index for index, name in socket.if_nameindex()}
        return {name: index_of[name] for name in device_names(self.plan)}

    def _refuse_taken_names(self) -> None:
        taken = {str(row[0]): "ovs-vsctl del-br" for row in rows("Bridge", ["name"])}
        devices = {name for _, name in socket.if_nameindex()}
        wanted_devices = [b.name for b in self.plan.bridges] + device_names(self.plan)
        for name in wanted_devices:
            if name in taken or name in devices:
                what = "bridge" if name in taken else "network device"
                hint = taken.get(name, "ip link delete")
                raise _taken(what, name, f"sudo {hint} {name}")
        for slot in self.plan.slots:
            if (NETNS_DIR / slot.netns).exists():
                raise _taken("network namespace", slot.netns, f"sudo ip netns delete {slot.netns}")

    def _record(self) -> None:
        self._journal.add([
            *(cleanup_journal.Netns(slot.netns) for slot in self.plan.slots),
            *(cleanup_journal.Veth(name) for name in device_names(self.plan)),
            *(cleanup_journal.Bridge(bridge.name) for bridge in self.plan.bridges),
        ])  # fmt: skip

    def _note_inodes(self) -> None:
        self._journal.add([
            cleanup_journal.Netns(slot.netns, (NETNS_DIR / slot.netns).stat().st_ino)
            for slot in self.plan.slots
        ])  # fmt: skip

    def _inspect_switch(self) -> SwitchConditions:
        version = str(rows("Open_vSwitch", ["ovs_version"])[0][0])
        if self._datapath == "system" or not self.plan.slots:
            return SwitchConditions(self._datapath, version, None, 0)
        port = self.plan.slots[0].port
        sockets = prime_send_socket(port.bridge, port.number, self._journal)
        return SwitchConditions(
            self._datapath, version, bool(sockets.offload), sockets.send_buffer_bytes
        )

    # -- tenants --------------------------------------------------------------------------------

    def configure_tenant(self, tenant: TenantPlan, mode: Mode = "hard") -> None:
        """Limits, then addresses and neighbours. All or nothing. Raises RunFailed."""
        handles = self._up()
        handles.limits.apply(tenant_limits(self.plan, tenant, mode))
        try:
            add_hosts(tenant_hosts(tenant), handles.vms)
        except BaseException:
            handles.limits.remove(removal_lines(self.plan, tenant, mode))
            raise

    def remove_tenant(self, tenant: TenantPlan, mode: Mode = "hard") -> None:
        """The inverse of :meth:`configure_tenant`; what is gone already is no failure."""
        handles = self._up()
        remove_hosts(tenant_hosts(tenant), handles.vms)
        handles.limits.remove(removal_lines(self.plan, tenant, mode))

    def rerate_tenant(self, old: TenantPlan, new: TenantPlan, mode: Mode = "hard") -> None:
        """Change a placed tenant's rates in place. Raises RunFailed; then the old ones stand."""
        handles = self._up()
        handles.limits.apply(rerate_lines(self.plan, old, new, mode))
        set_gso(tenant_hosts(new), handles.vms)

    def allow_borrowing(self) -> None:
        """Let traffic without a reservation borrow all of a link that is left. May be repeated."""
        if not self._open:
            self._up().limits.apply(borrowing_lines(self.plan))
            self._open = True

    def forbid_borrowing(self) -> None:
        """The inverse of :meth:`allow_borrowing`."""
        if self._open:
            self._up().limits.apply(no_borrowing_lines(self.plan))
            self._open = False

    def netns_path(self, slot: Slot) -> Path:
        """Where a process enters a slot's namespace."""
        return NETNS_DIR / slot.netns

    # -- counters -------------------------------------------------------------------------------

    def link_counters(self) -> dict[int, Counters]:
        """Directed link -> what it has sent, all tenants together."""
        handles = self._up()
        return by_device(handles.host.qdiscs(), handles.directed_of)

    def class_counters(self) -> dict[tuple[int, int], Counters]:
        """(tenant, directed link) -> what that tenant has sent there."""
        handles = self._up()
        return by_class(handles.host.qdiscs(), handles.directed_of)

    def host_counters(self) -> tuple[dict[tuple[int, int], Counters], dict[str, Counters]]:
        """From one dump: :meth:`class_counters`, and everything that has left each host device."""
        handles = self._up()
        qdiscs = list(handles.host.qdiscs())
        name_of = {index: name for name, index in handles.devices.items()}
        return by_class(qdiscs, handles.directed_of), by_device(qdiscs, name_of)

    def vm_counters(self, slot: Slot) -> Counters | None:
        """Counters of a VM's send cap since its tenant came in; None where it has no cap."""
        inside = self._up().vms[slot.netns]
        return by_device(inside.socket.qdiscs(), {inside.ifindex: 0}).get(0)

    def vm_sent_bytes(self, tenant: TenantPlan) -> list[int]:
        """Bytes that each of a tenant's VMs has sent since its tenant came in."""
        found = [self.vm_counters(vm.slot) for vm in tenant.vms]
        return [0 if each is None else each.sent_bytes for each in found]

    def unshaped_packets(self) -> dict[str, int]:
        """Device -> packets that left past every limit; empty, or the run is not valid."""
        handles = self._up()
        name_of = {index: name for name, index in handles.devices.items()}
        found = unshaped(handles.host.qdiscs(), name_of)
        for name, vm in handles.vms.items():
            found |= unshaped(vm.socket.qdiscs(), {vm.ifindex: f"{VM_DEVICE} in {name}"})
        return found

    def _up(self) -> _Handles:
        if self._handles is None:
            raise RuntimeError("the network is not up")
        return self._handles


def _taken(what: str, name: str, command: str) -> MachineCannot:
    return MachineCannot(
        f"{what} {name} exists and is not of this testbed's making",
        f"if nobody needs it: {command}; or give the experiment another prefix",
    )


def _silence_ipv6(devices: Iterable[str]) -> None:
    """No neighbour discovery on switch ports: it would be traffic that no tenant sends."""
    for device in devices:
        path = Path(f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6")
        try:
            path.write_text("1", encoding="ascii")
        except FileNotFoundError:
            return


# --------------------------------------------------------------------------------------- links


# On the switches' ends. The userspace datapath (Open vSwitch 3.1) hands a segmented packet on with
# a segment size of MTU - 54: it forgets the 12 bytes of TCP's timestamps. With 1500 a packet of
# two full segments would count as three, and every limit would let 2 % too little through.
SWITCH_MTU_BYTES = MTU_BYTES + 2


def up_lines(network: NetworkPlan, group: int) -> list[str]:
    """Make every namespace and veth pair, still down."""
    lines = [f"netns add {slot.netns}" for slot in network.slots]
    lines += [
        f"link add name {slot.port.name} mtu {SWITCH_MTU_BYTES} group {group} type veth"
        f" peer name {VM_DEVICE} address {slot.mac} mtu {MTU_BYTES} group {group}"
        f" netns {slot.netns}"
        for slot in network.slots
    ]
    lines += [
        f"link add name {link.lower.name} mtu {SWITCH_MTU_BYTES} group {group} type veth"
        f" peer name {link.upper.name} mtu {SWITCH_MTU_BYTES} group {group}"
        for link in network.links
    ]
    return lines


def start_lines(group: int) -> list[str]:
    """Take all of the group's devices in this namespace up."""
    return [f"link set group {group} up"]


def bridge_lines(network: NetworkPlan, group: int) -> list[str]:
    """Put the bridges' own devices, which the switch has made, into the group."""
    return [f"link set dev {bridge.name} group {group}" for bridge in network.bridges]


def device_names(network: NetworkPlan) -> list[str]:
    """The veth ends that are in the host's namespace."""
    names = [slot.port.name for slot in network.slots]
    return names + [port.name for link in network.links for port in (link.lower, link.upper)]
