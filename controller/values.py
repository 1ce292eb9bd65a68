"""Input of the controller: switches, tenants, and the state to bring about.

All values are frozen. A value that exists is well-formed: construction checks
everything that can be checked without looking at other values and raises
`InvalidValues` with *all* problems at once. What needs two values (does the
tenant's switch exist, is its prefix free) is checked where they meet, in
`DesiredState`.
"""

from __future__ import annotations

import ipaddress
import json
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from functools import cached_property
from operator import attrgetter
from typing import Any, Literal, TypeVar

from pydantic import ConfigDict, TypeAdapter, ValidationError
from pydantic_core import ErrorDetails

Role = Literal["server", "rack", "aggregation", "core"]

# So many /22 prefixes fit into 10.0.0.0/8 beside the unused first.
TENANT_ID_MAX = 16383
PREFIX_LENGTH = 22
ADDRESSES_PER_TENANT = 1 << (32 - PREFIX_LENGTH)
# The highest that Open vSwitch gives out; OpenFlow would allow 0xffffff00.
PORT_MAX = 0xFEFF
DPID_MAX = (1 << 64) - 1
# Commas and opening brackets in a JSON text. The largest tenant has a third of
# them, the network of a fat-tree of k = 24 three quarters.
ELEMENTS_MAX = 1 << 16
# One for each VM of a tenant on each switch above it. The largest tenant has a
# sixteenth of them.
RULES_MAX = 1 << 16
PROBLEMS_MAX = 20
PROBLEM_LENGTH_MAX = 300
# More errors than these are only counted: pydantic gives all or none, 1 kB each.
_ERRORS_MAX = 1000

_TENANT_SPACE = ipaddress.IPv4Network("10.0.0.0/8")
# The prefix of a tenant that is alone on its network, with any addresses.
ANY_ADDRESS = "0.0.0.0/0"
_MAC = re.compile(r"[0-9a-f]{2}(:[0-9a-f]{2}){5}")


class Strict:
    """A value that is read without unknown keys and without conversions."""

    __pydantic_config__ = ConfigDict(extra="forbid", strict=True)


Value = TypeVar("Value", bound=Strict)


class _Problems(ValueError):
    """Lines on what is wrong.

    `every` has all of them; `problems` the first PROBLEMS_MAX, shortened, and
    the number of the others.
    """

    def __init__(self, problems: Iterable[str]) -> None:
        self.every = tuple(problems)
        lines = []
        for problem in self.every[:PROBLEMS_MAX]:
            lines.append(shortened(problem, PROBLEM_LENGTH_MAX))
        left_out = len(self.every) - len(lines)
        if left_out:
            lines.append(f"and {left_out} more")
        self.problems = tuple(lines)
        super().__init__("; ".join(lines))


def shortened(text: str, most: int) -> str:
    """The text, cut to `most` characters."""
    if len(text) <= most:
        return text
    return text[: most - 3] + "..."


class InvalidValues(_Problems):
    """Input that is not well-formed."""


class Conflict(_Problems):
    """Well-formed input that does not fit the state."""


class UnknownTenant(LookupError):
    """There is no tenant with this id."""

    def __init__(self, tenant_id: int) -> None:
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
        problems = _range_problems(self) + _name_problems(self.name)
        for port in self.ports:
            problems += _problem_within("ports", port, 1, PORT_MAX)
        for port in _repeated(self.ports):
            problems.append(f"ports: {port} is listed twice")
        _raise_if(problems)
        # Sorted, so that equal switches are equal values. A frozen dataclass
        # can be changed in this way alone.
        object.__setattr__(self, "ports", tuple(sorted(self.ports)))


@dataclass(frozen=True)
class TreeEdge(Strict):
    """One link of a tenant's tree: the child's port up, the parent's down."""

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
class AttachedVm(Strict):
    """One VM: its addresses, and its server's switch and the port there."""

    index: int
    ip: str
    mac: str
    dpid: int
    port: int

    def __post_init__(self) -> None:
        problems = _range_problems(self)
        if not _is_ipv4(self.ip):
            problems.append(
                f"ip: {self.ip!r} is not an IPv4 address such as 10.0.4.1"
            )
        _raise_if(problems + _mac_problems(self.mac))


