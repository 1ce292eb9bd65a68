"""A network plan as bridges, cables, VM namespaces and limits.

Everything is recorded in the cleanup journal before it is made; removal follows
the journal, the same way whether the run ends well, is interrupted, or is
cleaned up after by another.
"""

from __future__ import annotations

import os
import socket
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, contextmanager, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from jobs.linux import inside_network_namespace
from jobs.live.connections import VM_SYSCTLS
from jobs.wire import MTU_BYTES
from testbed.backends.emu import open_vswitch, traffic_control
from testbed.backends.emu.cleanup import remove_network
from testbed.backends.emu.cleanup_journal import (
    CleanupJournal,
    JournalEntry,
    expedited_rcu,
)
from testbed.backends.emu.commands import ip_batch
from testbed.backends.emu.installed_state import missing_limits
from testbed.backends.emu.interrupts import uninterrupted
from testbed.backends.emu.limiter_counters import CounterReader, Limiter
from testbed.backends.emu.netlink import DeviceEvents, RouteSocket
from testbed.backends.emu.open_vswitch import MACHINE, SwitchDaemons
from testbed.backends.emu.part_switches import (
    Part,
    name_taken,
    record_inodes,
    refuse_taken_namespaces,
    start_daemons,
    start_part_again,
)
from testbed.backends.emu.switch_evidence import Forwarder
from testbed.errors import RunFailed
from testbed.plan import limits
from testbed.plan.batch_lines import VM_DEVICE, BatchLine, BatchSection
from testbed.plan.installation import (
    packet_changes,
    tenant_hosts,
    tenant_sysctls,
)
from testbed.plan.network_plan import (
    Bridge,
    NetworkPlan,
    Port,
    TenantPlan,
    TenantVm,
)


@dataclass(frozen=True)
class SwitchConditions:
    """Datapath, version and sockets of the switch, for provenance.

    The kernel's datapath has no sockets.
    """

    datapath: open_vswitch.Datapath
    version: str
    sockets: open_vswitch.SwitchSockets


