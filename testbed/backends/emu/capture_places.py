"""Names of what can be captured, and the devices where its packets pass.

A run in progress notes them in the machine's state folder, anew whenever a
job's VMs come or go: other commands cannot ask the run.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from pydantic import TypeAdapter

from testbed.backends.emu.packet_capture import CapturePoint
from testbed.backends.emu.traffic_control import NETNS_DIR
from testbed.errors import BadInput
from testbed.plan.batch_lines import VM_DEVICE
from testbed.plan.network_plan import NetworkPlan, TenantPlan
from testbed.spec.document import did_you_mean

# In the state folder. Its lock lets a single network be up at a time.
LINKS_NOTE = ".links.json"
VMS_NOTE = ".vms.json"
MOST_NAMED = 8
SEPARATORS = (" - ", " -> ", " <-> ")


@dataclass(frozen=True)
class CaptureLink:
    """A link by the names of its ends, and its port at one of them."""

    ends: tuple[str, str]
    point: CapturePoint


@dataclass(frozen=True)
class CapturePlaces:
    """Points of VMs by the names of their tenants, and of links.

    ``hosts``: names of VMs by the names that the topology has for their slots.
    """

    tenants: Mapping[str, tuple[CapturePoint, ...]]
    links: tuple[CaptureLink, ...]
    hosts: Mapping[str, str] = field(default_factory=dict)

    def points(self, target: str) -> tuple[CapturePoint, ...]:
        """The points of a VM, a link or a tenant. Raises BadInput."""
        if target in self.tenants:
            return self.tenants[target]
        vm = self.hosts.get(target, target)
        for points in self.tenants.values():
            for point in points:
                if point.name == vm:
                    return (point,)
        for link in self.links:
            if target in _names(link.ends):
                return (link.point,)
        raise self._unknown(target)

    def _unknown(self, target: str) -> BadInput:
        """The error about an unknown name, with the names that are known."""
        tenants = [*self.tenants]
        vms = []
        for points in self.tenants.values():
            vms += [point.name for point in points]
        links = []
        at_this_end = []
        for link in self.links:
            links.append(link.point.name)
            if target in link.ends:
                at_this_end.append(link.point.name)
        guess = did_you_mean(target, [*tenants, *vms, *links])
        return BadInput(
            f"there is no VM, link or tenant {target!r}{guess}",
            f"VMs: {_listed(vms)}; tenants: {_listed(tenants)};"
            f" links: {_listed(at_this_end or links)}",
        )


def _names(ends: tuple[str, str]) -> Iterator[str]:
    """Names of a link: its ends in either order, with any separator."""
    low, high = ends
    for separator in SEPARATORS:
        yield low + separator + high
        yield high + separator + low


def _listed(names: list[str]) -> str:
    """The first names, and how many follow."""
    if not names:
        return "none"
    shown = ", ".join(names[:MOST_NAMED])
    left = len(names) - MOST_NAMED
    return f"{shown} and {left} more" if left > 0 else shown


# -- places of a run in progress


_PLACES = TypeAdapter(CapturePlaces)


def link_places(
    plan: NetworkPlan,
    node_names: Iterable[str],
    namespaces: Mapping[str, str | None],
) -> CapturePlaces:
    """Points of a network's links.

    ``namespaces``: by bridge, the name of its switch's namespace; None for the
    machine's own.
    """
    names = [*node_names]
    nodes = {bridge.name: names[bridge.node] for bridge in plan.bridges}
    links = []
    for link in plan.links:
        ends = nodes[link.lower.bridge], nodes[link.upper.bridge]
        netns = namespaces[link.lower.bridge]
        links.append(link_at(ends, link.lower.name, netns))
    return CapturePlaces({}, tuple(links))


def link_at(
    ends: tuple[str, str],
    port: str,
    netns: str | None,
) -> CaptureLink:
    """A link at a port. ``netns``: the namespace of the port's switch; None for
    the machine's own.
    """
    path = "" if netns is None else str(NETNS_DIR / netns)
    return CaptureLink(ends, CapturePoint(" - ".join(ends), port, path))


def vm_places(tenants: Iterable[TenantPlan]) -> CapturePlaces:
    """Points of the VMs of a run's jobs."""
    places = {}
    hosts = {}
    for tenant in tenants:
        points = []
        for vm in tenant.vms:
            name = f"{tenant.job_id}.{vm.index}"
            netns = str(NETNS_DIR / vm.slot.netns)
            points.append(CapturePoint(name, VM_DEVICE, netns))
            if vm.slot.host:
                hosts[vm.slot.host] = name
        places[tenant.job_id] = tuple(points)
    return CapturePlaces(places, (), hosts)


def note(places: CapturePlaces) -> bytes:
    """The content of a file that holds these places."""
    return _PLACES.dump_json(places)


def noted_places(state: Path) -> CapturePlaces:
    """Places of a run in progress, from its two notes.

    Raises OSError, and ValueError for a note that is damaged.
    """
    of_links = _PLACES.validate_json((state / LINKS_NOTE).read_bytes())
    of_vms = _PLACES.validate_json((state / VMS_NOTE).read_bytes())
    return CapturePlaces(of_vms.tenants, of_links.links, of_vms.hosts)