@dataclass(frozen=True)
class Tenant(Strict):
    """A tenant: its prefix, its VMs and the tree its traffic is pinned to.

    `tree` has one edge per switch below the root. It spans every switch that
    has a VM; a tenant whose VMs all sit on one server needs no edges.
    """

    id: int
    name: str
    prefix: str
    vms: tuple[AttachedVm, ...]
    tree: tuple[TreeEdge, ...] = ()

    def __post_init__(self) -> None:
        wrong_prefix = _prefix_problems(self.prefix)
        problems = _range_problems(self) + _name_problems(self.name)
        problems += wrong_prefix
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
        dpids = {vm.dpid for vm in self.vms}
        for edge in self.tree:
            dpids.add(edge.child_dpid)
            dpids.add(edge.parent_dpid)
        return tuple(sorted(dpids))

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
        return frozenset(_tree_ends(self))


@dataclass(frozen=True)
class DesiredState(Strict):
    """The network and the tenants on it, as they ought to be, sorted by id."""

    switches: tuple[Switch, ...] = ()
    tenants: tuple[Tenant, ...] = ()

    def __post_init__(self) -> None:
        problems = []
        for dpid in _repeated(switch.dpid for switch in self.switches):
            problems.append(f"dpid {dpid} is given twice")
        for name in _repeated(switch.name for switch in self.switches):
            problems.append(f"switch name {name!r} is given twice")
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
        """The same tenants on another network.

        Raises `Conflict` if one of them would lose its place.
        """
        by_dpid = sorted(switches, key=attrgetter("dpid"))
        changed = DesiredState(tuple(by_dpid))
        problems = []
        for tenant in self.tenants:
            for problem in changed.place_problems(tenant):
                problems.append(
                    f"tenant {tenant.id} ({tenant.name}): {problem}"
                )
        if problems:
            raise Conflict(problems)
        return replace(changed, tenants=self.tenants)

    def with_tenant(self, tenant: Tenant) -> DesiredState:
        """The state with one tenant more.

        Raises `InvalidValues` if its switches or ports are not in the network,
        `Conflict` if its id, its prefix or one of its VMs' ports is taken.
        """
        _raise_if(self.place_problems(tenant))
        problems = []
        for other in self.tenants:
            problems += _collisions(tenant, other)
        if problems:
            raise Conflict(problems)
        tenants = sorted((*self.tenants, tenant), key=attrgetter("id"))
        return replace(self, tenants=tuple(tenants))

    def without_tenant(self, tenant_id: int) -> DesiredState:
        """The state with one tenant less; `UnknownTenant` if there is none."""
        removed = self.tenant(tenant_id)
        tenants = [
            tenant for tenant in self.tenants if tenant is not removed
        ]
        return replace(self, tenants=tuple(tenants))

    def place_problems(self, tenant: Tenant) -> list[str]:
        """Parts of the tenant's place that do not exist in this network."""
        switches = self.switch_by_dpid
        problems = []
        for dpid in tenant.dpids:
            if dpid not in switches:
                problems.append(f"switch {dpid} is not in the network")
        for dpid, port in sorted(tenant.vm_ports | tenant.tree_ports):
            switch = switches.get(dpid)
            # Unknown switches are reported above.
            if switch is not None and port not in switch.ports:
                problems.append(f"switch {switch.name} has no port {port}")
        for vm in tenant.vms:
            switch = switches.get(vm.dpid)
            if switch is not None and switch.role != "server":
                problems.append(
                    f"VM {vm.index} sits on {switch.name}, "
                    f"a {switch.role} switch, not a server"
                )
        return problems


# -- JSON


@dataclass(frozen=True)
class NetworkSwitches(Strict):
    """The body of PUT /v1/network."""

    switches: tuple[Switch, ...]

    def __post_init__(self) -> None:
        # Checked as a whole: numbers and names are unique.
        DesiredState(self.switches)


_adapters: dict[type, TypeAdapter[Any]] = {}


def _adapter(kind: type) -> TypeAdapter[Any]:
    # Building one costs milliseconds, using it microseconds: built at first
    # use.
    if kind not in _adapters:
        _adapters[kind] = TypeAdapter(kind)
    return _adapters[kind]


def load_adapters(*kinds: type) -> None:
    """Builds adapters, and imports what building and using them needs."""
    for kind in kinds:
        with suppress(InvalidValues):
            # An empty object is always wrong: writing its errors imports
            # what they need.
            from_json(kind, b"{}")