class EmulatedNetwork:
    """The live network of a plan, as a context manager."""

    builder = "batched"

    def __init__(
        self,
        plan: NetworkPlan,
        journal: CleanupJournal,
        controller_port: int,
        parts: Sequence[Part] = (),
        *,
        ours: bool = True,
    ) -> None:
        """Makes nothing yet.

        ``parts``: the switch's parts; without any the machine's own switch has
        all bridges. ``controller_port``: the port on which the controller also
        listens on the host, for bridges that others make.

        ``ours``: the controller is the testbed's own. Then bridges connect to
        it as they are made, and VMs leave checksums to the switch, if it fills
        them in. With somebody else's controller neither is so: the switch
        fills in no checksum of a packet that passes through a controller. And
        bridges connect when all ports are up, as Mininet's do: some
        controllers miss a port that comes up while they learn of the others.
        """
        self.plan = plan
        self._parts = parts
        self.conditions: SwitchConditions
        self._journal = journal
        self._controller_port = controller_port
        self._datapath = open_vswitch.datapath_type()
        self._tc: traffic_control.TrafficControl | None = None
        # True while traffic without a reservation may borrow.
        self.borrowing = False
        self._ours = ours

    def __enter__(self) -> EmulatedNetwork:
        self.up()
        return self

    def __exit__(self, *_: object) -> None:
        self.down()

    # -- up and down --------------------------------------------------------------------------

    def up(self) -> None:
        """Makes everything, or, on failure or Ctrl-C, nothing.

        Raises MachineCannot if a name is taken (then nothing was made), and
        RunFailed.
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
        """Removes everything, and ends the shells of :attr:`mininet`.

        A second call does nothing.
        """
        with uninterrupted():
            # From the instance's dictionary, where cached_property keeps it:
            # the attribute itself would make a Mininet only to stop it.
            net = self.__dict__.pop("mininet", None)
            try:
                if net is not None:
                    net.stop()
            finally:
                # Also where a shell cannot be ended.
                if self._tc is not None:
                    self._tc.close()
                    self._tc = None
                remove_network(self._journal)

    def _make(self) -> None:
        """Makes devices, then switch and link limits, then the VMs' insides."""
        start_daemons(self.plan, self._parts)
        self._make_devices(self._journal.tag.group)
        vms: dict[str, traffic_control.Side] = {}
        with ExitStack() as on_failure:
            # ``vms`` is empty here, and filled below: limits on links are
            # set before the VMs' namespaces are opened.
            tc = traffic_control.TrafficControl(self._sides(), vms)
            on_failure.callback(tc.close)
            # Making bridges takes longest, as the switch opens a packet
            # socket per port. tc sets the links' limits meanwhile.
            switches = self._switches()
            with (
                open_vswitch.large_buffers(self._journal),
                ThreadPoolExecutor(max_workers=len(switches)) as pool,
            ):
                making = [
                    pool.submit(self._make_bridges, switch, bridges)
                    for switch, bridges in switches
                ]
                # The switch does not delete them: the ports' QoS type
                # (linux-noop) leaves qdiscs to others.
                tc.apply(limits.network_limits(self.plan))
                sockets = [made.result() for made in making]
            self.conditions = self._conditions(sockets)
            names = [slot.netns for slot in self.plan.slots]
            vms |= traffic_control.open_namespaces(
                names, checksum_offload=self.offloads
            )
            if not self._ours:
                for switch, bridges in switches:
                    self._connect_bridges(switch, bridges)
            # Nothing has failed: from here on `down` closes the sockets.
            on_failure.pop_all()
        self._tc = tc

    def _switches(self) -> list[tuple[SwitchDaemons, Sequence[Bridge]]]:
        """Every switch with its bridges."""
        if not self._parts:
            return [(MACHINE, self.plan.bridges)]
        return [(part.switch, part.bridges) for part in self._parts]

    def _ports_of(self, bridges: Iterable[Bridge]) -> list[Port]:
        """The ports of bridges, in their order."""
        ports: list[Port] = []
        for bridge in bridges:
            ports += self.plan.ports_of_bridge[bridge.name]
        return ports

    def _make_bridges(
        self, switch: SwitchDaemons, bridges: Sequence[Bridge]
    ) -> open_vswitch.SwitchSockets:
        self._start_bridges(switch, bridges)
        return self._after_start(switch, bridges)

    def _after_start(
        self, switch: SwitchDaemons, bridges: Sequence[Bridge]
    ) -> open_vswitch.SwitchSockets:
        """Checks ports that a switch has just made, and makes its send socket.

        Returns the switch's sockets.
        """
        ports = self._ports_of(bridges)
        switch.check_ports(ports)
        # A bridge's own device outlives a killed switch. The cleanup finds
        # it by the run's device group.
        group = self._journal.tag.group
        marking = [f"link set dev {b.name} group {group}" for b in bridges]
        ip_batch(marking, switch.netns)
        if not self._has_sockets:
            return open_vswitch.SwitchSockets(None, 0)
        # Of whichever port: a switch has one send socket for all.
        return switch.prime_send_socket(ports[0])

    def _start_bridges(
        self, switch: SwitchDaemons, bridges: Sequence[Bridge]
    ) -> None:
        """Makes bridges in one transaction."""
        arguments = open_vswitch.up_arguments(
            self.plan,
            bridges,
            self._journal.tag.run,
            self._datapath,
            connected=self._ours,
        )
        switch.vsctl(arguments)

    def _connect_bridges(
        self, switch: SwitchDaemons, bridges: Sequence[Bridge]
    ) -> None:
        run_tag = self._journal.tag.run
        switch.vsctl(open_vswitch.connection_arguments(bridges, run_tag))

    def _sides(self) -> list[traffic_control.Side]:
        """Each switch's side of the traffic control: its ports' devices."""
        sides = []
        for switch, bridges in self._switches():
            # Device indices and netlink sockets belong to the namespace in
            # which they are read or opened.
            with switch.inside():
                devices = {
                    name: index for index, name in socket.if_nameindex()
                }
                route = RouteSocket()
            ports = self._ports_of(bridges)
            index_of = {port.name: devices[port.name] for port in ports}
            sides.append(traffic_control.Side(route, index_of))
        return sides

    def _make_devices(self, group: int) -> None:
        """Makes namespaces and veth pairs, and sets the switches' ends up.

        The journal names them before they exist.
        """
        plan = self.plan
        names = [slot.netns for slot in plan.slots]
        entries = [JournalEntry("netns", name) for name in names]
        # Devices in a part's namespace are removed with that namespace.
        if not self._parts:
            entries += [
                JournalEntry("veth", port.name) for port in plan.ports
            ]
            entries += [
                JournalEntry("bridge", b.name) for b in plan.bridges
            ]
        self._journal.add(entries)
        self._make_cables(group)
        record_inodes(self._journal, names)
        # In a part's namespace IPv6 was off before its devices came.
        if not self._parts:
            _silence_ipv6(port.name for port in plan.ports)
        # One request for the whole group: the kernel waits for an RCU grace
        # period at each request.
        setting_up = [f"link set group {group} up"]
        with ThreadPoolExecutor(BATCHES) as pool:
            done = pool.map(
                lambda switch: ip_batch(setting_up, switch.netns),
                self.switches,
            )
            # Reading the results raises the first error.
            list(done)

    def _make_cables(self, group: int) -> None:
        """Makes VM namespaces, then veth pairs, whose ends are in ``group``."""
        netns_of = {}
        for part in self._parts:
            for bridge in part.bridges:
                netns_of[bridge.name] = part.netns
        for lines in up_lines(self.plan, group, netns_of):
            _side_by_side(lines)

    def _refuse_taken_names(self) -> None:
        if not self._parts:
            self._refuse_taken_devices()
        refuse_taken_namespaces(slot.netns for slot in self.plan.slots)

    def _refuse_taken_devices(self) -> None:
        bridges = {str(row[0]) for row in MACHINE.rows("Bridge", ["name"])}
        devices = {name for _, name in socket.if_nameindex()}
        planned: list[Bridge | Port] = [
            *self.plan.bridges,
            *self.plan.ports,
        ]
        for thing in planned:
            if thing.name in bridges:
                raise name_taken(
                    "bridge", thing.name, removal_command="ovs-vsctl del-br"
                )
            if thing.name in devices:
                raise name_taken(
                    "network device",
                    thing.name,
                    removal_command="ip link delete",
                )

    @property
    def offloads(self) -> bool:
        """True if VMs leave checksums and segmentation to the switch."""
        if self._has_sockets and not self._ours:
            return False
        return self.conditions.sockets.offload is not False

    @property
    def _has_sockets(self) -> bool:
        """True for a userspace switch that has ports."""
        return self._datapath != "system" and bool(self.plan.slots)

    def _conditions(
        self, sockets: Sequence[open_vswitch.SwitchSockets]
    ) -> SwitchConditions:
        """The worst conditions of all parts."""
        offload: bool | None = None
        if self._has_sockets:
            # A part of unknown state counts as one without: a checksum that VMs
            # compute themselves is always right.
            offload = all(of_part.offload for of_part in sockets)
        buffer_bytes = min(of_part.send_buffer_bytes for of_part in sockets)
        return SwitchConditions(
            self._datapath,
            open_vswitch.switch_version(),
            open_vswitch.SwitchSockets(offload, buffer_bytes),
        )

    # -- tenants --------------------------------------------------------------------------------

    def configure_tenant(self, tenant: TenantPlan) -> None:
        """Sets limits, then addresses and neighbours: all or nothing.

        Raises RunFailed.
        """
        tenant_limits = limits.tenant_limits(self.plan, tenant)
        self._live_tc().apply((*tenant_limits, *tenant_hosts(tenant)))
        try:
            _set_sysctls(tenant.vms, tenant_sysctls(tenant))
        except OSError as error:
            # Somebody may have deleted a namespace.
            self.remove_tenant(tenant)
            raise RunFailed(
                f"the settings of {tenant.job_id}'s VMs: {error}"
            ) from error

    def remove_tenant(self, tenant: TenantPlan) -> None:
        """The inverse of :meth:`configure_tenant`.

        Limits that are gone already are no failure.
        """
        hosts = [
            section.undo() for section in reversed(tenant_hosts(tenant))
        ]
        self._live_tc().remove(
            (*hosts, *limits.removal_lines(self.plan, tenant))
        )
        _set_present_sysctls(tenant.vms, _default_sysctls(tenant))

    def rerate_tenant(self, old: TenantPlan, new: TenantPlan) -> None:
        """Changes a placed tenant's rates in place.

        Raises RunFailed; then the old ones stand.
        """
        rates = limits.rerate_lines(self.plan, old, new)
        self._live_tc().apply((*rates, *packet_changes(old, new)))
        _change_sysctls(old, new)

    def set_capacities(
        self,
        plan: NetworkPlan,
        tenants: Sequence[tuple[TenantPlan, TenantPlan]],
    ) -> None:
        """Changes links to the capacities of another plan of this network.

        ``tenants``: all of them, before and after. Raises RunFailed; then the
        old capacities stand.
        """
        lines = limits.capacity_lines(
            self.plan, plan, tenants, borrowing=self.borrowing
        )
        self._live_tc().apply(lines)
        self.plan = plan

    def begin_reroot(self, old: TenantPlan, new: TenantPlan) -> None:
        """Sets the limits of a tenant's new tree beside those of its old one.

        Raises RunFailed; then nothing has changed.
        """
        added, _ = limits.reroot_lines(self.plan, old, new)
        self._live_tc().apply(added)

    def end_reroot(self, old: TenantPlan, new: TenantPlan) -> None:
        """Removes the limits that only the old tree had.

        Limits that are gone already are no failure.
        """
        _, removed = limits.reroot_lines(self.plan, old, new)
        self._live_tc().remove(removed)
        _change_sysctls(old, new)

    def allow_borrowing(self) -> None:
        """Lets traffic without a reservation borrow what is left of a link.

        May be repeated.
        """
        if not self.borrowing:
            self._live_tc().apply(limits.borrowing_lines(self.plan))
            self.borrowing = True

    def forbid_borrowing(self) -> None:
        """The inverse of :meth:`allow_borrowing`."""
        if self.borrowing:
            sections = limits.borrowing_lines(self.plan)
            self._live_tc().apply([section.undo() for section in sections])
            self.borrowing = False

    # -- the switch while it is up ---------------------------------------------------------------

    def check_switch(self, log_dir: Path) -> None:
        """Raises RunFailed naming a part that has died.

        The part's logs are kept in ``log_dir``. The machine's own switch is not
        looked at: its monitor starts it again.
        """
        for part in self._parts:
            if not part.switch.running:
                part.keep_logs(log_dir)
                message = f"switch part {part.netns} has died"
                raise RunFailed(message, f"see its logs in {log_dir}")

    @property
    def switches(self) -> tuple[SwitchDaemons, ...]:
        """Every Open vSwitch that has bridges of the network."""
        return tuple(switch for switch, _ in self._switches())

    def bridges_of(self, switch: SwitchDaemons) -> Sequence[Bridge]:
        """The bridges of a switch."""
        return dict(self._switches())[switch]

    def start_switch(
        self, switch: SwitchDaemons, tenants: Sequence[TenantPlan]
    ) -> int:
        """Starts a switch that has ended, with its bridges.

        Sets the limits again that the start has wiped from its ports, and
        returns the number of their lines. The controller installs the flows
        when the bridges connect. Raises MachineCannot, RunFailed.
        """
        bridges = self.bridges_of(switch)
        # One, or none for the machine's own switch.
        parts = [part for part in self._parts if part.switch is switch]
        with open_vswitch.large_buffers(self._journal):
            for part in parts:
                # Bridges and ports come up in many passes of the switch,
                # which a pace would draw out.
                part.end_pace()
                start_part_again(self.plan, part)
            if not parts:
                open_vswitch.start_again()
            self._after_start(switch, bridges)
        for part in parts:
            part.begin_pace()
        ports = [port.name for port in self._ports_of(bridges)]
        lines = self._limit_lines(tenants)
        missing = missing_limits(lines, switch.netns, ports)
        self._live_tc().apply([BatchSection(None, missing)])
        return len(missing)

    def _limit_lines(
        self, tenants: Sequence[TenantPlan]
    ) -> list[BatchLine]:
        """All lines of limits on switch ports, while ``tenants`` are placed."""
        sections = [*limits.network_limits(self.plan)]
        if self.borrowing:
            sections += limits.borrowing_lines(self.plan)
        for tenant in tenants:
            # The first section is that of the switches' ports; the others
            # are VMs' caps.
            sections.append(limits.tenant_limits(self.plan, tenant)[0])
        return [line for section in sections for line in section.lines]

    def lost_cables(self) -> frozenset[str]:
        """Cables without a carrier, by the ports at their lower ends."""
        ports = [slot.port for slot in self.plan.slots]
        ports += [link.lower for link in self.plan.links]
        lost = []
        for switch, bridges in self._switches():
            names = {bridge.name for bridge in bridges}
            with switch.inside():
                for port in ports:
                    if port.bridge not in names:
                        continue
                    if not traffic_control.has_carrier(port.name):
                        lost.append(port.name)
        return frozenset(lost)

    @contextmanager
    def port_events(self) -> Iterator[Sequence[DeviceEvents]]:
        """Events of devices in each switch's namespace, during the block."""
        with ExitStack() as stack:
            sources = []
            for switch in self.switches:
                # A netlink socket reports on the namespace in which it was
                # opened.
                with switch.inside():
                    events = stack.enter_context(closing(DeviceEvents()))
                sources.append(events)
            yield sources

    def set_ports(self, names: Iterable[str], *, up: bool) -> None:
        """Takes ports of bridges up or down; their limits stay.

        Raises RunFailed.
        """
        bridge_of = {port.name: port.bridge for port in self.plan.ports}
        switches = self.switch_of_bridge
        state = "up" if up else "down"
        for name in names:
            netns = switches[bridge_of[name]].netns
            ip_batch([f"link set dev {name} {state}"], netns)

    def unconnected_bridges(self) -> list[str]:
        """Bridges without a connected controller."""
        connected: set[str] = set()
        for switch in self.switches:
            connected.update(switch.controlled())
        names = [bridge.name for bridge in self.plan.bridges]
        return [name for name in names if name not in connected]

    @property
    def switch_of_bridge(self) -> dict[str, SwitchDaemons]:
        """The Open vSwitch of each bridge, by the bridge's name."""
        switches = {}
        for switch, bridges in self._switches():
            for bridge in bridges:
                switches[bridge.name] = switch
        return switches

    @cached_property
    def mininet(self) -> Any:
        """The network, which is up, as one Mininet object.

        Its hosts are the plan's VM slots, its switches the plan's bridges. Made
        on first use, and stopped with the network. Raises ImportError without
        Mininet.
        """
        from testbed.backends.emu.mininet_network import mininet_network

        return mininet_network(
            self.plan, self.switch_of_bridge, self._controller_port
        )

    def begin_pace(self) -> None:
        """Paces the passes of the switch's parts.

        Called once all bridges are connected to the controller: not sooner,
        as bridges and ports are made in many passes.
        """
        for part in self._parts:
            part.begin_pace()

    @property
    def switch_pids(self) -> list[int | None]:
        """Each part's forwarding process, None where it does not run."""
        return [switch.pid for switch in self.switches]

    @property
    def forwarders(self) -> list[Forwarder]:
        """Each running part's process that forwards packets, with its bridges."""
        forwarders = []
        for switch, bridges in self._switches():
            # Read once: the process may end at any time.
            pid = switch.pid
            if pid is not None:
                names = frozenset(bridge.name for bridge in bridges)
                forwarders.append(Forwarder(pid, names))
        return forwarders

    @property
    def forwards_in_kernel(self) -> bool:
        """True if packets are forwarded by the kernel's datapath."""
        return self._datapath == "system"

    # -- counters -------------------------------------------------------------------------------

    def counter_reader(
        self, limiters: Sequence[Limiter], *, one_by_one: bool = False
    ) -> CounterReader:
        """A reader of these limiters' counters while the network is up."""
        tc = self._live_tc()
        return CounterReader(
            tc.sides, tc.vms, limiters, one_by_one=one_by_one
        )

    def vm_sent_bytes(self, tenant: TenantPlan) -> list[int]:
        """Bytes sent by each of a tenant's VMs since its limits were set."""
        caps = [Limiter(vm.slot.netns, VM_DEVICE) for vm in tenant.vms]
        sent_bytes = self.counter_reader(caps).read()["sent_bytes"]
        # -1 stands for a cap that is not there.
        return [max(0, int(sent)) for sent in sent_bytes]

    def unshaped_packets(self) -> dict[str, int]:
        """Numbers of packets that no HTB class limited, by device.

        A run is valid only if there are none.
        """
        tc = self._live_tc()
        packets: dict[str, int] = {}
        for side in tc.sides:
            packets |= side.unshaped()
        # All VMs' devices have the same name.
        for name, vm in tc.vms.items():
            for device, n in vm.unshaped().items():
                packets[f"{device} in {name}"] = n
        return packets

    def _live_tc(self) -> traffic_control.TrafficControl:
        """Raises RuntimeError while the network is not up."""
        if self._tc is None:
            raise RuntimeError("the network is not up")
        return self._tc


