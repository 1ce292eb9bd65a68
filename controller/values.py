"""Input of the controller: switches, tenants and the state it has to bring about.

All values are frozen. A value that exists is well-formed: construction checks everything that can
be checked without looking at other values and raises `InvalidValues` with *all* problems at once.
What needs two values (does the tenant's switch exist, is its prefix free) is checked where they
meet, in `DesiredState`.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError

Role = Literal["server", "rack", "aggregation", "core"]

TENANT_ID_MAX = 16383
"""Tenant ids are 1..16383: so many /22 prefixes fit into 10.0.0.0/8 beside the unused first."""
PREFIX_LENGTH = 22
ADDRESSES_PER_TENANT = 1 << (32 - PREFIX_LENGTH)
PORT_MAX = 0xFEFF
"""The highest port number Open vSwitch gives out (OpenFlow itself would allow 0xffffff00)."""
DPID_MAX = (1 << 64) - 1
ELEMENTS_MAX = 1 << 16
"""Commas and opening brackets in a JSON text. The largest tenant has a third of them, the network
of a fat-tree of k = 24 three quarters."""
RULES_MAX = 1 << 16
"""One for each VM of a tenant on each switch above it. The largest has a sixteenth of them."""
PROBLEMS_MAX = 20
PROBLEM_LENGTH_MAX = 300
_ERRORS_MAX = 1000
"""Beyond, they are counted only: pydantic gives all of them or none, 1 kB each."""

_TENANT_SPACE = ipaddress.IPv4Network("10.0.0.0/8")
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


class Strict:
    """A value that is read strictly: without keys it does not know, and without conversions."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)


Value = TypeVar("Value", bound=Strict)


class _Problems(ValueError):
    """`problems` names what is wrong, a line each: PROBLEMS_MAX of `every`, and how many more."""

    def __init__(self, problems: Iterable[str]) -> None:
        self.every = tuple(problems)
        shown = [shortened(problem, PROBLEM_LENGTH_MAX) for problem in self.every[:PROBLEMS_MAX]]
        more = len(self.every) - len(shown)
        self.problems = (*shown, f"and {more} more") if more else tuple(shown)
        super().__init__("; ".join(self.problems))


def shortened(text: str, most: int) -> str:
    """The text, cut to `most` characters."""
    return text if len(text) <= most else text[: most - 3] + "..."


class InvalidValues(_Problems):
    """Something given is not well-formed."""


class Conflict(_Problems):
    """Well-formed, but it does not fit what is there already."""


class UnknownTenant(LookupError):
    """There is no tenant with this id."""

    def __init__(self, tenant_id: int) -> None:
        self.tenant_id = tenant_id
        super().__init__(f"there is no tenant {tenant_id}")


@dataclass(frozen=True)
class Switch(Strict):
    """One bridge: a server's own switch, or a rack, aggregation or core switch.

    `ports` are the OpenFlow port numbers that tenants may be given, sorted.
    """

    dpid: int
    name: str
    role: Role
    ports: tuple[int, ...]

    def __post_init__(self) -> None:
        problems = [*_range_problems(self), *_name_problems(self.name)]
        for port in self.ports:
            problems += _problem_within("ports", port, 1, PORT_MAX)
        problems += [f"ports: {port} is listed twice" for port in _repeated(self.ports)]
        _raise_if(problems)
        object.__setattr__(self, "ports", tuple(sorted(self.ports)))


@dataclass(frozen=True)
class TreeEdge(Strict):
    """One link of a tenant's pinned tree: the child's port up and the parent's port down."""

    child_dpid: int
    child_port: int
    parent_dpid: int
    parent_port: int

    def __post_init__(self) -> None:
        problems = _range_problems(self)
        if self.child_dpid == self.parent_dpid:
            problems.append(f"switch {self.child_dpid} is its own parent")
        _raise_if(problems)


@dataclass(frozen=True)
class TenantVm(Strict):
    """One VM: its addresses, and the server switch and port it is plugged into."""

    index: int
    ip: str
    mac: str
    dpid: int
    port: int

    def __post_init__(self) -> None:
        problems = _range_problems(self)
        if not _is_ipv4(self.ip):
            problems.append(f"ip: {self.ip!r} is not an IPv4 address such as 10.0.4.1")
        if not _MAC.fullmatch(self.mac):
            problems.append(f"mac: {self.mac!r} is not of the form 02:00:00:00:00:01 (lower case)")
        elif int(self.mac[:2], 16) & 1:
            problems.append(f"mac: {self.mac} is a group address, a VM needs its own")
        _raise_if(problems)