def from_json(
    kind: type[Value],
    text: bytes,
) -> Value:
    """Reads one value of type `kind` from JSON, strictly.

    Raises `InvalidValues` with every problem found: unknown and repeated keys,
    wrong types, and whatever the value itself refuses; of a text with too many
    values, that alone.
    """
    # Counted before anything is parsed: small texts can be many values.
    count = text.count(b",") + text.count(b"[") + text.count(b"{")
    if count > ELEMENTS_MAX:
        raise InvalidValues(
            [f"{count} commas and brackets, at most {ELEMENTS_MAX} go"]
        )
    try:
        # pydantic takes the last of repeated keys; this parser sees them all.
        # Decoded as UTF-8, which JSON is in: to guess at others needs modules
        # that are out of reach by now.
        json.loads(text.decode(), object_pairs_hook=_without_repeats)
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
    problems = []
    for key in _repeated(key for key, _ in pairs):
        problems.append(f"key {key!r} is given twice in one object")
    _raise_if(problems)
    return dict(pairs)


def _explain(error: ValidationError) -> list[str]:
    """A line for each of pydantic's errors, in the words of this module."""
    count = error.error_count()
    if count > _ERRORS_MAX:
        return [
            f"{count} values are wrong, missing or unknown: too many to list"
        ]
    lines = []
    for detail in error.errors(include_url=False):
        path = _path(detail["loc"])
        if detail["type"] == "json_invalid":
            lines.append(f"not JSON: {detail['msg']}")
            continue
        for message in _messages(detail):
            if path:
                lines.append(f"{path}: {message}")
            else:
                lines.append(message)
    return lines


def _messages(detail: ErrorDetails) -> Sequence[str]:
    cause = detail.get("ctx", {}).get("error")
    if isinstance(cause, InvalidValues):
        return cause.every
    if detail["type"] == "unexpected_keyword_argument":
        return ["unknown key"]
    if detail["type"] == "missing":
        return ["missing"]
    text = detail["msg"]
    shown = shortened(repr(detail["input"]), 60)
    return [f"{text[:1].lower()}{text[1:]}, not {shown}"]


def _path(location: tuple[int | str, ...]) -> str:
    """A place in a JSON text, as `tenants[2].vms[0]`."""
    text = ""
    for step in location:
        if isinstance(step, int):
            text += f"[{step}]"
        elif text:
            text += f".{step}"
        else:
            text = step
    return text


# -- checks


def _raise_if(problems: Sequence[str]) -> None:
    if problems:
        raise InvalidValues(problems)


# Fields that are numbers -> the least and the most that they may be.
_RANGES = {
    "id": (1, TENANT_ID_MAX),
    # From the first host address to the last.
    "index": (0, ADDRESSES_PER_TENANT - 3),
    "dpid": (1, DPID_MAX),
    "child_dpid": (1, DPID_MAX),
    "parent_dpid": (1, DPID_MAX),
    "port": (1, PORT_MAX),
    "child_port": (1, PORT_MAX),
    "parent_port": (1, PORT_MAX),
}


def _range_problems(value: Strict) -> list[str]:
    problems: list[str] = []
    for name, number in vars(value).items():
        if name in _RANGES:
            low, high = _RANGES[name]
            problems += _problem_within(name, number, low, high)
    return problems


def _problem_within(
    name: str,
    number: int,
    low: int,
    high: int,
) -> list[str]:
    if low <= number <= high:
        return []
    return [f"{name}: {number} is not within {low}..{high}"]


def _name_problems(name: str) -> list[str]:
    if 0 < len(name) <= 128 and name.isprintable():
        return []
    return [f"name: {name!r} is not 1 to 128 printable characters"]


def _is_ipv4(text: str) -> bool:
    try:
        return str(ipaddress.IPv4Address(text)) == text
    except ValueError:
        return False


def _mac_problems(mac: str) -> list[str]:
    if not _MAC.fullmatch(mac):
        return [
            f"mac: {mac!r} is not of the form 02:00:00:00:00:01 (lower case)"
        ]
    # The lowest bit of the first byte.
    if int(mac[:2], 16) & 1:
        return [f"mac: {mac} is a group address, a VM needs its own"]
    return []


def _prefix_problems(prefix: str) -> list[str]:
    if prefix == ANY_ADDRESS:
        return []
    try:
        network = ipaddress.IPv4Network(prefix)
    except ValueError as error:
        return [f"prefix: {error}"]
    # IPv4Network also reads 10.0.4.0/255.255.252.0: a prefix has one
    # spelling, by which tenants are compared.
    if (
        str(network) == prefix
        and network.prefixlen == PREFIX_LENGTH
        and network.subnet_of(_TENANT_SPACE)
    ):
        return []
    return [
        f"prefix: {prefix} is not a /{PREFIX_LENGTH} inside {_TENANT_SPACE}"
    ]