def _default_sysctls(tenant: TenantPlan) -> list[tuple[str, str]]:
    """The ordinary values of the settings that a tenant changes."""
    changed = dict(tenant_sysctls(tenant))
    return [setting for setting in VM_SYSCTLS if setting[0] in changed]


def _change_sysctls(old: TenantPlan, new: TenantPlan) -> None:
    """Changes the settings of a placed tenant's VMs."""
    settings = tenant_sysctls(new)
    if settings != tenant_sysctls(old):
        # First the defaults: what only the old plan set does not stay.
        _set_present_sysctls(new.vms, (*_default_sysctls(old), *settings))


def _set_present_sysctls(
    vms: Iterable[TenantVm], sysctls: Sequence[tuple[str, str]]
) -> None:
    """Changes settings of VMs; a namespace that somebody has deleted has none."""
    for vm in vms:
        with suppress(FileNotFoundError):
            _set_sysctls([vm], sysctls)


def _set_sysctls(
    vms: Iterable[TenantVm], sysctls: Sequence[tuple[str, str]]
) -> None:
    if not sysctls:
        return
    for vm in vms:
        netns = traffic_control.NETNS_DIR / vm.slot.netns
        with inside_network_namespace(netns):
            traffic_control.set_sysctls(*sysctls)


def _silence_ipv6(devices: Iterable[str]) -> None:
    """Disables IPv6 on switch ports.

    Its neighbour discovery would be traffic that no tenant sends.
    """
    for device in devices:
        path = Path(f"/proc/sys/net/ipv6/conf/{device}/disable_ipv6")
        # A kernel without IPv6 has no such file.
        with suppress(FileNotFoundError):
            path.write_text("1", "ascii")


