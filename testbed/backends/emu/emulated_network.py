"""A network plan as a real network, and its removal: bridges, cables, VM namespaces, limits.

Everything is recorded in the cleanup journal before it is made; removal follows the journal, the
same way whether the run ends well, is interrupted, or is cleaned up after by another.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from itertools import chain
from pathlib import Path
from typing import Any

from jobs.linux import inside_network_namespace
from jobs.live.connections import VM_SYSCTLS
from jobs.wire import MTU_BYTES
from testbed.backends.emu import open_vswitch, traffic_control
from testbed.backends.emu.cleanup import remove_network
from testbed.backends.emu.cleanup_journal import CleanupJournal, Entry, expedited_rcu
from testbed.backends.emu.commands import ip_batch
from testbed.backends.emu.installed_state import missing_limits
from testbed.backends.emu.interrupts import uninterrupted
from testbed.backends.emu.limiter_counters import CounterReader, Limiter
from testbed.backends.emu.netlink import DeviceEvents, RouteSocket
from testbed.backends.emu.open_vswitch import MACHINE, Switch
from testbed.backends.emu.part_switches import Part, start_daemons, taken
from testbed.backends.emu.part_switches import start_again as start_part_again
from testbed.errors import RunFailed
from testbed.plan import limits
from testbed.plan.batch_lines import VM_DEVICE, Section
from testbed.plan.installation import packet_changes, tenant_hosts, tenant_sysctls
from testbed.plan.network_plan import Bridge, NetworkPlan, Port, TenantPlan


@dataclass(frozen=True)
class SwitchConditions:
    """The switch, for provenance. The kernel's datapath has no sockets."""

    datapath: open_vswitch.Datapath
    version: str
    sockets: open_vswitch.SwitchSockets


