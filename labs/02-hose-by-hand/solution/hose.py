"""The hose by hand: reservations, and lines of tc for caps, links and tenants."""

FRAME_BYTES = 1514


def reservation(below, vms, bandwidth):
    """Of X VMs below a link and N - X above it, the smaller side bounds what crosses."""
    return min(below, vms - below) * bandwidth


def reserved_links(parents, places, bandwidth):
    """Counts the VMs below every link on the way up from each server."""
    below = {}
    for server, count in places.items():
        node = server
        while node in parents:
            below[node] = below.get(node, 0) + count
            node = parents[node]
    vms = sum(places.values())
    needs = {node: reservation(count, vms, bandwidth) for node, count in below.items()}
    return {node: need for node, need in needs.items() if need}


def arrives(vms, bandwidth, receive_caps):
    """All the others' send caps; a receive cap is one of them."""
    most = (vms - 1) * bandwidth
    return min(most, bandwidth) if receive_caps else most


def _root(device, default):
    return f"qdisc add dev {device} root handle 1: htb default {default:x}\n"


def _class(device, parent, minor, rate, ceil):
    """A class with buckets of 20 ms, and at least two frames."""
    burst, cburst = (max(2 * FRAME_BYTES, bps // 8 // 50) for bps in (rate, ceil))
    return (
        f"class add dev {device} parent {parent} classid 1:{minor:x} htb"
        f" rate {rate}bit ceil {ceil}bit burst {burst} cburst {cburst} quantum 60000\n"
    )


def _queue(device, minor, rate):
    """50 ms of the rate, and room for some large packets."""
    return (
        f"qdisc add dev {device} parent 1:{minor:x} bfifo limit {max(100_000, rate // 8 // 20)}\n"
    )


def _cap(device, rate):
    return _root(device, 1) + _class(device, "1:", 1, rate, rate) + _queue(device, 1, rate)


def send_cap(rate):
    return _cap("eth0", rate)


def receive_cap(device, rate):
    return _cap(device, rate)


def link(device, capacity):
    """1:ffff is the link; 1:fffe, the default class, has little of its own and may borrow."""
    return (
        _root(device, 0xFFFE)
        + _class(device, "1:", 0xFFFF, capacity, capacity)
        + _class(device, "1:ffff", 0xFFFE, capacity // 1000, capacity)
        + _queue(device, 0xFFFE, capacity)
    )


def tenant_class(device, number, prefix, rate):
    match = f"protocol ip pref {number} u32 match ip src {prefix} flowid 1:{number:x}"
    return (
        _class(device, "1:ffff", number, rate, rate)
        + _queue(device, number, rate)
        + f"filter add dev {device} parent 1: {match}\n"
    )
