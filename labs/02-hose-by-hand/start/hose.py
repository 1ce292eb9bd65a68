"""Your limits. Bandwidths and rates are whole numbers of bit/s; texts are lines for `tc -batch`.

Python's standard library is all that your code may import.
"""


def reservation(below, vms, bandwidth):
    """Bandwidth of a tenant of `vms` VMs on a link with `below` of them below it."""
    return 0


def reserved_links(parents, places, bandwidth):
    """Reservations of a tenant, {node: bandwidth}: of each node on the link above it.

    `parents` has the switch above each server and switch, {"server 0": "rack 0", …}; the root is
    not in it. `places` has the tenant's VMs, {"server 0": 2, …}. Links without one are left out.
    """
    return {}


def arrives(vms, bandwidth, receive_caps):
    """The most that can arrive at one of `vms` VMs when the others send to it.

    Each has a send cap of `bandwidth`; `receive_caps` (True or False): and a receive cap as well.
    """
    return 0


def send_cap(rate):
    """Lines that limit what a VM sends, on the VM's own device eth0."""
    return ""


def receive_cap(device, rate):
    """Lines that limit what a VM receives, on the switch's end of its cable."""
    return ""


def link(device, capacity):
    """Lines for a link's end: the link's class and, below it, the default class."""
    return ""


def tenant_class(device, number, prefix, rate):
    """Lines that add a tenant to what `link(device, …)` has made: class, queue and filter.

    `number` (1 to 999) is the tenant's own, `prefix` has the addresses of its VMs, "10.0.1.0/24".
    """
    return ""
