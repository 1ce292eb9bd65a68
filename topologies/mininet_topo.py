"""The live network as a plain Mininet topology: for teaching, and to compare with.

Mininet builds such a network port by port, with a process for each step; the testbed's own live
backend builds the same names and numbers in two batches. Mininet is imported only when a topology
is asked for.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import cache
from typing import Any, Protocol

MBIT_BPS = 1_000_000
# Mininet's TCLink shapes no link above this; it leaves such a link unlimited and says so.
MININET_MAX_BPS = 1000 * MBIT_BPS


class PortLike(Protocol):
    """A port of a bridge (as :class:`testbed.plan.network_plan.Port`)."""

    @property
    def bridge(self) -> str: ...
    @property
    def name(self) -> str: ...
    @property
    def number(self) -> int: ...


class BridgeLike(Protocol):
    """A switch, or a server's own."""

    @property
    def name(self) -> str: ...
    @property
    def dpid(self) -> int: ...


class LinkLike(Protocol):
    """A cable between two bridges."""

    @property
    def lower(self) -> PortLike: ...
    @property
    def upper(self) -> PortLike: ...
    @property
    def capacity_bps(self) -> int: ...


class SlotLike(Protocol):
    """A VM slot on a server's bridge."""

    @property
    def netns(self) -> str: ...
    @property
    def port(self) -> PortLike: ...
    @property
    def mac(self) -> str: ...


class PlanLike(Protocol):
    """A network plan (as :func:`testbed.plan.network_plan.network_plan` returns)."""

    @property
    def bridges(self) -> Sequence[BridgeLike]: ...
    @property
    def links(self) -> Sequence[LinkLike]: ...
    @property
    def slots(self) -> Sequence[SlotLike]: ...


@cache
def topo_class() -> type[Any]:
    """The subclass of ``mininet.topo.Topo`` that builds a plan; ImportError without Mininet."""
    from mininet.topo import Topo

    class PlanTopo(Topo):  # type: ignore[misc]
        """Bridges as switches, servers' bridges too; VM slots as hosts; links with capacities."""

        def build(self, plan: PlanLike, *, limits: bool = True) -> None:
            for bridge in plan.bridges:
                self.addSwitch(bridge.name, dpid=f"{bridge.dpid:016x}")
            for slot in plan.slots:
                self.addHost(slot.netns, mac=slot.mac)
                self.addLink(
                    slot.netns,
                    slot.port.bridge,
                    port2=slot.port.number,
                    intfName2=slot.port.name,
                )
            for link in plan.links:
                shaped = limits and link.capacity_bps <= MININET_MAX_BPS
                self.addLink(
                    link.lower.bridge,
                    link.upper.bridge,
                    port1=link.lower.number,
                    port2=link.upper.number,
                    intfName1=link.lower.name,
                    intfName2=link.upper.name,
                    **({"bw": link.capacity_bps / MBIT_BPS, "use_htb": True} if shaped else {}),
                )

    return PlanTopo


def mininet_topo(plan: PlanLike, *, limits: bool = True) -> Any:
    """A ``mininet.topo.Topo`` of the whole network, for ``Mininet(topo=...)`` or ``mn --custom``.

    ``limits`` gives links their capacity (up to 1 Gbit/s, Mininet's own limit), which takes
    Mininet's ``link=TCLink``. Use switches in standalone mode for trees; a fat-tree has loops and
    needs a controller. ImportError without Mininet.
    """
    return topo_class()(plan=plan, limits=limits)