def _address_problems(tenant: Tenant) -> list[str]:
    # Without the network's own address and its broadcast address.
    first = int(tenant.network.network_address) + 1
    last = int(tenant.network.broadcast_address) - 1
    problems = []
    for vm in tenant.vms:
        if not first <= int(ipaddress.IPv4Address(vm.ip)) <= last:
            problems.append(
                f"VM {vm.index}: {vm.ip} is not a host address "
                f"of {tenant.prefix}"
            )
    return problems


def _uniqueness_problems(tenant: Tenant) -> list[str]:
    problems = []
    for name, field in (
        ("VM index", "index"),
        ("address", "ip"),
        ("MAC", "mac"),
    ):
        for value in _repeated(map(attrgetter(field), tenant.vms)):
            problems.append(f"{name} {value} is given twice")
    ends = [(vm.dpid, vm.port) for vm in tenant.vms]
    # VMs and links of one tenant share no port.
    for dpid, port in _repeated(ends + _tree_ends(tenant)):
        problems.append(f"port {port} of switch {dpid} is used twice")
    return problems


def _tree_ends(tenant: Tenant) -> list[tuple[int, int]]:
    """(dpid, port) of the lower ends of a tree's links, then of the upper."""
    lower = [(edge.child_dpid, edge.child_port) for edge in tenant.tree]
    upper = [(edge.parent_dpid, edge.parent_port) for edge in tenant.tree]
    return lower + upper


def _tree_problems(tenant: Tenant) -> list[str]:
    """Problems of a graph that is no tree, and of one with too many rules.

    A tree has one root, one parent for all others, no circle, and reaches every
    VM.
    """
    # In this order: with one parent for each, what no root reaches is in a
    # circle.
    repeated = _repeated(edge.child_dpid for edge in tenant.tree)
    if repeated:
        return [f"tree: switch {dpid} has two parents" for dpid in repeated]
    children = {edge.child_dpid for edge in tenant.tree}
    roots = [dpid for dpid in tenant.dpids if dpid not in children]
    depth = _depths(tenant, roots)
    for dpid in tenant.dpids:
        if dpid not in depth:
            return [f"tree: the edges above switch {dpid} form a circle"]
    if len(roots) > 1:
        listed = ", ".join(map(str, roots))
        problem = f"it falls apart, switches {listed} have no parent"
        return [f"tree: {problem} and are not connected"]
    rules = sum(depth[vm.dpid] for vm in tenant.vms)
    if rules > RULES_MAX:
        problem = f"{rules} rules for VMs and the switches above"
        return [f"tree: {problem}, at most {RULES_MAX} go"]
    return []


def _depths(
    tenant: Tenant,
    roots: Iterable[int],
) -> dict[int, int]:
    """By switch, the number of switches from a root down to it, both counted.

    Switches that no root reaches are missing.
    """
    below: dict[int, list[int]] = {dpid: [] for dpid in tenant.dpids}
    for edge in tenant.tree:
        below[edge.parent_dpid].append(edge.child_dpid)
    depth = dict.fromkeys(roots, 1)
    queue = list(depth)
    for dpid in queue:  # it grows meanwhile
        for child in below[dpid]:
            depth[child] = depth[dpid] + 1
            queue.append(child)
    return depth


def _collisions(tenant: Tenant, other: Tenant) -> list[str]:
    if (
        tenant.id != other.id
        and tenant.prefix != other.prefix
        and ANY_ADDRESS not in (tenant.prefix, other.prefix)
        and tenant.vm_ports.isdisjoint(other.vm_ports)
        and tenant.vm_ports.isdisjoint(other.tree_ports)
        and tenant.tree_ports.isdisjoint(other.vm_ports)
    ):
        return []  # At once: a thousand tenants come in half a million pairs.
    owner = f"tenant {other.id} ({other.name})"
    problems = []
    if tenant.id == other.id:
        problems.append(f"id {tenant.id} is taken by {owner}")
    if tenant.network.overlaps(other.network):
        problems.append(f"prefix {tenant.prefix} overlaps that of {owner}")
    # Links of trees may be shared, ports of VMs may not.
    shared = sorted(tenant.vm_ports & (other.vm_ports | other.tree_ports))
    shared += sorted(tenant.tree_ports & other.vm_ports)
    for dpid, port in shared:
        problems.append(
            f"port {port} of switch {dpid} is a port of {owner}"
        )
    return problems


Item = TypeVar("Item")


def _repeated(items: Iterable[Item]) -> list[Item]:
    """Items that occur more than once, each once, in order of appearance."""
    counts = Counter(items)
    return [item for item, count in counts.items() if count > 1]
