"""Rules that a tenant needs on its switches. Pure: values in, values out.

Two tables per switch, both with an explicit drop at the bottom:

* **Table 0, source filter.** At a VM's port: exactly this VM's MAC and address,
  untagged. At a port of the tenant's pinned tree: any address of the tenant's
  prefix, untagged. A packet that is admitted continues in table 1.
* **Table 1, forwarding.** From the tenant's prefix to one of its VMs at or
  below this switch: out of the port that leads there. Otherwise from the prefix
  to the prefix: up, to the parent.

Traffic between tenants, forged sources, ARP, IPv6 and everything else meets no
rule and is dropped. Untagged matters: a VLAN tag would carry a frame past the
traffic-control filters, which look for IPv4, into the default class.

A rule's cookie is `COOKIE_TAG` plus the tenant's id (0 for the two drops): all
rules of a tenant can be removed at once, and rules of others can be
distinguished from ours.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

from controller.values import ANY_ADDRESS, DesiredState, Tenant

# The upper half of every cookie of ours ("HOSE"); below is the tenant's id.
COOKIE_TAG = 0x484F5345_00000000
COOKIE_TAG_MASK = 0xFFFFFFFF_00000000
COOKIE_ALL_BITS = 0xFFFFFFFF_FFFFFFFF

ADMIT_TABLE = 0
FORWARD_TABLE = 1
DROP_PRIORITY = 0
ADMIT_PRIORITY = 100
# A rule to a VM at or below a switch comes before that to all others.
UP_PRIORITY = 100
DOWN_PRIORITY = 200


@dataclass(frozen=True)
class Match:
    """Fields that a packet must have. A match without fields fits everything.

    `eth_src` is a MAC, `nw_src` and `nw_dst` are addresses or prefixes; `ipv4`
    asks for IPv4 and is implied by either of these; `untagged` asks for no VLAN
    tag.
    """

    in_port: int | None = None
    untagged: bool = False
    ipv4: bool = False
    eth_src: str | None = None
    nw_src: str | None = None
    nw_dst: str | None = None

    def text(self) -> str:
        """The fields as `ovs-ofctl dump-flows` prints them, in its order."""
        fields = []
        if self.ipv4:
            fields.append("ip")
        if self.in_port is not None:
            fields.append(f"in_port={self.in_port}")
        if self.untagged:
            # OpenFlow 1.3's "no VLAN" as Open vSwitch prints it: of the
            # tag, the bit of its presence and the twelve of its id are
            # zero.
            fields.append("vlan_tci=0x0000/0x1fff")
        addresses = {
            "dl_src": self.eth_src,
            "nw_src": self.nw_src,
            "nw_dst": self.nw_dst,
        }
        for name, address in addresses.items():
            if address is not None:
                fields.append(f"{name}={address}")
        return ",".join(fields)


@dataclass(frozen=True)
class Goto:
    """Continuation in a later table."""

    table: int

    def text(self) -> str:
        return f"goto_table:{self.table}"


@dataclass(frozen=True)
class Output:
    """Output by a port."""

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
        """The rule as `ovs-ofctl -O OpenFlow13 add-flow` reads it.

        Always in the same order.
        """
        text = f"cookie={self.cookie:#x},table={self.table}"
        text += f",priority={self.priority}"
        match = self.match.text()
        if match:
            text += f",{match}"
        return f"{text} actions={self.action.text()}"


# Rules of a switch without any tenant: a drop at the bottom of both tables. The
# drops are explicit, although OpenFlow 1.3 drops what nothing matches: they
# count what was refused, and they take the place of the NORMAL rule that a
# bridge is born with.
BASE_FLOWS = tuple(
    Flow(
        table=table,
        priority=DROP_PRIORITY,
        match=Match(),
        action=Drop(),
        cookie=COOKIE_TAG,
    )
    for table in (ADMIT_TABLE, FORWARD_TABLE)
)


def tenant_cookie(tenant_id: int) -> int:
    """The cookie of all rules of one tenant."""
    return COOKIE_TAG | tenant_id


def tenant_flows(tenant: Tenant) -> dict[int, tuple[Flow, ...]]:
    """A tenant's rules on each switch that carries it: dpid -> stable order.

    O(sum over switches of VMs below) rules: a switch has one rule for each VM
    at or below it, one for all others, and one for each port that the tenant
    may come in by.
    """
    up_port = {edge.child_dpid: edge.child_port for edge in tenant.tree}
    trunk_ports = defaultdict(list)
    for dpid, port in sorted(tenant.tree_ports):
        trunk_ports[dpid].append(port)
    out_ports = _ports_towards_vms(tenant)
    cookie = tenant_cookie(tenant.id)
    flows = {}
    for dpid in tenant.dpids:
        rules = list(_admitted(tenant, dpid, trunk_ports[dpid]))
        rules += _forwarded(tenant, out_ports[dpid], up_port.get(dpid))
        flows[dpid] = tuple(Flow(*rule, cookie) for rule in rules)
    return flows


def desired_flows(state: DesiredState) -> dict[int, tuple[Flow, ...]]:
    """All rules of the network's switches: base rules, then tenants by id."""
    flows = {switch.dpid: BASE_FLOWS for switch in state.switches}
    for tenant in state.tenants:
        for dpid, rules in tenant_flows(tenant).items():
            flows[dpid] += rules
    return flows


