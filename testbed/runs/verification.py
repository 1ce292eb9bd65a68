"""Verification of the network that is up: what is installed against the plan, and packets.

Limits and flows are read by ``tc`` and ``ovs-ofctl``, another way than they were written. Packets
show what no comparison does; of a person's own controller they alone can say what its flows do.
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
from testbed.backends.emu.installed_state import NO_QUEUE, Objects, differences
from testbed.backends.emu.packet_probes import Vm
from testbed.errors import RunFailed
from testbed.plan import limits
from testbed.plan.batch_lines import VM_DEVICE
from testbed.plan.network_plan import Slot, TenantVm, controller_switches, controller_tenant
from testbed.runs.network_layout import NetworkLayout, TenantPlans

CHECKS = {
    "links": "cables",
    "limits": "tc objects",
    "flows": "OpenFlow rules",
    "reachability": "pings within tenants",
    "isolation": "packets between tenants",
    "anti-spoofing": "packets with a forged source",
}
"""The checks in their order: what each is of."""


@dataclass(frozen=True)
class Check:
    """One kind of check: how many things were compared or sent, and what is wrong with which."""

    name: str
    compared: int
    problems: tuple[str, ...]
    note: str = ""

    @property
    def good(self) -> bool:
        return not self.problems


def checks(layout: NetworkLayout, plans: TenantPlans) -> Iterator[Check]:
    """All checks, one after the other. Raises RunFailed where a tool fails."""
    yield from _ports_and_limits(layout, plans)
    yield _flows(layout, plans)
    yield from _packets(plans)


def _ports_and_limits(layout: NetworkLayout, plans: TenantPlans) -> Iterator[Check]:
    """Every cable carries; every limit is as planned, and there is no other."""
    plan, up, found = layout.plan, set[str](), Objects()
    ports_in: dict[str | None, list[str]] = {}
    for port in plan.ports:
        ports_in.setdefault(layout.switches[port.bridge][1], []).append(port.name)
    for netns, ports in ports_in.items():
        there = installed_state.devices_of(netns)
        up |= {name for name, device in there.items() if "LOWER_UP" in device["flags"]}
        queued = [p for p in ports if p in there and there[p].get("qdisc") not in NO_QUEUE]
        found |= installed_state.installed_limits(netns, queued)
    with ThreadPoolExecutor(os.cpu_count()) as pool:
        slots = (vm.slot for tenant in plans.tenants for vm in tenant.vms)
        for more in pool.map(_limits_in_vm, slots):
            found |= more
    cables = [(k.lower, k.upper) for k in plan.links] + [(slot.port,) for slot in plan.slots]
    down = [ends[0].name for ends in cables if not {end.name for end in ends} <= up]
    titles = _titles(layout, plans)
    yield Check("links", len(cables), tuple(f"{name} ({titles[name]}) is down" for name in down))
    expected = planned_limits(layout, plans)
    yield Check("limits", len(expected), _problems(expected, found, titles))


def _limits_in_vm(slot: Slot) -> Objects:
    return installed_state.installed_limits(slot.netns, [VM_DEVICE], f"{slot.netns}/")


def planned_limits(layout: NetworkLayout, plans: TenantPlans) -> Objects:
    """Every limit that has to be there, from the lines of the plan."""
    sections = [*limits.network_limits(layout.plan)]
    sections += limits.borrowing_lines(layout.plan) if plans.borrowing else ()
    for tenant in plans.tenants:
        sections += limits.tenant_limits(layout.plan, tenant)
    expected = Objects()
    for section in sections:
        prefix = f"{section.netns}/" if section.netns else ""
        lines = (line.text() for line in section.lines)
        expected |= installed_state.tc_objects(lines, prefix=prefix)
    return expected


def planned_flows(layout: NetworkLayout, plans: TenantPlans) -> Objects:
    """Every flow that has to be there."""
    network = layout.plan
    tenants = (controller_tenant(network, each) for each in plans.tenants if not each.unconnected)
    flows = desired_flows(DesiredState(controller_switches(network), tuple(tenants)))
    expected = Objects()
    for bridge in network.bridges:
        lines = (flow.text() for flow in flows[bridge.dpid])
        expected |= installed_state.flow_objects(bridge.name, lines)
    return expected


def _flows(layout: NetworkLayout, plans: TenantPlans) -> Check:
    """Every flow is as planned, and there is no other; an own controller's are counted."""
    found, failed = Objects(), list[str]()
    for bridge, (run_dir, _) in layout.switches.items():
        try:
            found |= installed_state.installed_flows(bridge, run_dir)
        except RunFailed as error:
            failed.append(f"{bridge}: {error.message}")
    if plans.app:
        note = f"those of {plans.app} are not compared: the packets say what they guarantee"
        return Check("flows", len(found), tuple(failed), note)
    expected = planned_flows(layout, plans)
    problems = _problems(expected, found, _titles(layout, plans))
    return Check("flows", len(expected), (*failed, *problems))


def _packets(plans: TenantPlans) -> Iterator[Check]:
    """Pings within tenants pass; nothing passes between tenants, or with a forged source."""

    def named(vm: TenantVm) -> Vm:
        slot = vm.slot
        return Vm(plans.names[slot.port.name], slot.netns, str(vm.ip), slot.mac)

    tenants = [[*map(named, each.vms)] for each in plans.tenants if not each.unconnected]
    sent = list(packet_probes.probes(tenants))
    faults = packet_probes.faults(sent)
    for kind in get_args(packet_probes.Kind):
        of = [fault for probe, fault in zip(sent, faults, strict=True) if probe.kind == kind]
        yield Check(kind, len(of), tuple(filter(None, of)))


def _titles(layout: NetworkLayout, plans: TenantPlans) -> dict[str, str]:
    """Bridges and devices as people call them, with the direction of a link's."""
    plan, titles = layout.plan, dict(plans.names)
    for link in plan.links:
        low, high = titles[link.lower.bridge], titles[link.upper.bridge]
        titles |= {link.lower.name: f"{low} -> {high}", link.upper.name: f"{high} -> {low}"}
    for slot in plan.slots:
        vm = titles.get(slot.port.name, "no VM")
        titles |= {
            slot.port.name: f"{titles[slot.port.bridge]} -> {vm}",
            f"{slot.netns}/{VM_DEVICE}": vm,
        }
    for tenant in plans.tenants:
        for port in (plan.sending_port(link).name for link, _ in tenant.link_bps):
            titles[f"{port} class 1:{tenant.tenant_id:x}"] = f"tenant {tenant.job_id}"
    return titles


def _problems(expected: Objects, found: Objects, titles: Mapping[str, str]) -> tuple[str, ...]:
    problems = []
    for name, fault in differences(expected, found):
        device, _, what = name.partition(" ")
        whose = f" of {titles[name]}" if name in titles else ""
        problems.append(f"{device} ({titles.get(device, 'unknown')}) {what}{whose}: {fault}")
    return tuple(problems)
