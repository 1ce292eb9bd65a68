"""From a tenant to the rules its switches need. Pure: values in, values out.

Two tables per switch, both with an explicit drop at the bottom:

* **Table 0, source filter.** At a VM's port: exactly this VM's MAC and address, untagged. At
  a port of the tenant's pinned tree: any address of the tenant's prefix, untagged. A packet that is
  admitted continues in table 1.
* **Table 1, forwarding.** From the tenant's prefix to one of its VMs at or below this switch:
  out of the port that leads there. Otherwise from the prefix to the prefix: up, to the parent.

Traffic between tenants, forged sources, ARP, IPv6 and everything else meets no rule and is
dropped. Untagged matters: a VLAN tag would carry a frame past the traffic-control filters, which
look for IPv4, into the default class.

A rule's cookie is `COOKIE_TAG` plus the tenant's id (0 for the two drops): all rules of a tenant
can be removed at once, and rules added by hand can be distinguished from ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.values import DesiredState, Tenant

COOKIE_TAG = 0x484F5345_00000000
"""The upper half of every cookie of ours ("HOSE"); the lower half is the tenant's id."""
COOKIE_TAG_MASK = 0xFFFFFFFF_00000000
COOKIE_ALL_BITS = 0xFFFFFFFF_FFFFFFFF

ADMIT_TABLE = 0
FORWARD_TABLE = 1
DROP_PRIORITY = 0
ADMIT_PRIORITY = 100
UP_PRIORITY = 100
DOWN_PRIORITY = 200


@dataclass(frozen=True)
class Match:
    """Fields that a packet must have. A match without fields fits everything.

    `eth_src` is a MAC, `nw_src` and `nw_dst` are addresses or prefixes; `ipv4` asks for IPv4 and
    is implied by either of these; `untagged` asks for no VLAN tag.
    """

    in_port: int | None = None
    untagged: bool = False
    ipv4: bool = False
    eth_src: str | None = None
    nw_src: str | None = None
    nw_dst: str | None = None

    def text(self) -> str:
        """The fields as `ovs-ofctl dump-flows` prints them, in its order."""
        fields = [
            "ip" if self.ipv4 else "",
            f"in_port={self.in_port}" if self.in_port is not None else "",
            "vlan_tci=0x0000/0x1fff" if self.untagged else "",
            f"dl_src={self.eth_src}" if self.eth_src is not None else "",
            f"nw_src={self.nw_src}" if self.nw_src is not None else "",
            f"nw_dst={self.nw_dst}" if self.nw_dst is not None else "",
        ]
        return ",".join(field for field in fields if field)


@dataclass(frozen=True)
class Goto:
    """Go on in a later table."""

    table: int

    def text(self) -> str:
        return f"goto_table:{self.table}"


@dataclass(frozen=True)
class Output:
    """Send out of a port."""

    port: int

    def text(self) -> str:
        return f"output:{self.port}"


@dataclass(frozen=True)
class Drop:
    """Neither table nor port: the end of the packet."""

    def text(self) -> str:
        return "drop"


Action = Goto | Output | Drop


@dataclass(frozen=True)
class Flow:
    """One OpenFlow rule. Table, priority and match identify it within a switch."""

    table: int
    priority: int
    match: Match
    action: Action
    cookie: int

    @property
    def key(self) -> tuple[int, int, Match]:
        """The identity of a rule within a switch."""
        return (self.table, self.priority, self.match)

    def text(self) -> str:
        """The rule as `ovs-ofctl -O OpenFlow13 add-flow` reads it, always in the same order."""
        match = self.match.text()
        fields = [f"cookie={self.cookie:#x}", f"table={self.table}", f"priority={self.priority}"]
        return ",".join([*fields, match] if match else fields) + f" actions={self.action.text()}"


BASE_FLOWS = tuple(
    Flow(table, DROP_PRIORITY, Match(), Drop(), COOKIE_TAG)
    for table in (ADMIT_TABLE, FORWARD_TABLE)
)
"""Rules of every switch without any tenant: a drop at the bottom of both tables.

The drops are explicit, although OpenFlow 1.3 drops what nothing matches: they count what was
refused, and they take the place of the NORMAL rule that a bridge is born with.
"""


def tenant_cookie(tenant_id: int) -> int:
    """The cookie of all rules of one tenant."""
    return COOKIE_TAG | tenant_id


def tenant_flows(tenant: Tenant) -> dict[int, tuple[Flow, ...]]:
    """Everything a tenant needs, per switch that carries it: dpid -> rules in a stable order.

    O(sum over switches of VMs below) rules: a switch has one rule for each VM at or below it, one
    for all others, and one for each port that the tenant may come in by.
    """
    up_port = {edge.child_dpid: edge.child_port for edge in tenant.tree}
    trunk_ports = defaultdict(list)
    for dpid, port in sorted(tenant.tree_ports):
        trunk_ports[dpid].append(port)
    out_ports, cookie = _ports_towards_vms(tenant), tenant_cookie(tenant.id)
    return {
        dpid: tuple(
            Flow(*rule, cookie)
            for rules in (
                _admitted(tenant, dpid, trunk_ports[dpid]),
                _forwarded(tenant, out_ports[dpid], up_port.get(dpid)),
            )
            for rule in rules
        )
        for dpid in tenant.dpids
    }


def desired_flows(state: DesiredState) -> dict[int, tuple[Flow, ...]]:
    """All rules of all switches of the network: dpid -> base rules, then tenants by id."""
    flows = {switch.dpid: list(BASE_FLOWS) for switch in state.switches}
    for tenant in state.tenants:
        for dpid, more in tenant_flows(tenant).items():
            flows[dpid].extend(more)
    return {dpid: tuple(listed) for dpid, listed in flows.items()}


