"""Verification of the standing network: installed state against plan; packets.

Limits and flows are read by ``tc`` and ``ovs-ofctl``, another way than they
were written. Packets show what no comparison does; of a person's own controller
they alone can say what its flows do.
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

# The checks in their order, and the objects that each of them counts.
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
    """One kind of check: number of things compared or sent, and problems."""

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
    """All checks, one after the other. Raises RunFailed where a tool fails."""
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
    """Every cable carries: that of a link at both ends, that of a VM at one."""
    cables: list[tuple[str, ...]] = []
    for link in layout.plan.links:
        cables.append((link.lower.name, link.upper.name))
    # The other end of a VM's cable is in its namespace, and a cable carries
    # at both ends or at none.
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
    """Names of the devices that carry, and every limit that is installed."""
    ports_up: set[str] = set()
    installed = Objects()
    for netns, ports in _ports_by_namespace(layout).items():
        devices = installed_state.devices_of(netns)
        for name, device in devices.items():
            if "LOWER_UP" in device["flags"]:
                ports_up.add(name)
        # tc is asked about ports with a queueing discipline of ours alone: each
        # question is a process, and idle slots have none.
        queued = [
            port
            for port in ports
            if port in devices
            and devices[port].get("qdisc") not in NO_QUEUE
        ]
        installed |= installed_state.installed_limits(netns, queued)
    return ports_up, installed | _limits_in_vms(plans)


def _limits_in_vms(plans: TenantPlans) -> Objects:
    slots: list[Slot] = []
    for tenant in plans.tenants:
        slots += (vm.slot for vm in tenant.vms)
    installed = Objects()
    # Each waits for a process of tc in a namespace: so many at a time.
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        for objects in pool.map(_limits_in_vm, slots):
            installed |= objects
    return installed


def _ports_by_namespace(
    layout: NetworkLayout,
) -> dict[str | None, list[str]]:
    ports: dict[str | None, list[str]] = {}
    for port in layout.plan.ports:
        _, netns = layout.switches[port.bridge]
        ports.setdefault(netns, []).append(port.name)
    return ports


def _limits_in_vm(slot: Slot) -> Objects:
    return installed_state.installed_limits(
        slot.netns, [VM_DEVICE], f"{slot.netns}/"
    )


def planned_limits(layout: NetworkLayout, plans: TenantPlans) -> Objects:
    """Every limit that has to be there, from the lines of the plan."""
    sections = [*limits.network_limits(layout.plan)]
    # Only while traffic without a reservation is on the network.
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
    """Every flow that has to be there."""
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
    """Every flow is as planned, and there is no other.

    Those of a person's own controller are only counted.
    """
    installed = Objects()
    failures: list[str] = []
    for bridge, (run_dir, _) in layout.switches.items():
        try:
            installed |= installed_state.installed_flows(bridge, run_dir)
        # Its switch may be down, and the others' flows are still compared.
        except RunFailed as error:
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
    """Pings within tenants pass; nothing else does.

    That is, nothing between tenants, or with a forged source.
    """
    tenants = []
    for plan in plans.tenants:
        if not plan.unconnected:
            vms = [_probed_vm(vm, plans.names) for vm in plan.vms]
            tenants.append(vms)
    # All kinds at once: a packet that must not arrive is waited for in vain.
    probes = list(packet_probes.probes(tenants))
    round_trips_s = [path_delay(p).round_trip_s for p in plans.tenants]
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
    """Bridges, devices and classes -> users' names; links with a direction."""
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
        # A class of a tenant's has the tenant's number, on every link.
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
    problems = []
    for name, fault in differences(expected, installed):
        device, _, kind = name.partition(" ")
        owner = ""
        if name in titles:
            owner = f" of {titles[name]}"
        title = titles.get(device, "unknown")
        problems.append(f"{device} ({title}) {kind}{owner}: {fault}")
    return tuple(problems)
