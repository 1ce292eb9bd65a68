"""Verification of the standing network: comparison with its plan, and packets.

``tc`` and ``ovs-ofctl`` read limits and flows back; they share no code with the
programs that installed them. Packets show what the network in fact forwards. A
user's own controller has no planned flows to compare: packets alone verify it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import get_args

from controller.flow_rules import desired_flows
from controller.values import DesiredState
from testbed.backends.emu import installed_state, packet_probes
from testbed.backends.emu.installed_state import (
    NO_QUEUE,
    Objects,
    differences,
)
from testbed.errors import RunFailed
from testbed.plan import limits
from testbed.plan.batch_lines import VM_DEVICE
from testbed.plan.network_plan import (
    Slot,
    TenantVm,
    controller_switches,
    controller_tenant,
)
from testbed.plan.path_delay import path_delay
from testbed.standing.network_layout import NetworkLayout, TenantPlans

# The checks in their order, with the objects that each of them counts.
CHECKS = {
    "links": "cables",
    "limits": "tc objects",
    "flows": "OpenFlow rules",
    "reachability": "pings within tenants",
    "isolation": "packets between tenants",
    "anti-spoofing": "packets with a forged source",
}


@dataclass(frozen=True)
class NetworkCheck:
    """The result of a check.

    ``compared``: number of objects compared, or of packets sent. ``note``: the
    reason for which objects are counted and not compared, or empty.
    """

    name: str
    compared: int
    problems: tuple[str, ...]
    note: str = ""

    @property
    def good(self) -> bool:
        return not self.problems


def checks(
    layout: NetworkLayout, plans: TenantPlans
) -> Iterator[NetworkCheck]:
    """Runs all checks, in the order of CHECKS. Raises RunFailed where a tool
    fails.
    """
    ports_up, installed = _ports_and_limits(layout, plans)
    titles = _titles(layout, plans)
    yield _links(layout, ports_up, titles)
    expected = planned_limits(layout, plans)
    problems = _problems(expected, installed, titles)
    yield NetworkCheck("limits", len(expected), problems)
    yield _flows(layout, plans, titles)
    yield from _packets(plans)


def _links(
    layout: NetworkLayout,
    ports_up: set[str],
    titles: Mapping[str, str],
) -> NetworkCheck:
    """Checks that every cable has a carrier.

    A link's cable is seen at both ends, a VM's cable at the switch.
    """
    cables: list[tuple[str, ...]] = []
    for link in layout.plan.links:
        cables.append((link.lower.name, link.upper.name))
    # The VM's end is in its namespace, and need not be read: a cable has a
    # carrier at both ends or at none.
    for slot in layout.plan.slots:
        cables.append((slot.port.name,))
    problems = []
    for ports in cables:
        if not ports_up.issuperset(ports):
            name = ports[0]
            problems.append(f"{name} ({titles[name]}) is down")
    return NetworkCheck("links", len(cables), tuple(problems))


def _ports_and_limits(
    layout: NetworkLayout,
    plans: TenantPlans,
) -> tuple[set[str], Objects]:
    """Names of the devices with a carrier, and every installed limit."""
    ports_up: set[str] = set()
    installed = Objects()
    for netns, ports in _ports_by_namespace(layout).items():
        devices = installed_state.devices_of(netns)
        for name, device in devices.items():
            if "LOWER_UP" in device["flags"]:
                ports_up.add(name)
        # Each query of tc is a process: ports without a queueing discipline, as
        # those of idle slots, have no limits and are left out.
        queued = [
            port
            for port in ports
            if port in devices
            and devices[port].get("qdisc") not in NO_QUEUE
        ]
        installed |= installed_state.installed_limits(netns, queued)
    return ports_up, installed | _limits_in_vms(plans)


def _ports_by_namespace(
    layout: NetworkLayout,
) -> dict[str | None, list[str]]:
    """Names of ports by namespace; None: the machine's own."""
    ports: dict[str | None, list[str]] = {}
    for port in layout.plan.ports:
        _, netns = layout.switches[port.bridge]
        ports.setdefault(netns, []).append(port.name)
    return ports


def _limits_in_vms(plans: TenantPlans) -> Objects:
    slots = [vm.slot for tenant in plans.tenants for vm in tenant.vms]
    installed = Objects()
    # Threads, as each call waits for a process of tc: one per processor.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for objects in pool.map(_limits_in_vm, slots):
            installed |= objects
    return installed


def _limits_in_vm(slot: Slot) -> Objects:
    return installed_state.installed_limits(
        slot.netns, [VM_DEVICE], f"{slot.netns}/"
    )


def planned_limits(layout: NetworkLayout, plans: TenantPlans) -> Objects:
    """Every limit of the plan, by the names that installed limits have."""
    sections = list(limits.network_limits(layout.plan))
    # These lines are installed only while traffic without a reservation is on
    # the network.
    if plans.borrowing:
        sections += limits.borrowing_lines(layout.plan)
    for tenant in plans.tenants:
        sections += limits.tenant_limits(layout.plan, tenant)
    expected = Objects()
    for section in sections:
        prefix = ""
        if section.netns:
            prefix = f"{section.netns}/"
        lines = (line.text() for line in section.lines)
        expected |= installed_state.tc_objects(lines, prefix=prefix)
    return expected


