"""The live network's devices as ``ip -batch`` text: namespaces, veth pairs, all in one group.

The group number is the run's: it marks a device as ours in the very call that makes it, and lets
the kernel take a thousand of them up, or away, in one request instead of a thousand.
"""

from __future__ import annotations

from testbed.plan.hosts import VM_DEVICE
from testbed.plan.network import NetworkPlan

MTU_BYTES = 1500
# On the switches' ends. The userspace datapath (Open vSwitch 3.1) hands a segmented packet on with
# a segment size of MTU - 54: it forgets the 12 bytes of TCP's timestamps. With 1500 a packet of
# two full segments would count as three, and every limit would let 2 % too little through: 0206.
SWITCH_MTU_BYTES = 1502


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