@dataclass(frozen=True)
class Tenant(Strict):
    """A tenant: its prefix, its VMs and the tree its traffic is pinned to.

    `tree` has one edge per switch below the root. It spans every switch that has a VM; a tenant
    whose VMs all sit on one server needs no edges.
    """

    id: int
    name: str
    prefix: str
    vms: tuple[TenantVm, ...]
    tree: tuple[TreeEdge, ...] = ()

    def __post_init__(self) -> None:
        wrong_prefix = _prefix_problems(self.prefix)
        problems = [*_range_problems(self), *_name_problems(self.name), *wrong_prefix]
        if not self.vms:
            problems.append("vms: a tenant has at least one VM")
        if not wrong_prefix:
            problems += _address_problems(self)
        problems += _uniqueness_problems(self)
        problems += _tree_problems(self)
        _raise_if(problems)

    @cached_property
    def dpids(self) -> tuple[int, ...]:
        """Every switch that carries this tenant, sorted."""
        on_tree = {dpid for e in self.tree for dpid in (e.child_dpid, e.parent_dpid)}
        return tuple(sorted(on_tree | {vm.dpid for vm in self.vms}))

    @cached_property
    def network(self) -> ipaddress.IPv4Network:
        """The prefix as a value."""
        return ipaddress.IPv4Network(self.prefix)

    @cached_property
    def vm_ports(self) -> frozenset[tuple[int, int]]:
        """(dpid, port) of every VM."""
        return frozenset((vm.dpid, vm.port) for vm in self.vms)

    @cached_property
    def tree_ports(self) -> frozenset[tuple[int, int]]:
        """(dpid, port) of both ends of every link of the tree."""
        children = {(e.child_dpid, e.child_port) for e in self.tree}
        return frozenset(children | {(e.parent_dpid, e.parent_port) for e in self.tree})


@dataclass(frozen=True)
class DesiredState(Strict):
    """The network and the tenants on it, as they ought to be. Tenants are sorted by id."""

    switches: tuple[Switch, ...] = ()
    tenants: tuple[Tenant, ...] = ()

    def __post_init__(self) -> None:
        problems = [f"dpid {d} is given twice" for d in _repeated(s.dpid for s in self.switches)]
        problems += [
            f"switch name {name!r} is given twice"
            for name in _repeated(s.name for s in self.switches)
        ]
        _raise_if(problems)

    @cached_property
    def switch_by_dpid(self) -> dict[int, Switch]:
        """The switches by their datapath id."""
        return {switch.dpid: switch for switch in self.switches}

    def tenant(self, tenant_id: int) -> Tenant:
        """The tenant with this id; `UnknownTenant` if there is none."""
        for tenant in self.tenants:
            if tenant.id == tenant_id:
                return tenant
        raise UnknownTenant(tenant_id)

    def with_network(self, switches: Sequence[Switch]) -> DesiredState:
        """The same tenants on another network; `Conflict` if one of them would lose its place."""
        changed = DesiredState(tuple(sorted(switches, key=lambda s: s.dpid)))
        problems = [
            f"tenant {tenant.id} ({tenant.name}): {problem}"
            for tenant in self.tenants
            for problem in changed.place_problems(tenant)
        ]
        if problems:
            raise Conflict(problems)
        return replace(changed, tenants=self.tenants)

    def with_tenant(self, tenant: Tenant) -> DesiredState:
        """One tenant more.

        Raises `InvalidValues` if its switches or ports are not in the network, `Conflict` if its
        id, its prefix or one of its VMs' ports is taken.
        """
        _raise_if(self.place_problems(tenant))
        problems = [p for other in self.tenants for p in _collisions(tenant, other)]
        if problems:
            raise Conflict(problems)
        tenants = sorted((*self.tenants, tenant), key=lambda t: t.id)
        return replace(self, tenants=tuple(tenants))

    def without_tenant(self, tenant_id: int) -> DesiredState:
        """One tenant less; `UnknownTenant` if it is not there."""
        self.tenant(tenant_id)
        return replace(self, tenants=tuple(t for t in self.tenants if t.id != tenant_id))

    def place_problems(self, tenant: Tenant) -> list[str]:
        """Parts of the tenant's place that do not exist in this network."""
        known = self.switch_by_dpid
        problems = [f"switch {d} is not in the network" for d in tenant.dpids if d not in known]
        for dpid, port in sorted(tenant.vm_ports | tenant.tree_ports):
            if dpid in known and port not in known[dpid].ports:
                problems.append(f"switch {known[dpid].name} has no port {port}")
        for vm in tenant.vms:
            if vm.dpid in known and known[vm.dpid].role != "server":
                role = known[vm.dpid].role
                problems.append(
                    f"VM {vm.index} sits on {known[vm.dpid].name}, a {role} switch, not a server"
                )
        return problems