_Rule = tuple[int, int, Match, Action]
"""A flow without its cookie."""


def _admitted(tenant: Tenant, dpid: int, trunk_ports: Iterable[int]) -> Iterator[_Rule]:
    for vm in tenant.vms:
        if vm.dpid == dpid:
            match = Match(vm.port, untagged=True, ipv4=True, eth_src=vm.mac, nw_src=vm.ip)
            yield ADMIT_TABLE, ADMIT_PRIORITY, match, Goto(FORWARD_TABLE)
    for port in trunk_ports:
        match = Match(port, untagged=True, ipv4=True, nw_src=tenant.prefix)
        yield ADMIT_TABLE, ADMIT_PRIORITY, match, Goto(FORWARD_TABLE)


def _forwarded(tenant: Tenant, out_ports: dict[str, int], up_port: int | None) -> Iterator[_Rule]:
    for address, port in out_ports.items():
        match = Match(ipv4=True, nw_src=tenant.prefix, nw_dst=address)
        yield FORWARD_TABLE, DOWN_PRIORITY, match, Output(port)
    if up_port is not None:
        match = Match(ipv4=True, nw_src=tenant.prefix, nw_dst=tenant.prefix)
        yield FORWARD_TABLE, UP_PRIORITY, match, Output(up_port)


def _ports_towards_vms(tenant: Tenant) -> dict[int, dict[str, int]]:
    """For each switch (by dpid): the port towards each VM at or below it, in the VMs' order."""
    above = {edge.child_dpid: (edge.parent_dpid, edge.parent_port) for edge in tenant.tree}
    ports: dict[int, dict[str, int]] = {dpid: {} for dpid in tenant.dpids}
    for vm in tenant.vms:
        ports[vm.dpid][vm.ip] = vm.port
        dpid = vm.dpid
        while dpid in above:
            dpid, port = above[dpid]
            ports[dpid][vm.ip] = port
    return ports


# --------------------------------------------------------------------------------------- state


@dataclass(frozen=True)
class AddFlow:
    """Add a rule; one with the same table, priority and match is replaced."""

    flow: Flow


@dataclass(frozen=True)
class RemoveFlow:
    """Remove exactly this rule."""

    flow: Flow


@dataclass(frozen=True)
class RemoveByCookie:
    """Remove, in all tables, every rule whose cookie agrees with `cookie` in the bits of `mask`."""

    cookie: int
    mask: int = COOKIE_ALL_BITS


Change = AddFlow | RemoveFlow | RemoveByCookie


@dataclass(frozen=True)
class FlowReport:
    """The rules that a switch reports.

    `flows` are those of a known shape, whatever their origin; `other_cookies` are the cookies of
    all the rest (matches or actions that this controller never uses).
    """

    flows: tuple[Flow, ...] = ()
    other_cookies: tuple[int, ...] = ()

    @property
    def foreign_count(self) -> int:
        """The number of rules that this controller did not make."""
        cookies = [flow.cookie for flow in self.flows] + list(self.other_cookies)
        return sum(not is_ours(cookie) for cookie in cookies)

    def joined(self, other: FlowReport) -> FlowReport:
        """This report and its continuation."""
        return FlowReport(self.flows + other.flows, self.other_cookies + other.other_cookies)


Step = dict[int, tuple[AddFlow | RemoveFlow, ...]]
"""What one step of a move changes, per switch (dpid)."""


def move_steps(
    old: Mapping[int, Iterable[Flow]], new: Mapping[int, Iterable[Flow]]
) -> tuple[Step, Step, Step]:
    """A tenant's way from the rules of one tree to those of another, make before break: rules that
    are new, then those that turn traffic to them, then the removal of what no packet meets now.

    Between two trees with the same VMs below each switch that both have (docs/decisions/05), no
    packet is lost if a step begins after the one before is confirmed, and the last after what was
    under way has arrived.
    """
    added: Step = {}
    turned: Step = {}
    removed: Step = {}
    for dpid in sorted(old.keys() | new.keys()):
        was = {flow.key: flow for flow in old.get(dpid, ())}
        now = {flow.key: flow for flow in new.get(dpid, ())}
        for step, changes in (
            (added, [AddFlow(flow) for key, flow in now.items() if key not in was]),
            (turned, [AddFlow(flow) for key, flow in now.items() if was.get(key, flow) != flow]),
            (removed, [RemoveFlow(flow) for key, flow in was.items() if key not in now]),
        ):
            if changes:
                step[dpid] = tuple(changes)
    return added, turned, removed


def is_ours(cookie: int) -> bool:
    """True if a rule with this cookie was made by this controller, now or before a restart."""
    return cookie & COOKIE_TAG_MASK == COOKIE_TAG


def difference(desired: Iterable[Flow], report: FlowReport) -> tuple[Change, ...]:
    """The changes after which the switch has all of `desired` and nothing else of ours.

    Rules that are right already are left alone, counters and all. A rule of ours in a shape we
    cannot read is removed by its cookie, and the desired rules of that cookie are put in anew;
    applied as one bundle, traffic notices nothing.
    """
    wanted = {flow.key: flow for flow in desired}
    ours = [flow for flow in report.flows if is_ours(flow.cookie)]
    garbled = sorted({cookie for cookie in report.other_cookies if is_ours(cookie)})
    changes: list[Change] = [RemoveByCookie(cookie) for cookie in garbled]
    changes += [
        RemoveFlow(flow) for flow in ours if flow.key not in wanted and flow.cookie not in garbled
    ]
    present = {flow for flow in ours if flow.cookie not in garbled}
    changes += [AddFlow(flow) for flow in wanted.values() if flow not in present]
    return tuple(changes)
