"""The live network as a plain Mininet topology: for teaching, and to compare with.

Mininet builds such a network port by port, with a process for each step; the testbed's own live
backend builds the same names and numbers in two batches. Mininet is imported only when a topology
is asked for.
"""

from __future__ import annotations

from typing import Any

MBIT_BPS = 1_000_000
# Mininet's TCLink shapes no link above this; it leaves such a link unlimited and says so.
MININET_MAX_BPS = 1000 * MBIT_BPS


def mininet_topo(plan: Any, *, limits: bool = True) -> Any:
    """A ``mininet.topo.Topo`` of the whole network, for ``Mininet(topo=...)`` or ``mn --custom``.

    ``plan`` is what :func:`testbed.plan.network_plan.network_plan` returns: its bridges become
    switches, servers' bridges too, its VM slots hosts. ``limits`` gives links their capacity (up to
    1 Gbit/s, Mininet's own limit), which takes Mininet's ``link=TCLink``. Use switches in
    standalone mode for trees; a fat-tree has loops and needs a controller. ImportError without
    Mininet.
    """
    from mininet.topo import Topo

    topo = Topo()
    for bridge in plan.bridges:
        topo.addSwitch(bridge.name, dpid=f"{bridge.dpid:016x}")
    for slot in plan.slots:
        topo.addHost(slot.netns, mac=slot.mac)
        port = slot.port
        topo.addLink(slot.netns, port.bridge, port2=port.number, intfName2=port.name)
    for link in plan.links:
        shaped = limits and link.capacity_bps <= MININET_MAX_BPS
        topo.addLink(
            link.lower.bridge,
            link.upper.bridge,
            port1=link.lower.number,
            port2=link.upper.number,
            intfName1=link.lower.name,
            intfName2=link.upper.name,
            **({"bw": link.capacity_bps / MBIT_BPS, "use_htb": True} if shaped else {}),
        )
    return topo