# ------------------------------------------------------------------------------------- JSON


@dataclass(frozen=True)
class Network(Strict):
    """The body of PUT /v1/network."""

    switches: tuple[Switch, ...]

    def __post_init__(self) -> None:
        DesiredState(self.switches)


_adapters: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    """Built once, at first use: building one costs milliseconds, using it microseconds."""
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def load_adapters(*kinds: type) -> None:
    """Builds the adapters of `kinds`, and imports what building and using them needs."""
    for kind in kinds:
        with suppress(InvalidValues):
            from_json(kind, b"{}")


def from_json(kind: type[Value], text: str | bytes) -> Value:
    """Read one value of type `kind` from JSON, strictly.

    Raises `InvalidValues` with every problem found: unknown and repeated keys, wrong types, and
    whatever the value itself refuses; of a text with too many values, that alone.
    """
    raw = text.encode(errors="surrogatepass") if isinstance(text, str) else text
    count = sum(map(raw.count, (b",", b"[", b"{")))
    if count > ELEMENTS_MAX:
        raise InvalidValues([f"{count} commas and brackets, at most {ELEMENTS_MAX} go"])
    try:
        # As UTF-8, which JSON is in: to guess at others needs modules that are out of reach by now.
        decoded = text if isinstance(text, str) else text.decode()
        json.loads(decoded, object_pairs_hook=_without_repeats)
        value: Value = _adapter(kind).validate_json(text)
    except ValidationError as error:
        raise InvalidValues(_explain(error)) from None
    except InvalidValues:
        raise
    except (ValueError, RecursionError) as error:
        raise InvalidValues([f"not JSON: {error}"]) from None
    return value


def to_json(value: Strict) -> bytes:
    """A value of this module as JSON; `from_json` gives back an equal one."""
    text: bytes = _adapter(type(value)).dump_json(value)
    return text


def _without_repeats(pairs: list[tuple[str, object]]) -> dict[str, object]:
    repeated = _repeated(key for key, _ in pairs)
    if repeated:
        raise InvalidValues([f"key {key!r} is given twice in one object" for key in repeated])
    return dict(pairs)


def _explain(error: ValidationError) -> list[str]:
    if error.error_count() > _ERRORS_MAX:
        return [f"{error.error_count()} values are wrong, missing or unknown: too many to list"]
    lines = []
    for detail in error.errors(include_url=False):
        path = _path(detail["loc"])
        cause = detail.get("ctx", {}).get("error")
        if isinstance(cause, InvalidValues):
            lines += [f"{path}: {problem}" if path else problem for problem in cause.every]
        elif detail["type"] == "unexpected_keyword_argument":
            lines.append(f"{path}: unknown key")
        elif detail["type"] == "missing":
            lines.append(f"{path}: missing")
        elif detail["type"] == "json_invalid":
            lines.append(f"not JSON: {detail['msg']}")
        else:
            shown = shortened(repr(detail["input"]), 60)
            message = f"{detail['msg'][:1].lower()}{detail['msg'][1:]}, not {shown}"
            lines.append(f"{path}: {message}" if path else message)
    return lines


def _path(location: tuple[int | str, ...]) -> str:
    text = ""
    for step in location:
        text += f"[{step}]" if isinstance(step, int) else f".{step}" if text else str(step)
    return text


# ----------------------------------------------------------------------------------- checks


def _raise_if(problems: Sequence[str]) -> None:
    if problems:
        raise InvalidValues(problems)


_RANGES = {
    "id": (1, TENANT_ID_MAX),
    "index": (0, ADDRESSES_PER_TENANT - 3),
    **dict.fromkeys(("dpid", "child_dpid", "parent_dpid"), (1, DPID_MAX)),
    **dict.fromkeys(("port", "child_port", "parent_port"), (1, PORT_MAX)),
}
"""Fields that are numbers, and the least and the most that they may be."""


def _range_problems(value: Strict) -> list[str]:
    found = [(name, number) for name, number in vars(value).items() if name in _RANGES]
    return [problem for field in found for problem in _problem_within(*field, *_RANGES[field[0]])]


def _problem_within(name: str, number: int, low: int, high: int) -> list[str]:
    return [] if low <= number <= high else [f"{name}: {number} is not within {low}..{high}"]


def _name_problems(name: str) -> list[str]:
    good = 0 < len(name) <= 128 and name.isprintable()
    return [] if good else [f"name: {name!r} is not 1 to 128 printable characters"]