class Network:
    """The live network of a plan. A context manager: up on entry, down on exit."""

    builder = "batched"

    def __init__(
        self,
        plan: NetworkPlan,
        journal: CleanupJournal,
        controller_port: int,
        parts: Sequence[Part] = (),
        *,
        offload: bool = True,
    ) -> None:
        """``parts``: the namespaces of the switch's parts; without any the machine's does it all.

        ``controller_port``: where the controller listens on the host; a part has a socket for it.
        ``offload``: VMs leave checksums to the switch where that fills them in. It does not in a
        packet that passes through a controller.
        """
        self.plan = plan
        self._parts = parts
        self.conditions: SwitchConditions
        self._journal = journal
        self._controller_port = controller_port
        self._datapath = open_vswitch.datapath_type()
        self._kernel: traffic_control.TrafficControl | None = None
        self._open = False
        self._may_offload = offload

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
        if not self._parts:
            open_vswitch.ensure_running(self._journal)
        self._refuse_taken_names()
        try:
            with expedited_rcu(self._journal):
                self._make()
        except BaseException:
            self.down()
            raise

    def down(self) -> None:
        """Remove everything, and end the shells of :attr:`mininet`. A second call does nothing."""
        with uninterrupted():
            if (net := self.__dict__.pop("mininet", None)) is not None:
                net.stop()
            if self._kernel is not None:
                self._kernel.close()
                self._kernel = None
            remove_network(self._journal)

    def _make(self) -> None:
        """Devices, then the switch and the link limits side by side, then the VMs' insides."""
        start_daemons(self.plan, self._parts)
        self._make_devices(self._journal.tag.group)
        vms: dict[str, traffic_control.Side] = {}
        with ExitStack() as on_failure:
            kernel = traffic_control.TrafficControl(self._sides(), vms)
            on_failure.callback(kernel.close)
            # The switch takes longest, a packet socket a port: tc sets the link limits meanwhile.
            switches = self._switches()
            with (
                open_vswitch.large_buffers(self._journal),
                ThreadPoolExecutor(max_workers=len(switches)) as beside,
            ):
                switching = [beside.submit(self._make_bridges, *each) for each in switches]
                kernel.apply(limits.network_limits(self.plan))
                found = [each.result() for each in switching]
            self.conditions = self._conditions(found)
            names = [slot.netns for slot in self.plan.slots]
            vms |= traffic_control.open_namespaces(
                names, VM_SYSCTLS, checksum_offload=self.offloads
            )
            on_failure.pop_all()
        self._kernel = kernel

    def _switches(self) -> list[tuple[Switch, Sequence[Bridge], int]]:
        """Every switch with its bridges and where the controller listens for them."""
        if not self._parts:
            return [(MACHINE, self.plan.bridges, self._controller_port)]
        return [(x.switch, x.bridges, x.listener.getsockname()[1]) for x in self._parts]

    def _make_bridges(
        self, switch: Switch, bridges: Sequence[Bridge], port: int
    ) -> open_vswitch.SwitchSockets:
        self._start_bridges(switch, bridges, port)
        return self._after_start(switch, bridges)

    def _after_start(self, switch: Switch, bridges: Sequence[Bridge]) -> open_vswitch.SwitchSockets:
        tag, of_bridge = self._journal.tag, self.plan.ports_of_bridge
        switch.check_ports([port for bridge in bridges for port in of_bridge[bridge.name]])
        # The bridges' own devices outlive a switch that dies: they are marked as well.
        marking = [f"link set dev {bridge.name} group {tag.group}" for bridge in bridges]
        ip_batch(marking, switch.netns)
        if not self._has_sockets:
            return open_vswitch.SwitchSockets(None, 0)
        return switch.prime_send_socket(of_bridge[bridges[0].name][0])

    def _start_bridges(self, switch: Switch, bridges: Sequence[Bridge], port: int) -> None:
        """One transaction. ``port``: where the controller listens for them."""
        run = self._journal.tag.run
        switch.vsctl(open_vswitch.up_arguments(self.plan, bridges, run, self._datapath, port))

    def _sides(self) -> list[traffic_control.Side]:
        """Each switch's devices; a part's namespace has no others but loopback."""
        sides = []
        for switch, bridges, _ in self._switches():
            with switch.inside():
                index_of = {name: index for index, name in socket.if_nameindex()}
                route = RouteSocket()
            ports = chain.from_iterable(self.plan.ports_of_bridge[each.name] for each in bridges)
            sides.append(traffic_control.Side(route, {p.name: index_of[p.name] for p in ports}))
        return sides

    def _make_devices(self, group: int) -> None:
        """Namespaces and veth pairs, recorded before they are made, and up."""
        plan = self.plan
        # What is in a part's namespace goes with it.
        on_host = [] if self._parts else [
            *(Entry("veth", port.name) for port in plan.ports),
            *(Entry("bridge", bridge.name) for bridge in plan.bridges),
        ]  # fmt: skip
        self._journal.add([*(Entry("netns", slot.netns) for slot in plan.slots), *on_host])
        self._make_cables(group)
        inodes = {
            slot.netns: (traffic_control.NETNS_DIR / slot.netns).stat().st_ino
            for slot in plan.slots
        }
        self._journal.add([Entry("netns", name, inode) for name, inode in inodes.items()])
        if not self._parts:
            _silence_ipv6(port.name for port in plan.ports)
        with ThreadPoolExecutor(BATCHES) as pool:
            up = [f"link set group {group} up"]
            list(pool.map(lambda each: ip_batch(up, each[0].netns), self._switches()))

    def _make_cables(self, group: int) -> None:
        """VM namespaces, then veth pairs in a device group, of a switch in parts as of a whole."""
        netns_of = {bridge.name: part.netns for part in self._parts for bridge in part.bridges}
        for lines in up_lines(self.plan, group, netns_of):
            _side_by_side(lines)

    def _refuse_taken_names(self) -> None:
        if not self._parts:
            self._refuse_taken_devices()
        for slot in self.plan.slots:
            if (traffic_control.NETNS_DIR / slot.netns).exists():
                raise taken("network namespace", slot.netns, "ip netns delete")

    def _refuse_taken_devices(self) -> None:
        bridges = {str(row[0]) for row in MACHINE.rows("Bridge", ["name"])}
        devices = {name for _, name in socket.if_nameindex()}
        bridge_names = [bridge.name for bridge in self.plan.bridges]
        for name in (*bridge_names, *(port.name for port in self.plan.ports)):
            if name in bridges:
                raise taken("bridge", name, "ovs-vsctl del-br")
            if name in devices:
                raise taken("network device", name, "ip link delete")

    @property
    def offloads(self) -> bool:
        """VMs leave checksums, and the cutting of segments, to others."""
        if self._has_sockets and not self._may_offload:
            return False
        return self.conditions.sockets.offload is not False

    @property
    def _has_sockets(self) -> bool:
        """The kernel's datapath has none, nor has a switch without a port."""
        return self._datapath != "system" and bool(self.plan.slots)

    def _conditions(self, found: Sequence[open_vswitch.SwitchSockets]) -> SwitchConditions:
        """Of several parts, the worst of all."""
        # One of which it is not known has no offload: VMs fill in checksums themselves then.
        offload = all(each.offload for each in found) if self._has_sockets else None
        sockets = open_vswitch.SwitchSockets(offload, min(each.send_buffer_bytes for each in found))
        return SwitchConditions(self._datapath, open_vswitch.switch_version(), sockets)

    # -- tenants --------------------------------------------------------------------------------

    def configure_tenant(self, tenant: TenantPlan) -> None:
        """Limits, then addresses and neighbours. All or nothing. Raises RunFailed."""
        self._up().apply((*limits.tenant_limits(self.plan, tenant), *tenant_hosts(tenant)))
        _set_sysctls(tenant, tenant_sysctls(tenant))

    def remove_tenant(self, tenant: TenantPlan) -> None:
        """The inverse of :meth:`configure_tenant`; what is gone already is no failure."""
        hosts = [section.undo() for section in reversed(tenant_hosts(tenant))]
        self._up().remove((*hosts, *limits.removal_lines(self.plan, tenant)))
        own = dict(tenant_sysctls(tenant))
        with suppress(FileNotFoundError):
            _set_sysctls(tenant, [setting for setting in VM_SYSCTLS if setting[0] in own])

    def rerate_tenant(self, old: TenantPlan, new: TenantPlan) -> None:
        """Change a placed tenant's rates in place. Raises RunFailed; then the old ones stand."""
        self._up().apply((*limits.rerate_lines(self.plan, old, new), *packet_changes(old, new)))

    def begin_reroot(self, old: TenantPlan, new: TenantPlan) -> None:
        """The limits of a tenant's new tree beside those of its old one. Raises RunFailed; then
        nothing has changed.
        """
        self._up().apply(limits.reroot_lines(self.plan, old, new)[0])

    def end_reroot(self, old: TenantPlan, new: TenantPlan) -> None:
        """Remove the limits that only the old tree had; what is gone already is no failure."""
        self._up().remove(limits.reroot_lines(self.plan, old, new)[1])
        if (settings := tenant_sysctls(new)) != tenant_sysctls(old):
            _set_sysctls(new, settings)

    def allow_borrowing(self) -> None:
        """Let traffic without a reservation borrow all of a link that is left. May be repeated."""
        if not self._open:
            self._up().apply(limits.borrowing_lines(self.plan))
            self._open = True

    def forbid_borrowing(self) -> None:
        """The inverse of :meth:`allow_borrowing`."""
        if self._open:
            self._up().apply([section.undo() for section in limits.borrowing_lines(self.plan)])
            self._open = False

    # -- the switch while it is up ---------------------------------------------------------------

    def check_switch(self, log_dir: Path) -> None:
        """Raises RunFailed naming a part that has died, with its logs kept in ``log_dir``; the
        machine's own is started again.
        """
        for part in self._parts:
            if not part.switch.running:
                part.keep_logs(log_dir)
                raise RunFailed(f"switch part {part.netns} has died", f"see its logs in {log_dir}")

    @property
    def switches(self) -> tuple[Switch, ...]:
        """Every Open vSwitch that has bridges of the network."""
        return tuple(switch for switch, *_ in self._switches())

    def bridges_of(self, switch: Switch) -> Sequence[Bridge]:
        """The bridges that are in a switch."""
        return next(bridges for each, bridges, _ in self._switches() if each is switch)

    def start_switch(self, switch: Switch, tenants: Sequence[TenantPlan]) -> int:
        """Start a switch that has ended, with its bridges; whatever limits of ports it has wiped
        are set again, all others left as they are: how many. Its flows are the controller's to
        bring. Raises MachineCannot, RunFailed.
        """
        parts = [part for part in self._parts if part.switch is switch]
        bridges, journal = self.bridges_of(switch), self._journal
        with open_vswitch.large_buffers(journal):
            for part in parts:
                part.end_pace()
                start_part_again(self.plan, part)
            if not parts:
                open_vswitch.start_again()
            self._after_start(switch, bridges)
        for part in parts:
            part.begin_pace()
        sections = [*limits.network_limits(self.plan)]
        sections += limits.borrowing_lines(self.plan) if self._open else ()
        for tenant in tenants:
            sections.append(limits.tenant_limits(self.plan, tenant)[0])
        of_bridge = self.plan.ports_of_bridge
        ports = [port.name for bridge in bridges for port in of_bridge[bridge.name]]
        lines = (line for section in sections for line in section.lines)
        missing = missing_limits(lines, switch.netns, ports)
        self._up().apply([Section(None, missing)])
        return len(missing)

    def lost_cables(self) -> frozenset[str]:
        """Links and VM slots' cables that carry nothing now, by the ports at their lower ends."""
        slots, links = self.plan.slots, self.plan.links
        ports = [*(slot.port for slot in slots), *(link.lower for link in links)]
        carrier, lost = traffic_control.has_carrier, set[str]()
        for switch, bridges, _ in self._switches():
            here = {bridge.name for bridge in bridges}
            with switch.inside():
                lost |= {p.name for p in ports if p.bridge in here and not carrier(p.name)}
        return frozenset(lost)

    @contextmanager
    def port_events(self) -> Iterator[Sequence[DeviceEvents]]:
        """Whatever happens to devices where each switch is, in the block."""
        with ExitStack() as stack:
            found = []
            for switch in self.switches:
                with switch.inside():
                    found.append(stack.enter_context(closing(DeviceEvents())))
            yield found

    def set_ports(self, names: Iterable[str], *, up: bool) -> None:
        """Take ports of bridges up or down; their limits stay. Raises RunFailed."""
        bridge_of = {port.name: port.bridge for port in self.plan.ports}
        switches, state = self.switch_of_bridge, "up" if up else "down"
        for name in names:
            ip_batch([f"link set dev {name} {state}"], switches[bridge_of[name]].netns)

    @property
    def borrowing(self) -> bool:
        """True while traffic without a reservation may borrow."""
        return self._open

    def unconnected_bridges(self) -> list[str]:
        """Bridges that no controller is connected to."""
        found = {name for switch, *_ in self._switches() for name in switch.controlled()}
        return [bridge.name for bridge in self.plan.bridges if bridge.name not in found]

    @property
    def switch_of_bridge(self) -> dict[str, Switch]:
        """Bridge -> the Open vSwitch that it is in."""
        return {bridge.name: each for each, bridges, _ in self._switches() for bridge in bridges}

    @cached_property
    def mininet(self) -> Any:
        """The network, which is up, as one Mininet object for all who are in this process.

        Its hosts hold the plan's own VM slots, its switches the plan's bridges. Made when it is
        first asked for; gone with the network. ImportError without Mininet.
        """
        from testbed.backends.emu.mininet_network import mininet_network

        return mininet_network(self.plan, self.switch_of_bridge, self._controller_port)

    def begin_pace(self) -> None:
        """From now on the passes of a switch in parts are paced: all bridges are connected."""
        for part in self._parts:
            part.begin_pace()

    @property
    def switch_pids(self) -> list[int | None]:
        """The process that forwards packets, of each part; None where it does not run."""
        return [switch.pid for switch, *_ in self._switches()]

    # -- counters -------------------------------------------------------------------------------

    def counter_reader(self, limiters: Sequence[Limiter]) -> CounterReader:
        """For the counters of these limiters, in this order, while the network is up."""
        kernel = self._up()
        return CounterReader(kernel.sides, kernel.vms, limiters)

    def vm_sent_bytes(self, tenant: TenantPlan) -> list[int]:
        """Bytes that each of a tenant's VMs has sent since its tenant came in."""
        caps = [Limiter(vm.slot.netns, VM_DEVICE) for vm in tenant.vms]
        return [max(0, int(sent)) for sent in self.counter_reader(caps).read()["sent_bytes"]]

    def unshaped_packets(self) -> dict[str, int]:
        """Device -> packets that left past every limit; empty, or the run is not valid."""
        kernel = self._up()
        found = {device: n for side in kernel.sides for device, n in side.unshaped().items()}
        for name, vm in kernel.vms.items():
            found |= {f"{device} in {name}": n for device, n in vm.unshaped().items()}
        return found

    def _up(self) -> traffic_control.TrafficControl:
        if self._kernel is None:
            raise RuntimeError("the network is not up")
        return self._kernel