# A flow without its cookie.
_Rule = tuple[int, int, Match, Action]


def _admitted(
    tenant: Tenant,
    dpid: int,
    trunk_ports: Iterable[int],
) -> Iterator[_Rule]:
    for vm in tenant.vms:
        if vm.dpid == dpid:
            match = Match(
                vm.port,
                untagged=True,
                ipv4=True,
                eth_src=vm.mac,
                nw_src=vm.ip,
            )
            yield ADMIT_TABLE, ADMIT_PRIORITY, match, Goto(FORWARD_TABLE)
    for port in trunk_ports:
        match = Match(
            port, untagged=True, ipv4=True, nw_src=_prefix(tenant)
        )
        yield ADMIT_TABLE, ADMIT_PRIORITY, match, Goto(FORWARD_TABLE)


def _prefix(tenant: Tenant) -> str | None:
    """The tenant's prefix in a match; None: any address."""
    if tenant.prefix == ANY_ADDRESS:
        # A switch reports a match of 0 bits as no match at all.
        return None
    return tenant.prefix


def _forwarded(
    tenant: Tenant,
    out_ports: dict[str, int],
    up_port: int | None,
) -> Iterator[_Rule]:
    prefix = _prefix(tenant)
    for address, port in out_ports.items():
        match = Match(ipv4=True, nw_src=prefix, nw_dst=address)
        yield FORWARD_TABLE, DOWN_PRIORITY, match, Output(port)
    if up_port is not None:
        match = Match(ipv4=True, nw_src=prefix, nw_dst=prefix)
        yield FORWARD_TABLE, UP_PRIORITY, match, Output(up_port)


def _ports_towards_vms(tenant: Tenant) -> dict[int, dict[str, int]]:
    """Of each switch (dpid): VM's address -> port, for VMs at or below it.

    In the VMs' order.
    """
    # A tenant's tree is pinned: from each switch one way leads up.
    above = {}
    for edge in tenant.tree:
        above[edge.child_dpid] = (edge.parent_dpid, edge.parent_port)
    ports: dict[int, dict[str, int]] = {dpid: {} for dpid in tenant.dpids}
    for vm in tenant.vms:
        ports[vm.dpid][vm.ip] = vm.port
        dpid = vm.dpid
        while dpid in above:
            dpid, port = above[dpid]
            ports[dpid][vm.ip] = port
    return ports


# -- state


@dataclass(frozen=True)
class AddFlow:
    """Addition of a rule; one with the same table, priority and match is replaced."""

    flow: Flow


@dataclass(frozen=True)
class RemoveFlow:
    """Removal of exactly this rule."""

    flow: Flow


@dataclass(frozen=True)
class RemoveByCookie:
    """Removal of rules, in all tables, by their cookie's bits in `mask`."""

    cookie: int
    mask: int = COOKIE_ALL_BITS