# --------------------------------------------------------------------------------------- links


# The MTU of the switches' ends. The userspace datapath (Open vSwitch 3.1) hands a
# segmented packet on with a segment size of MTU - 54: it forgets the 12 bytes
# of TCP's timestamps. With 1500 a packet of two full segments would count as
# three, and every limit would let 2 % too little through.
SWITCH_MTU_BYTES = MTU_BYTES + 2


def up_lines(
    network: NetworkPlan,
    group: int,
    netns_of: Mapping[str, str],
) -> tuple[list[str], list[str]]:
    """``ip`` lines for namespaces, and for veth pairs, which stay down.

    ``netns_of``: the namespace of a bridge's ports, for bridges that are not on
    the host.
    """

    def end(port: Port) -> str:
        text = f"name {port.name} mtu {SWITCH_MTU_BYTES} group {group}"
        if port.bridge in netns_of:
            text += f" netns {netns_of[port.bridge]}"
        return text

    namespaces = [f"netns add {slot.netns}" for slot in network.slots]
    pairs = [
        f"link add {end(slot.port)} type veth"
        f" peer name {VM_DEVICE} address {slot.mac} mtu {MTU_BYTES}"
        f" group {group} netns {slot.netns}"
        for slot in network.slots
    ]
    for link in network.links:
        pairs.append(
            f"link add {end(link.lower)} type veth peer {end(link.upper)}"
        )
    return namespaces, pairs


BATCHES = os.cpu_count() or 1
WORTH_SPLITTING = 64


def _side_by_side(lines: Sequence[str]) -> None:
    """Runs ``ip`` lines in any order, in a batch for each processor.

    A single batch makes one device at a time, and leaves the other processors
    idle.
    """
    # On a small network several batches cost more than they save.
    n_batches = BATCHES if len(lines) >= WORTH_SPLITTING else 1
    batches = [lines[first::n_batches] for first in range(n_batches)]
    with ThreadPoolExecutor(n_batches) as pool:
        # Reading the results raises the first error.
        list(pool.map(ip_batch, batches))