def planned_flows(layout: NetworkLayout, plans: TenantPlans) -> Objects:
    """Every flow of the plan, by the names that installed flows have."""
    network = layout.plan
    tenants = tuple(
        controller_tenant(network, plan)
        for plan in plans.tenants
        # VMs without a network between them have no flows.
        if not plan.unconnected
    )
    state = DesiredState(controller_switches(network), tenants)
    flows = desired_flows(state)
    expected = Objects()
    for bridge in network.bridges:
        lines = (flow.text() for flow in flows[bridge.dpid])
        expected |= installed_state.flow_objects(bridge.name, lines)
    return expected


def _flows(
    layout: NetworkLayout,
    plans: TenantPlans,
    titles: Mapping[str, str],
) -> NetworkCheck:
    """Checks that every flow is as planned, and that there are no others.

    Flows of a user's own controller are counted and not compared.
    """
    installed = Objects()
    failures: list[str] = []
    for bridge, (run_dir, _) in layout.switches.items():
        try:
            installed |= installed_state.installed_flows(bridge, run_dir)
        except RunFailed as error:
            # One switch may be down: the flows of the others are compared.
            failures.append(f"{bridge}: {error.message}")
    if plans.app:
        note = (
            f"those of {plans.app} are not compared: "
            "the packets say what they guarantee"
        )
        return NetworkCheck("flows", len(installed), tuple(failures), note)
    expected = planned_flows(layout, plans)
    problems = _problems(expected, installed, titles)
    return NetworkCheck("flows", len(expected), (*failures, *problems))


def _packets(plans: TenantPlans) -> Iterator[NetworkCheck]:
    """Checks that pings within tenants arrive, and that packets between tenants
    and packets with a forged source do not.
    """
    tenants = []
    for plan in plans.tenants:
        # VMs without a network between them send no probes.
        if not plan.unconnected:
            vms = [_probed_vm(vm, plans.names) for vm in plan.vms]
            tenants.append(vms)
    # All kinds are sent together: packets that must not arrive are waited for
    # until the time limit, and so this is waited for once.
    probes = list(packet_probes.probes(tenants))
    round_trips_s = [
        path_delay(plan).round_trip_s for plan in plans.tenants
    ]
    longest_s = max(round_trips_s, default=0.0)
    faults = packet_probes.faults(probes, longest_s)
    for kind in get_args(packet_probes.Kind):
        sent = 0
        problems = []
        for probe, fault in zip(probes, faults, strict=True):
            if probe.kind != kind:
                continue
            sent += 1
            if fault:
                problems.append(fault)
        yield NetworkCheck(kind, sent, tuple(problems))


def _probed_vm(
    vm: TenantVm,
    names: Mapping[str, str],
) -> packet_probes.Vm:
    slot = vm.slot
    return packet_probes.Vm(
        name=names[slot.port.name],
        netns=slot.netns,
        ip=str(vm.ip),
        mac=slot.mac,
    )


def _titles(
    layout: NetworkLayout,
    plans: TenantPlans,
) -> dict[str, str]:
    """Users' names of bridges, devices and tc classes, by the kernel's names.

    A link's device is called by both ends: ``rack 1 -> core 0``.
    """
    names = plans.names
    titles = dict(names)
    for link in layout.plan.links:
        lower = names[link.lower.bridge]
        upper = names[link.upper.bridge]
        titles[link.lower.name] = f"{lower} -> {upper}"
        titles[link.upper.name] = f"{upper} -> {lower}"
    for slot in layout.plan.slots:
        server = names[slot.port.bridge]
        vm = names.get(slot.port.name, "no VM")
        titles[slot.port.name] = f"{server} -> {vm}"
        titles[f"{slot.netns}/{VM_DEVICE}"] = vm
    for tenant in plans.tenants:
        # On every link, the minor number of a tenant's class is the tenant's.
        minor = f"class 1:{tenant.tenant_id:x}"
        for link_number, _ in tenant.link_bps:
            port = layout.plan.sending_port(link_number)
            titles[f"{port.name} {minor}"] = f"tenant {tenant.job_id}"
    return titles


def _problems(
    expected: Objects,
    installed: Objects,
    titles: Mapping[str, str],
) -> tuple[str, ...]:
    """The differences, each in a sentence with users' names."""
    problems = []
    for name, fault in differences(expected, installed):
        # A name is a device or bridge and a kind: ``hn-r1-u0 class 1:5``.
        device, _, kind = name.partition(" ")
        owner = ""
        if name in titles:
            owner = f" of {titles[name]}"
        title = titles.get(device, "unknown")
        problems.append(f"{device} ({title}) {kind}{owner}: {fault}")
    return tuple(problems)
