"""Small data centres made of fake switches, and tenants in them, for tests and demonstrations.

Independent of `topologies` on purpose: what the tests of the rules compare with is built here from
first principles, by walking links.
"""

from __future__ import annotations

import ipaddress
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

from controller.flow_rules import AddFlow, desired_flows
from controller.values import (
    AttachedVm,
    DesiredState,
    InvalidValues,
    Role,
    Switch,
    Tenant,
    TreeEdge,
)
from testbed.plan.network_plan import tenant_prefix
from tests.support.fake_switch import FakeNetwork, FakeSwitch

Slot = tuple[int, int]
"""Where a VM can be plugged in: a server switch's dpid and port."""


def vm_address(prefix: str, index: int) -> str:
    """The address of VM `index` (0..1021) in `prefix`: base + 1 + index."""
    network = ipaddress.IPv4Network(prefix)
    if not 0 <= index <= network.num_addresses - 3:
        raise InvalidValues(
            [f"VM index {index} has no address in {prefix}"]
        )
    return str(network.network_address + 1 + index)


@dataclass(frozen=True)
class FakeDataCentre:
    """A data centre: its switches, the links upward, and the slots for VMs."""

    switches: tuple[Switch, ...]
    links: tuple[TreeEdge, ...]
    slots: tuple[Slot, ...]

    @cached_property
    def links_down(self) -> Mapping[int, tuple[TreeEdge, ...]]:
        """The links whose upper end a switch is."""
        below = defaultdict(list)
        for link in self.links:
            below[link.parent_dpid].append(link)
        return {dpid: tuple(links) for dpid, links in below.items()}

    def servers_below(self, dpid: int) -> frozenset[int]:
        """The servers that can be reached from a switch by going down only."""
        links = self.links_down.get(dpid, ())
        if not links:
            return frozenset([dpid])
        return frozenset().union(
            *(self.servers_below(link.child_dpid) for link in links)
        )

    def roots_for(self, servers: Iterable[int]) -> tuple[int, ...]:
        """The switches that a tree for these servers may be pinned to."""
        wanted = frozenset(servers)
        return tuple(
            s.dpid
            for s in self.switches
            if wanted <= self.servers_below(s.dpid)
        )

    def tree(
        self, root: int, servers: Iterable[int]
    ) -> tuple[TreeEdge, ...]:
        """The links from `root` down to these servers."""
        wanted = frozenset(servers)
        edges: list[TreeEdge] = []
        for link in self.links_down.get(root, ()):
            if wanted & self.servers_below(link.child_dpid):
                edges += [link, *self.tree(link.child_dpid, wanted)]
        return tuple(edges)

    def tenant(
        self,
        tenant_id: int,
        slots: Sequence[Slot],
        root_choice: Callable[[int], int],
    ) -> Tenant:
        """A tenant with one VM per slot, pinned to root number `root_choice(how many)`."""
        servers = [dpid for dpid, _ in slots]
        roots = self.roots_for(servers)
        root = roots[root_choice(len(roots))]
        prefix = str(tenant_prefix(tenant_id))
        vms = tuple(
            AttachedVm(
                index, vm_address(prefix, index), mac_of(slot), *slot
            )
            for index, slot in enumerate(slots)
        )
        return Tenant(
            tenant_id,
            f"tenant-{tenant_id}",
            prefix,
            vms,
            self.tree(root, servers),
        )

    def network(self, state: DesiredState) -> FakeNetwork:
        """This datacentre's switches with the rules of `state` in them."""
        fakes = {s.dpid: FakeSwitch(s.dpid, s.ports) for s in self.switches}
        for dpid, flows in desired_flows(state).items():
            fakes[dpid].apply([AddFlow(flow) for flow in flows])
        wires: dict[Slot, Slot] = {}
        for link in self.links:
            lower, upper = (
                (link.child_dpid, link.child_port),
                (link.parent_dpid, link.parent_port),
            )
            wires[lower], wires[upper] = upper, lower
        return FakeNetwork(fakes, wires)


def mac_of(slot: Slot) -> str:
    """A slot's MAC address, unlike any other slot's."""
    dpid, port = slot
    return f"02:00:{dpid >> 8 & 255:02x}:{dpid & 255:02x}:{port >> 8 & 255:02x}:{port & 255:02x}"


@dataclass
class _Plan:
    """Switches and links in the making."""

    ports: dict[int, int] = field(default_factory=dict)
    roles: dict[int, Role] = field(default_factory=dict)
    links: list[TreeEdge] = field(default_factory=list)
    slots: list[Slot] = field(default_factory=list)

    def switch(self, role: Role) -> int:
        dpid = len(self.ports) + 1
        self.ports[dpid], self.roles[dpid] = 0, role
        return dpid

    def port(self, dpid: int) -> int:
        self.ports[dpid] += 1
        return self.ports[dpid]

    def server(self, slots_per_server: int) -> int:
        dpid = self.switch("server")
        self.slots += [
            (dpid, self.port(dpid)) for _ in range(slots_per_server)
        ]
        return dpid

    def link(self, child: int, parent: int) -> None:
        self.links.append(
            TreeEdge(child, self.port(child), parent, self.port(parent))
        )

    def datacentre(self) -> FakeDataCentre:
        switches = [
            Switch(
                dpid,
                f"w-{role[0]}{dpid}",
                role,
                tuple(range(1, self.ports[dpid] + 1)),
            )
            for dpid, role in self.roles.items()
        ]
        return FakeDataCentre(
            tuple(switches), tuple(self.links), tuple(self.slots)
        )


def tree_datacentre(
    fanout: Sequence[int], slots_per_server: int
) -> FakeDataCentre:
    """A tree with one root; `fanout` from the root down to the servers, at most three levels."""
    plan = _Plan()
    roles: list[Role] = ["rack", "aggregation", "core"]
    roles = roles[: len(fanout)]

    def grow(depth: int) -> int:
        if depth == len(fanout):
            return plan.server(slots_per_server)
        parent = plan.switch(roles[len(fanout) - 1 - depth])
        for _ in range(fanout[depth]):
            plan.link(grow(depth + 1), parent)
        return parent

    grow(0)
    return plan.datacentre()


def fat_tree_datacentre(k: int, slots_per_server: int) -> FakeDataCentre:
    """A fat-tree of k-port switches (k even): k pods, k²/4 core switches, k³/4 servers."""
    plan = _Plan()
    half = k // 2
    cores = [plan.switch("core") for _ in range(half * half)]
    for _ in range(k):
        upper = [plan.switch("aggregation") for _ in range(half)]
        for number, aggregation in enumerate(upper):
            for core in cores[number * half : (number + 1) * half]:
                plan.link(aggregation, core)
        for _ in range(half):
            rack = plan.switch("rack")
            for aggregation in upper:
                plan.link(rack, aggregation)
            for _ in range(half):
                plan.link(plan.server(slots_per_server), rack)
    return plan.datacentre()