def _set_sysctls(tenant: TenantPlan, sysctls: Sequence[tuple[str, str]]) -> None:
    for vm in tenant.vms if sysctls else ():
        with inside_network_namespace(traffic_control.NETNS_DIR / vm.slot.netns):
            traffic_control.set_sysctls(*sysctls)


def _silence_ipv6(devices: Iterable[str]) -> None:
    """No neighbour discovery on switch ports: it would be traffic that no tenant sends."""
    for device in devices:
        with suppress(FileNotFoundError):
            Path(f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6").write_text("1", "ascii")


# --------------------------------------------------------------------------------------- links


# On the switches' ends. The userspace datapath (Open vSwitch 3.1) hands a segmented packet on with
# a segment size of MTU - 54: it forgets the 12 bytes of TCP's timestamps. With 1500 a packet of
# two full segments would count as three, and every limit would let 2 % too little through.
SWITCH_MTU_BYTES = MTU_BYTES + 2


def up_lines(
    network: NetworkPlan, group: int, netns_of: Mapping[str, str]
) -> tuple[list[str], list[str]]:
    """Make every namespace, then every veth pair, still down.

    ``netns_of``: bridge -> the namespace of its ports, for those that are not on the host.
    """

    def end(port: Port) -> str:
        inside = f" netns {netns_of[port.bridge]}" if port.bridge in netns_of else ""
        return f"name {port.name} mtu {SWITCH_MTU_BYTES} group {group}{inside}"

    pairs = [
        f"link add {end(slot.port)} type veth"
        f" peer name {VM_DEVICE} address {slot.mac} mtu {MTU_BYTES} group {group}"
        f" netns {slot.netns}"
        for slot in network.slots
    ]
    pairs += [f"link add {end(k.lower)} type veth peer {end(k.upper)}" for k in network.links]
    return [f"netns add {slot.netns}" for slot in network.slots], pairs


BATCHES = os.cpu_count() or 1
WORTH_SPLITTING = 64


def _side_by_side(lines: Sequence[str]) -> None:
    """Lines in any order, some on each processor: a namespace or a pair waits for the kernel."""
    batches = BATCHES if len(lines) >= WORTH_SPLITTING else 1
    with ThreadPoolExecutor(batches) as pool:
        list(pool.map(ip_batch, (lines[each::batches] for each in range(batches))))