def _is_ipv4(text: str) -> bool:
    try:
        return str(ipaddress.IPv4Address(text)) == text
    except ValueError:
        return False


def _prefix_problems(prefix: str) -> list[str]:
    try:
        network = ipaddress.IPv4Network(prefix)
    except ValueError as error:
        return [f"prefix: {error}"]
    good = (
        str(network) == prefix
        and network.prefixlen == PREFIX_LENGTH
        and network.subnet_of(_TENANT_SPACE)
    )
    return [] if good else [f"prefix: {prefix} is not a /{PREFIX_LENGTH} inside {_TENANT_SPACE}"]


def _address_problems(tenant: Tenant) -> list[str]:
    first = int(tenant.network.network_address) + 1
    last = int(tenant.network.broadcast_address) - 1
    return [
        f"VM {vm.index}: {vm.ip} is not a host address of {tenant.prefix}"
        for vm in tenant.vms
        if not first <= int(ipaddress.IPv4Address(vm.ip)) <= last
    ]


def _uniqueness_problems(tenant: Tenant) -> list[str]:
    problems = [f"VM index {i} is given twice" for i in _repeated(vm.index for vm in tenant.vms)]
    problems += [f"address {ip} is given twice" for ip in _repeated(vm.ip for vm in tenant.vms)]
    problems += [f"MAC {mac} is given twice" for mac in _repeated(vm.mac for vm in tenant.vms)]
    ends = [(vm.dpid, vm.port) for vm in tenant.vms]
    ends += [(edge.child_dpid, edge.child_port) for edge in tenant.tree]
    ends += [(edge.parent_dpid, edge.parent_port) for edge in tenant.tree]
    problems += [f"port {port} of switch {dpid} is used twice" for dpid, port in _repeated(ends)]
    return problems


def _tree_problems(tenant: Tenant) -> list[str]:
    """A tree has one root, one parent for all others, no circle, and reaches every VM."""
    problems = [
        f"tree: switch {dpid} has two parents"
        for dpid in _repeated(e.child_dpid for e in tenant.tree)
    ]
    if problems:
        return problems
    below: dict[int, list[int]] = {dpid: [] for dpid in tenant.dpids}
    for edge in tenant.tree:
        below[edge.parent_dpid].append(edge.child_dpid)
    roots = sorted(below.keys() - {edge.child_dpid for edge in tenant.tree})
    depth, reached = dict.fromkeys(roots, 1), list(roots)
    for dpid in reached:  # it grows under way
        depth |= dict.fromkeys(below[dpid], depth[dpid] + 1)
        reached += below[dpid]
    circling = [dpid for dpid in tenant.dpids if dpid not in depth]
    if circling:
        return [f"tree: the edges above switch {circling[0]} form a circle"]
    if len(roots) > 1:
        listed = ", ".join(map(str, roots))
        return [f"tree: it falls apart, switches {listed} have no parent and are not connected"]
    rules = sum(depth[vm.dpid] for vm in tenant.vms)
    if rules > RULES_MAX:
        return [f"tree: {rules} rules for VMs and the switches above, at most {RULES_MAX} go"]
    return []


def _collisions(tenant: Tenant, other: Tenant) -> list[str]:
    if (
        tenant.id != other.id
        and tenant.prefix != other.prefix
        and tenant.vm_ports.isdisjoint(other.vm_ports)
        and tenant.vm_ports.isdisjoint(other.tree_ports)
        and tenant.tree_ports.isdisjoint(other.vm_ports)
    ):
        return []  # At once: a thousand tenants come in half a million pairs.
    whose = f"tenant {other.id} ({other.name})"
    problems = []
    if tenant.id == other.id:
        problems.append(f"id {tenant.id} is taken by {whose}")
    if tenant.prefix == other.prefix:
        # All prefixes are /22 and aligned: two either coincide or are disjoint.
        problems.append(f"prefix {tenant.prefix} overlaps that of {whose}")
    taken = sorted(tenant.vm_ports & (other.vm_ports | other.tree_ports))
    taken += sorted(tenant.tree_ports & other.vm_ports)
    problems += [f"port {port} of switch {dpid} is a port of {whose}" for dpid, port in taken]
    return problems


Item = TypeVar("Item")


def _repeated(items: Iterable[Item]) -> list[Item]:
    """Those that occur more than once, each once, in order of their second occurrence."""
    seen: dict[Item, int] = {}
    for item in items:
        seen[item] = seen.get(item, 0) + 1
    return [item for item, count in seen.items() if count > 1]