Change = AddFlow | RemoveFlow | RemoveByCookie


@dataclass(frozen=True)
class FlowReport:
    """The rules that a switch reports.

    `flows` are those of a known shape, whatever their origin; `other_cookies`
    are the cookies of all the rest (matches or actions that this controller
    never uses).
    """

    flows: tuple[Flow, ...] = ()
    other_cookies: tuple[int, ...] = ()

    @property
    def foreign_cookies(self) -> list[int]:
        """Cookies of rules that this controller did not make, one for each."""
        cookies = [flow.cookie for flow in self.flows]
        cookies += self.other_cookies
        return [cookie for cookie in cookies if not is_ours(cookie)]

    def joined(self, other: FlowReport) -> FlowReport:
        """This report and its continuation."""
        return FlowReport(
            self.flows + other.flows,
            self.other_cookies + other.other_cookies,
        )


# Changes of one step of a move, per switch (dpid).
Step = dict[int, tuple[AddFlow | RemoveFlow, ...]]


def move_steps(
    old: Mapping[int, Iterable[Flow]],
    new: Mapping[int, Iterable[Flow]],
) -> tuple[Step, Step, Step]:
    """The steps of a tenant from the rules of one tree to those of another.

    Make before break: rules that are new, then those that turn traffic to them,
    then the removal of rules that no packet meets now.

    Between two trees with the same VMs below each switch that both have
    (docs/decisions/05), no packet is lost if a step begins after the one before
    is confirmed, and the last after what was under way has arrived.
    """
    added: Step = defaultdict(tuple)
    turned: Step = defaultdict(tuple)
    removed: Step = defaultdict(tuple)
    for dpid in sorted(old.keys() | new.keys()):
        before = {flow.key: flow for flow in old.get(dpid, ())}
        after = {flow.key: flow for flow in new.get(dpid, ())}
        for key, flow in after.items():
            if key not in before:
                added[dpid] += (AddFlow(flow),)
            elif flow != before[key]:
                # The same packets, and another port.
                turned[dpid] += (AddFlow(flow),)
        for key, flow in before.items():
            if key not in after:
                removed[dpid] += (RemoveFlow(flow),)
    return added, turned, removed


def is_ours(cookie: int) -> bool:
    """True for a rule that this controller made, now or before a restart."""
    return cookie & COOKIE_TAG_MASK == COOKIE_TAG


def difference(
    desired: Iterable[Flow], report: FlowReport
) -> tuple[Change, ...]:
    """The changes to a switch with all of `desired` and no other rule.

    A rule of others may lead from one tenant to another: it is removed. Rules
    that are right already are left alone, counters and all. A rule of
    ours in a shape we cannot read is removed by its cookie, and the desired
    rules of that cookie are put in anew; applied as one bundle, traffic notices
    nothing.
    """
    wanted = {flow.key: flow for flow in desired}
    garbled = set(filter(is_ours, report.other_cookies))
    changes: list[Change] = []
    changes += _foreign_removals(report.foreign_cookies)
    changes += map(RemoveByCookie, sorted(garbled))
    present = set()
    for flow in report.flows:
        # Gone with its cookie: neither to be removed nor present.
        if not is_ours(flow.cookie) or flow.cookie in garbled:
            continue
        present.add(flow)
        if flow.key not in wanted:
            changes.append(RemoveFlow(flow))
    for flow in wanted.values():
        if flow not in present:
            changes.append(AddFlow(flow))
    return tuple(changes)


def _foreign_removals(cookies: Iterable[int]) -> Iterator[RemoveByCookie]:
    """Removals of rules by a bit in which their cookies differ from our tag.

    As many as the tag has bits, at most, however many cookies there are.
    """
    bits = set()
    # OpenFlow can remove rules with a cookie, and none without one. A rule
    # of others differs from our tag in some bit; one removal for each such
    # bit takes them all and none of ours.
    for cookie in cookies:
        different = (cookie ^ COOKIE_TAG) & COOKIE_TAG_MASK
        bits.add(different & -different)
    for bit in sorted(bits):
        yield RemoveByCookie(~COOKIE_TAG & bit, bit)
